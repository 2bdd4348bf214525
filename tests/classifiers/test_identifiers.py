"""Ids of calls and items are no secrets; what only stands in their place is read."""

import base64
import random
import string
import uuid
import zlib
from typing import Any

import pytest

from classifiers.identifiers import is_name
from classifiers.inspection import inspect
from classifiers.pii.labels import DataClass
from classifiers.pii.scanner import load
from tests.identifiers import aadhaar, card


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


CARD = card(11)


def coded(text: bytes) -> str:
    return base64.b64encode(text).decode().rstrip("=")


@pytest.mark.parametrize(
    "hidden",
    [
        f"{CARD[:8]}-{CARD[8:12]}-{CARD[12:]}-8bad-c0ffeec0ffee",
        f"call_abcd{CARD}",
        f"call_{CARD}abcdef",
        "call_" + coded(f"card\n{CARD}".encode()),
        "fc_" + coded(f"Karte f\u00fcr J\u00f6rg: {CARD}".encode()),
        "call_" + coded(zlib.compress(f"card {CARD}".encode())).replace("+", "a"),
    ],
)
def test_no_name_has_a_number_of_somebodys_in_it(hidden: str) -> None:
    assert not is_name(hidden)
    for conversation in conversations(hidden, "msg_1"):
        assert inspect(conversation, scanner=SCANNER).data_class >= DataClass.S3


def test_names_that_chance_makes_are_names() -> None:
    drawn_at = random.Random(7)
    made = [
        *(str(uuid.UUID(int=drawn_at.getrandbits(128), version=4)) for _ in range(2000)),
        *(f"fc_{drawn_at.randbytes(24).hex()}" for _ in range(2000)),
        *("call_" + "".join(drawn_at.choices(LETTERS, k=24)) for _ in range(2000)),
    ]

    assert sum(not is_name(name) for name in made) <= 4


def test_a_name_elsewhere_is_a_text_like_any() -> None:
    token = "call_" + drawn(40)
    asked = {"messages": [{"role": "user", "content": token}]}

    assert inspect(asked, scanner=SCANNER).counts == {"SECRET": 1}
