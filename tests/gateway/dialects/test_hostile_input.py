"""Garbage in, from either side: one named error out, and never another exception."""

import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.registry import DIALECTS
from gateway.errors import RequestInvalid, UpstreamFailed, UpstreamMalformed, UpstreamRefused
from gateway.types import Usage
from tests.gateway.dialects.samples import (
    ANTHROPIC,
    CHAT_TOOL_STREAM,
    MESSAGE_TOOL_STREAM,
    OPENAI,
    chat,
    messages,
    target,
)


RESPONSES = DIALECTS["openai_responses"]
WORDS = st.sampled_from(
    [
        *("model", "messages", "role", "content", "type", "text", "user", "assistant", "tool"),
        *("tools", "function", "name", "arguments", "tool_calls", "id", "max_tokens", "stream"),
        *("stream_options", "image_url", "url", "source", "data", "input", "tool_use", "delta"),
        *("tool_result", "tool_use_id", "choices", "message", "usage", "prompt_tokens", "system"),
        *("output_config", "format", "json_schema", "schema", "thinking", "metadata", "index"),
        *("message_start", "content_block_start", "content_block", "content_block_delta", "error"),
        *("message_delta", "finish_reason", "stop_reason", "logit_bias", "partial_json"),
    ]
)
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
    | st.text(max_size=4)
)
TREES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=20,
)


@st.composite
def near_requests(draw: st.DrawFn) -> bytes:
    """A valid request in which a few fields hold anything."""
    request = draw(st.sampled_from([CHAT, MESSAGES, RESPONSE]))
    tree = json.loads(request)
    for _ in range(draw(st.integers(1, 3))):
        spot = tree
        while isinstance(spot, dict | list) and spot:
            keys = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
            key = draw(st.sampled_from(keys))
            if draw(st.booleans()) or not isinstance(spot[key], dict | list):
                spot[key] = draw(TREES)
                break
            spot = spot[key]
    return json.dumps(tree).encode()


CHAT = chat(
    messages=[
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "r"},
    ],
    tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    tool_choice="auto",
    response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": {}}},
    stream=True,
    stream_options={"include_usage": True},
    stop=["x"],
    user="u",
    max_tokens=5,
).raw
MESSAGES = messages(
    system=[{"type": "text", "text": "s"}],
    messages=[
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "url", "url": "u"}},
                {"type": "document", "source": {"type": "text", "data": "x"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "a", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [{"type": "text", "text": "r"}],
                }
            ],
        },
    ],
    tools=[{"name": "f", "input_schema": {"type": "object"}}],
    tool_choice={"type": "auto"},
    thinking={"type": "enabled", "budget_tokens": 1024},
    output_config={"effort": "low", "format": {"type": "json_schema", "schema": {}}},
    metadata={"user_id": "u"},
).raw


RESPONSE = json.dumps(
    {
        "model": "m",
        "input": [
            {"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]},
            {"type": "reasoning", "summary": [{"text": "t"}], "encrypted_content": "x"},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "r"},
            {"type": "computer_call_output", "output": {"type": "computer_screenshot"}},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": {}}],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "s", "schema": {}}},
        "reasoning": {"effort": "low"},
        "include": ["message.output_text.logprobs"],
    }
).encode()


def journey(raw: bytes) -> None:
    """Whatever a client sends: refused as invalid, or fit for every kind of upstream."""
    for dialect in (OPENAI, ANTHROPIC, RESPONSES):
        with suppress(RequestInvalid):
            request = dialect.decode_request(raw, "r")
            for upstream in (OPENAI, ANTHROPIC, RESPONSES):
                with suppress(RequestInvalid):
                    sent = upstream.encode_request(request, target("prefill", "effort"), 10)
                    assert upstream.decode_request(sent.body, "r").model == "upstream-model"


@given(st.binary(max_size=60) | TREES.map(lambda tree: json.dumps(tree).encode()))
def test_any_garbage_of_a_client_is_an_invalid_request(raw: bytes) -> None:
    journey(raw)


@given(near_requests())
def test_a_nearly_valid_request_is_invalid_or_fit_for_every_upstream(raw: bytes) -> None:
    journey(raw)


@given(st.binary(max_size=60) | TREES.map(lambda tree: json.dumps(tree).encode()))
def test_any_garbage_of_an_upstream_is_malformed(raw: bytes) -> None:
    for dialect in (OPENAI, ANTHROPIC, RESPONSES):
        with suppress(UpstreamMalformed, UpstreamFailed):
            completion = dialect.decode_reply(raw)
            for caller in (OPENAI, ANTHROPIC):
                json.loads(caller.encode_reply(completion, dialect.name, chat()))
        assert isinstance(dialect.decode_error(400, raw, None), UpstreamRefused)
        decoder = dialect.stream_decoder()
        with suppress(UpstreamMalformed):
            decoder.feed(raw)
            decoder.feed(b"data: " + raw + b"\n\n")
        decoder.close()


@given(
    st.sampled_from([CHAT_TOOL_STREAM, MESSAGE_TOOL_STREAM]),
    st.integers(0, 2000),
    st.integers(0, 12),
    st.binary(max_size=4),
)
def test_a_damaged_stream_gives_events_or_malformed(
    stream: bytes, place: int, gap: int, junk: bytes
) -> None:
    damaged = stream[:place] + junk + stream[place + gap :]
    for dialect in (OPENAI, ANTHROPIC):
        decoder = dialect.stream_decoder()
        encoders = [
            OPENAI.stream_encoder(chat(stream=True), dialect.name),
            ANTHROPIC.stream_encoder(messages(stream=True), dialect.name),
        ]
        with suppress(UpstreamMalformed):
            events = decoder.feed(damaged) + decoder.close()
            for encoder in encoders:
                assert isinstance(encoder.encode(events) + encoder.finish("c", Usage()), bytes)


@given(TREES, st.lists(WORDS, max_size=6), WORDS)
def test_duplicate_keys_are_refused_at_any_depth(value: object, path: list[str], key: str) -> None:
    inner = json.dumps(value)
    body = f'{{"{key}":{inner},"other":0,"{key}":{inner}}}'
    for step in path:
        body = f'[{{"{step}":{body}}}]'
    raw = b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],"x_extra":%b}'
    for dialect in (OPENAI, ANTHROPIC):
        try:
            dialect.decode_request(raw % body.encode(), "r")
        except RequestInvalid:
            continue
        raise AssertionError(body)
