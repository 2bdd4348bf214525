"""JSON within JSON that is nested beyond any parser: kept as text, or told; never a crash."""

import json
from base64 import urlsafe_b64encode
from contextlib import suppress
from typing import Any

from gateway.conversation import ITEM_MARK, RAW_ARGUMENTS
from gateway.dialects.registry import DIALECTS
from gateway.errors import RequestInvalid
from gateway.store.batching.kept_names import line_of, named_by_body, result_of
from gateway.types import ChatRequest
from tests.gateway.dialects.samples import ANTHROPIC, OPENAI, chat, messages, target


RESPONSES = DIALECTS["openai_responses"]
NEST = "[" * 20_000 + "]" * 20_000
DEEP = f'{{"a":{NEST}}}'
CALL = {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": DEEP}}


def test_arguments_that_a_model_nested_without_end_stay_readable() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    whole = {"id": "x", "model": "m", "choices": [{"message": message, "finish_reason": "stop"}]}
    completion = OPENAI.decode_reply(json.dumps(whole).encode())

    told = json.loads(ANTHROPIC.encode_reply(completion, "openai_chat", messages()))

    (call,) = [block for block in told["content"] if block["type"] == "tool_use"]
    assert call["input"] == {RAW_ARGUMENTS: DEEP}


def test_a_history_with_such_arguments_is_asked_again() -> None:
    request = chat(
        messages=[
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_a", "content": "y"},
        ]
    )
    sent = json.loads(ANTHROPIC.encode_request(request, target(), 100).body)
    assert sent["messages"][1]["content"][0]["input"] == {RAW_ARGUMENTS: DEEP}


def test_sealed_reasoning_with_such_a_thing_in_it_is_another_vendors() -> None:
    sealed = ITEM_MARK + urlsafe_b64encode(f'{{"type":"reasoning","x":{NEST}}}'.encode()).decode()
    thought = {"type": "redacted_thinking", "data": sealed}
    request: ChatRequest = messages(
        messages=[
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [thought, {"type": "text", "text": "y"}]},
            {"role": "user", "content": "z"},
        ]
    )
    with suppress(RequestInvalid):
        sent: dict[str, Any] = json.loads(RESPONSES.encode_request(request, target(), 100).body)
        assert all(item.get("type") != "reasoning" for item in sent["input"])


def test_a_kept_line_with_such_a_thing_in_it_names_nobody_and_stops_no_erasure() -> None:
    body = f'{{"user":"ann","x":{NEST}}}'.encode()
    assert named_by_body(body) == ""
    assert line_of(b'{"custom_id":"a","body":%b}' % body) == ("", "")
    assert result_of(b'{"id":"batch_req_a_1","response":{"body":%b}}' % body) is None
