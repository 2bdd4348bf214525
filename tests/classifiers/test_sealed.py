"""What vendors seal is noise to a reader; what only pretends to be is read as ever."""

import base64
import gzip
import json
import random
from typing import Any

import pytest

from classifiers.inspection import inspect
from classifiers.sealed import is_sealed
from tests.identifiers import aadhaar


NOISE = random.Random(7).randbytes(400)
HINDI = "मेरा आधार नंबर और मेरी पूरी कहानी यहाँ लिखी है। " * 6


def seal(data: bytes) -> str:
    return base64.b64encode(data).decode()


def turn(block: dict[str, Any], role: str = "assistant") -> dict[str, Any]:
    text = {"type": "text", "text": "Well."}
    messages = [
        {"role": "user", "content": "Hello."},
        {"role": role, "content": [block, text]},
        {"role": "user", "content": "Go on."},
    ]
    return {"model": "auto", "max_tokens": 5, "messages": messages}


BLOCKS: tuple[dict[str, Any], ...] = (
    {"type": "thinking", "thinking": "Hm.", "signature": seal(NOISE)},
    {"type": "redacted_thinking", "data": seal(NOISE)},
)
TOLD: tuple[dict[str, Any], ...] = (
    {"type": "compaction", "content": "We spoke of rivers.", "encrypted_content": seal(NOISE)},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "encrypted_content": seal(NOISE)}],
    },
    {
        "type": "advisor_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {"type": "advisor_redacted_result", "encrypted_content": seal(NOISE)},
    },
    {
        "type": "bash_code_execution_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {"type": "bash_code_execution_result", "stdout": "ok", "content": []},
    },
    {
        "type": "tool_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {"type": "tool_search_tool_search_result", "tool_references": []},
    },
)
"""What its vendor's own tools told, and how it summed up a conversation."""


@pytest.mark.parametrize("block", TOLD)
def test_what_a_vendor_did_between_is_read_and_its_seals_are_no_finding(
    block: dict[str, Any],
) -> None:
    found = inspect(turn(block))
    assert (found.data_class.name, found.complete) == ("S0", True)


def test_what_a_summary_says_is_found() -> None:
    said = f"Their number is {aadhaar(3)}."
    assert inspect(turn({"type": "compaction", "content": said})).data_class.name == "S3"


@pytest.mark.parametrize("block", BLOCKS)
def test_sealed_reasoning_is_no_finding_and_nothing_unread(block: dict[str, Any]) -> None:
    found = inspect(turn(block))
    assert (found.data_class.name, found.complete) == ("S0", True)


def said_in_chat(**beside: Any) -> dict[str, Any]:
    """What an assistant's message says beside its words when it comes back."""
    asked = {"role": "user", "content": "Go on."}
    return {
        "model": "auto",
        "messages": [asked, {"role": "assistant", "content": "Well."} | beside],
    }


def call_sealed(data: bytes) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    sealed = {"google": {"thought_signature": seal(data)}}
    return {"id": "c1", "type": "function", "function": function, "extra_content": sealed}


@pytest.mark.parametrize("length", [100, 400, 3_000])
def test_what_chats_carry_beside_words_and_calls_is_sealed_too(length: int) -> None:
    """Google's signatures of calls, without which it takes no result, and what relays tell."""
    data = random.Random(length).randbytes(length)
    details = [
        {"type": "reasoning.text", "text": "Hm.", "signature": seal(data)},
        {"type": "reasoning.encrypted", "data": seal(data), "format": "google-gemini-v1"},
    ]
    for asked in (
        said_in_chat(tool_calls=[call_sealed(data)]),
        said_in_chat(reasoning_details=details),
        said_in_chat(annotations=[{"type": "url_citation", "url_citation": {"title": "rivers"}}]),
    ):
        found = inspect(asked)
        assert (found.data_class.name, found.complete) == ("S0", True), asked


def test_what_is_hidden_in_a_signature_of_a_call_is_found() -> None:
    hidden = b"The number is %s, and more. " % aadhaar(3).encode() * 8
    assert inspect(said_in_chat(tool_calls=[call_sealed(hidden)])).data_class.name == "S3"
    user = {"role": "user", "content": "x", "tool_calls": [call_sealed(NOISE)]}
    assert inspect({"model": "auto", "messages": [user]}).data_class.name != "S0"


def test_a_reasoning_item_is_sealed_too() -> None:
    sealed = base64.urlsafe_b64encode(NOISE).decode()
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealed}
    asked = {"role": "user", "content": "Go on."}
    found = inspect({"model": "auto", "input": [asked, item, asked]})
    assert (found.data_class.name, found.complete) == ("S0", True)


@pytest.mark.parametrize(
    "data",
    [
        b"The number is %s, and more. " % aadhaar(3).encode() * 8,
        f"The number is {aadhaar(3)}.".encode("utf-16") * 8,
        HINDI.encode(),
        HINDI.encode("utf-16"),
        gzip.compress(random.Random(8).randbytes(300)),
        NOISE + HINDI.encode() * 4,
        NOISE[:40],
    ],
)
def test_what_is_no_noise_is_not_sealed(data: bytes) -> None:
    block: dict[object, object] = {"type": "redacted_thinking"}
    assert not is_sealed(block, "data", seal(data), "assistant")


