"""Ids of calls and items are no secrets; what only stands in their place is read."""

import random
import string
from typing import Any

import pytest

from classifiers.identifiers import is_name
from classifiers.inspection import inspect
from classifiers.pii.scanner import load
from tests.identifiers import aadhaar


RANDOM = random.Random(11)
LETTERS = string.ascii_letters + string.digits
SCANNER = load()
USER = {"role": "user", "content": "Good morning"}


def drawn(length: int) -> str:
    return "".join(RANDOM.choice(LETTERS) for _ in range(length))


def conversations(call: str, item: str) -> list[dict[str, Any]]:
    """The same call in each dialect."""
    function = {"name": "f", "arguments": "{}"}
    called = {"role": "assistant", "tool_calls": [{"id": call, "function": function}]}
    use = {"type": "tool_use", "id": call, "name": "f", "input": {}}
    done = {"type": "tool_result", "tool_use_id": call, "content": "ok"}
    said = {"type": "message", "id": item, "role": "assistant", "content": "Well."}
    asked = {"type": "function_call", "id": item, "call_id": call, "name": "f", "arguments": "{}"}
    answered = {"type": "function_call_output", "call_id": call, "output": "ok"}
    turns = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [done]}]
    return [
        {"messages": [USER, called, {"role": "tool", "tool_call_id": call, "content": "ok"}]},
        {"messages": [USER, *turns]},
        {"input": [USER, said, asked, answered], "previous_response_id": f"resp_{48 * 'a'}"},
    ]


@pytest.mark.parametrize(
    ("call", "item"),
    [
        ("toolu_01" + drawn(22), "msg_01" + drawn(22)),
        ("call_" + drawn(24), "fc_" + RANDOM.randbytes(24).hex()),
        ("chatcmpl-tool-" + RANDOM.randbytes(16).hex(), "rs_" + RANDOM.randbytes(24).hex()),
        ("call_" + RANDOM.randbytes(10).hex(), "msg_01a2" + RANDOM.randbytes(12).hex() + "_1"),
        ("srvtoolu_01" + drawn(22), "rs_" + RANDOM.randbytes(14).hex() + "_0"),
    ],
)
def test_a_conversation_with_tools_is_no_more_sensitive_than_its_words(
    call: str, item: str
) -> None:
    for conversation in conversations(call, item):
        seen = inspect(conversation, scanner=SCANNER)
        assert (seen.data_class.name, seen.counts) == ("S0", {})


@pytest.mark.parametrize(
    "hidden",
    [
        aadhaar(3),
        f"call_{aadhaar(3)}",
        "ingrid@corp-mail.no",
        "sk-proj-" + drawn(40),
        "AKIA" + "".join(RANDOM.choice(string.ascii_uppercase) for _ in range(16)),
        "ghp_" + drawn(36),
    ],
)
def test_whatever_else_stands_in_such_a_field_is_read(hidden: str) -> None:
    assert not is_name(hidden)
    for conversation in conversations(hidden, "msg_1"):
        assert inspect(conversation, scanner=SCANNER).counts


def test_a_name_elsewhere_is_a_text_like_any() -> None:
    token = "call_" + drawn(40)
    asked = {"messages": [{"role": "user", "content": token}]}

    assert inspect(asked, scanner=SCANNER).counts == {"SECRET": 1}
