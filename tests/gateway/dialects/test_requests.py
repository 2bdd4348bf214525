"""What a request must be, and what is learnt from it."""

import json
from typing import Any

import pytest

from gateway.errors import FeatureUnsupported, RequestInvalid
from gateway.estimate import IMAGE_TOKENS, MARGIN_TOKENS
from gateway.ports import Dialect
from tests.gateway.dialects.samples import ANTHROPIC, OPENAI, chat, messages


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk" * 100


def refusal(dialect: Dialect, raw: bytes) -> RequestInvalid:
    with pytest.raises(RequestInvalid) as caught:
        dialect.decode_request(raw, "req_1")
    return caught.value


def nested(depth: int) -> bytes:
    inner = b'{"a":' * depth + b"1" + b"}" * depth
    return b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],"x":%b}' % inner


@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC])
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b'"text"',
        b"{",
        b'{"model":"m"}',
        b"\xff\xfe",
        b'\xef\xbb\xbf{"model":"m"}',
        b'{"model":"m","messages":[],"max_tokens":1}',
        b'{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":1,"x":NaN}',
        b'{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":1,"x":-Infinity}',
        b'{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":1,"x":1e999}',
        b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}],"max_tokens":1}',
        b'{"model":"m","messages":[{"role":"user","content":"\xed\xa0\x80"}],"max_tokens":1}',
        b'{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":1,"x":'
        + b"1" * 5000
        + b"}",
        nested(64),
        nested(5000),
        nested(200_000),
    ],
)
def test_a_body_without_one_clear_meaning_is_refused(dialect: Dialect, raw: bytes) -> None:
    assert refusal(dialect, raw).status == 400


@pytest.mark.parametrize("dialect", [OPENAI, ANTHROPIC])
def test_nesting_up_to_the_limit_and_paired_surrogates_are_accepted(dialect: Dialect) -> None:
    assert dialect.decode_request(nested(63), "r").model == "m"
    raw = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"\\ud83d\\ude00"}]}'
    assert dialect.decode_request(raw, "r").raw == raw


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"model": ""}, "model"),
        ({"model": "a\nb"}, "model"),
        ({"model": "m\n"}, "model"),
        ({"model": "x" * 257}, "model"),
        ({"model": 7}, "model"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 1.01}, "top_p"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": "x"}, "messages"),
        ({"tools": {}}, "tools"),
    ],
)
def test_a_wrong_field_is_named_by_its_path(fields: dict[str, Any], parameter: str) -> None:
    for make in (chat, messages):
        with pytest.raises(RequestInvalid) as caught:
            make(**fields)
        assert caught.value.parameter == parameter
        assert caught.value.message.startswith(parameter)


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 5}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": True}, "n"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": [7]}, "stop[0]"),
        ({"stream_options": []}, "stream_options"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tool_choice": "always"}, "tool_choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ],
)
def test_chat_requests_obey_their_own_rules(fields: dict[str, Any], parameter: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        chat(**fields)
    assert caught.value.parameter == parameter


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"temperature": 1.1}, "temperature"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"system": [{"type": "image"}]}, "system[0].type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
            "messages[0].content[0].text",
        ),
    ],
)
def test_messages_requests_obey_their_own_rules(fields: dict[str, Any], parameter: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        messages(**fields)
    assert caught.value.parameter == parameter


def test_a_refusal_never_repeats_what_was_sent() -> None:
    secret = "swordfish"
    for body in (
        {"model": "m", "messages": [{"role": secret, "content": "x"}]},
        {"model": "m", "messages": [{"role": "user", "content": "x"}], "tool_choice": secret},
        {"model": f"{secret}\n", "messages": []},
    ):
        assert secret not in refusal(OPENAI, json.dumps(body).encode()).message
    doubled = f'{{"model":"m","x":{{"{secret}":1,"{secret}":2}}}}'.encode()
    assert secret not in refusal(OPENAI, doubled).message


def test_duplicate_keys_in_one_object_are_refused_but_not_in_two() -> None:
    head = b'{"model":"m","messages":[{"role":"user","content":"x"}],'
    assert "twice" in refusal(OPENAI, head + b'"model":"n"}').message
    assert "twice" in refusal(OPENAI, head + b'"x":[[{"a":{"b":1,"\\u0062":2}}]]}').message
    assert OPENAI.decode_request(head + b'"x":[{"a":1},{"a":2}]}', "r").model == "m"


def test_server_held_threads_are_refused_so_that_clients_send_the_history() -> None:
    with pytest.raises(FeatureUnsupported) as caught:
        messages(thread={"type": "continue", "previous_message_id": "msg_1"})
    status, body = ANTHROPIC.encode_error(caught.value, "req_1")
    error = json.loads(body)["error"]
    assert (status, error["details"]["error_code"]) == (400, "thread_unsupported_request")


def test_a_cache_warming_request_of_no_tokens_is_valid_in_its_own_dialect() -> None:
    assert messages(max_tokens=0).max_output_tokens == 0


def test_what_decisions_need_is_learnt_from_a_chat_request() -> None:
    request = chat(
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "x"},
                    {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
                    {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA=="}},
                ],
            }
        ],
        tools=[{"type": "function", "function": {"name": "f"}}],
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": {}}},
        stream=True,
        stream_options={"include_usage": True},
        max_completion_tokens=12,
    )
    assert request.has_tools
    assert request.has_images
    assert request.has_documents
    assert request.wants_json_schema
    assert request.stream
    assert request.wants_stream_usage
    assert request.max_output_tokens == 12
    plain = chat()
    flags = (plain.has_tools, plain.has_images, plain.has_documents, plain.stream)
    assert not any((*flags, plain.wants_json_schema, plain.wants_stream_usage))
    assert plain.max_output_tokens is None


def test_what_decisions_need_is_learnt_from_a_messages_request() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    inner = [{"type": "image", "source": source}, {"type": "document", "source": source}]
    request = messages(
        messages=[
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t", "content": inner}],
            }
        ],
        tools=[{"name": "f", "input_schema": {"type": "object"}}],
        output_config={"format": {"type": "json_schema", "schema": {}}},
    )
    assert request.has_images
    assert request.has_documents
    assert request.has_tools
    assert request.wants_json_schema
    assert request.wants_stream_usage


def test_an_inline_image_counts_as_an_image_and_not_as_its_bytes() -> None:
    text = "word " * 400
    request = messages(
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": text},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
                    },
                ],
            }
        ]
    )
    least = len(text) // 4 + IMAGE_TOKENS + MARGIN_TOKENS
    # Beside attachments all text counts as if it were of the dearest sort.
    assert least <= request.input_tokens_estimate <= least + len(text) // 2 + 150


def test_unknown_kinds_of_content_pass_in_their_own_dialect() -> None:
    search = {"type": "search_result", "source": "https://a.example", "title": "t", "content": []}
    tool = {"type": "web_search_20260209", "name": "web_search"}
    messages(messages=[{"role": "user", "content": [search]}], tools=[tool])
    audio = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
    chat(messages=[{"role": "user", "content": [audio]}], tools=[{"type": "custom"}], n=3)