def test_only_the_vendors_own_fields_of_its_own_turns_are_sealed() -> None:
    thinking: dict[object, object] = {"type": "thinking"}
    assert is_sealed(thinking, "signature", seal(NOISE), "assistant")
    assert not is_sealed(thinking, "thinking", seal(NOISE), "assistant")
    assert not is_sealed(thinking, "signature", seal(NOISE), "user")
    assert not is_sealed({"type": "text"}, "signature", seal(NOISE), "assistant")
    assert not is_sealed({"type": ["thinking"]}, "signature", seal(NOISE), "assistant")
    assert not is_sealed(thinking, "signature", "no base64 at all" * 20, "assistant")
    assert not is_sealed(thinking, "signature", 7, "assistant")


@pytest.mark.parametrize("block", BLOCKS[1:])
def test_what_a_user_sends_in_such_a_block_is_read_as_ever(block: dict[str, Any]) -> None:
    assert inspect(turn(block, role="user")).data_class.name == "S4"


def test_a_number_hidden_in_a_seal_is_found() -> None:
    hidden = seal(b"The number is %s, and more. " % aadhaar(3).encode() * 8)
    found = inspect(turn({"type": "thinking", "thinking": "Hm.", "signature": hidden}))
    assert found.data_class.name == "S3"


def wrap(mark: str, inside: object) -> str:
    return f"gw_{mark}:" + base64.urlsafe_b64encode(json.dumps(inside).encode()).decode()


def through_clients(thought: str, signature: str) -> list[dict[str, Any]]:
    """A thought of Claude's in a response's item, and a reasoning item in a message's block."""
    carried = wrap("thinking_block", [thought, signature, ""])
    item = {"type": "reasoning", "summary": [], "encrypted_content": carried}
    inner = {"type": "reasoning", "summary": [{"type": "summary_text", "text": thought}]}
    data = wrap("reasoning_item", inner | {"encrypted_content": signature})
    asked = {"role": "user", "content": "Go on."}
    return [{"input": [asked, item, asked]}, turn({"type": "redacted_thinking", "data": data})]


def test_a_seal_that_a_client_of_another_dialect_carries_is_one_too() -> None:
    for request in through_clients("Hm. The bridge is old.", seal(NOISE)):
        found = inspect(request)
        assert (found.data_class.name, found.complete) == ("S0", True), request


@pytest.mark.parametrize(
    ("thought", "signature"),
    [
        (f"The number is {aadhaar(3)}.", seal(NOISE)),
        ("Hm.", f"The number is {aadhaar(3)}."),
        ("Hm.", seal(f"The number is {aadhaar(3)}. ".encode() * 8)),
    ],
)
def test_what_else_is_carried_like_one_is_read(thought: str, signature: str) -> None:
    for request in through_clients(thought, signature):
        assert inspect(request).data_class.name in {"S3", "S4"}


@pytest.mark.parametrize("value", ["gw_x:", "gw_x:W10=", "gw_x:e30=", "gw_x:%", "gw_thinking:WzFd"])
def test_a_wrap_with_anything_else_in_it_is_no_error(value: str) -> None:
    assert inspect(turn({"type": "redacted_thinking", "data": value})).complete


def token(length: int) -> str:
    """What Fernet makes of so many blocks, as the vendor seals what agents tell each other."""
    data = bytes([128]) + (1_790_000_000).to_bytes(8, "big")
    return base64.urlsafe_b64encode(data + random.Random(9).randbytes(48 + 16 * length)).decode()


def told(sealed: str, plain: str = "Task:", arguments: str = "") -> dict[str, Any]:
    """A call that starts an agent, and what that agent is told."""
    given = arguments or json.dumps({"task_name": "w", "message": sealed})
    call = {"type": "function_call", "call_id": "call_1", "name": "spawn", "arguments": given}
    parts = [
        {"type": "input_text", "text": plain},
        {"type": "encrypted_content", "encrypted_content": sealed},
    ]
    return {"model": "auto", "input": [call, {"type": "agent_message", "content": parts}]}


@pytest.mark.parametrize("length", [1, 20])
def test_what_agents_tell_each_other_is_sealed_where_the_vendor_did_it(length: int) -> None:
    found = inspect(told(token(length)))
    assert (found.data_class.name, found.complete) == ("S0", True)


NUMBER = f"The number is {aadhaar(3)}."


@pytest.mark.parametrize(
    "request_",
    [
        told(NUMBER),
        told(token(2), NUMBER),
        told(token(2), arguments=json.dumps({"note": NUMBER, "message": token(2)})),
        told(token(2), arguments=f'{{"message":"{NUMBER}","message":"{token(2)}"}}'),
        told(base64.urlsafe_b64encode(bytes([128, 0, 0, 0, 0]) + NUMBER.encode() * 4).decode()),
        told(token(2) + " " + NUMBER),
        turn({"type": "function_call", "arguments": json.dumps({"message": token(2)})}, "user"),
        {"input": [{"role": "user", "content": f"message: {token(2)}"}]},
    ],
)
def test_nothing_else_is_sealed_with_it(request_: dict[str, Any]) -> None:
    assert inspect(request_).data_class.name in {"S3", "S4"}
