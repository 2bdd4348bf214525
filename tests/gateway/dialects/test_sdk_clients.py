"""The official SDKs read over HTTP what the dialects write, with their own stream helpers."""

from typing import Any

import anthropic
import openai
import pytest

from gateway import errors
from gateway.types import DialectName, Usage
from tests.gateway.dialects.loopback import anthropic_client, openai_client
from tests.gateway.dialects.samples import (
    ANTHROPIC,
    CHAT_TEXT_STREAM,
    CHAT_TOOL_STREAM,
    MESSAGE_TEXT_STREAM,
    MESSAGE_TOOL_STREAM,
    OPENAI,
    chat,
    decoded,
    messages,
    recoded,
)


EVENT_STREAM = "text/event-stream"
WITH_USAGE = chat(stream=True, stream_options={"include_usage": True})
MESSAGES = messages(stream=True)
ASK_CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
ASK_MESSAGES: dict[str, Any] = ASK_CHAT | {"max_tokens": 100}
TEXT_STREAMS: list[tuple[DialectName, bytes]] = [
    ("openai_chat", CHAT_TEXT_STREAM),
    ("anthropic_messages", MESSAGE_TEXT_STREAM),
]
TOOL_STREAMS: list[tuple[DialectName, bytes]] = [
    ("openai_chat", CHAT_TOOL_STREAM),
    ("anthropic_messages", MESSAGE_TOOL_STREAM),
]


@pytest.mark.parametrize(("source", "stream"), TEXT_STREAMS)
@pytest.mark.parametrize("step_bytes", [0, 5])
def test_the_openai_stream_helper_reads_text_from_either_upstream(
    source: DialectName, stream: bytes, step_bytes: int
) -> None:
    body = recoded(source, stream, WITH_USAGE)
    with (
        openai_client(body, content_type=EVENT_STREAM, step_bytes=step_bytes) as client,
        client.chat.completions.stream(
            **ASK_CHAT, stream_options={"include_usage": True}
        ) as events,
    ):
        final = events.get_final_completion()
    assert final.choices[0].message.content == "Grüße \u2028 world"
    assert final.choices[0].finish_reason == "stop"
    assert final.usage is not None
    assert final.usage.total_tokens == 57


@pytest.mark.parametrize(("source", "stream"), TOOL_STREAMS)
def test_the_openai_stream_helper_reads_tool_calls_from_either_upstream(
    source: DialectName, stream: bytes
) -> None:
    body = recoded(source, stream, WITH_USAGE)
    with (
        openai_client(body, content_type=EVENT_STREAM) as client,
        client.chat.completions.stream(**ASK_CHAT) as events,
    ):
        message = events.get_final_completion().choices[0].message
    assert message.content == "Let me look."
    calls = [
        (call.id[-2:], call.function.name, call.function.arguments)
        for call in message.tool_calls or []
    ]
    # An upstream of the same dialect says what it likes.
    nothing = "" if source == "openai_chat" else "{}"
    assert calls == [("_a", "weather", '{"city":"Bonn"}'), ("_b", "clock", nothing)]


@pytest.mark.parametrize(("source", "stream"), TEXT_STREAMS)
@pytest.mark.parametrize("step_bytes", [0, 5])
def test_the_anthropic_stream_helper_reads_text_from_either_upstream(
    source: DialectName, stream: bytes, step_bytes: int
) -> None:
    body = recoded(source, stream, MESSAGES)
    with (
        anthropic_client(body, content_type=EVENT_STREAM, step_bytes=step_bytes) as client,
        client.messages.stream(**ASK_MESSAGES) as events,
    ):
        final = events.get_final_message()
    assert final.content[0].type == "text"
    assert final.content[0].text == "Grüße \u2028 world"
    assert final.stop_reason == "end_turn"
    usage = final.usage
    total = usage.input_tokens + (usage.cache_read_input_tokens or 0)
    total += usage.cache_creation_input_tokens or 0
    assert (total, usage.output_tokens) in {(50, 7), (45, 12)}


@pytest.mark.parametrize(("source", "stream"), TOOL_STREAMS)
def test_the_anthropic_stream_helper_reads_tool_calls_from_either_upstream(
    source: DialectName, stream: bytes
) -> None:
    body = recoded(source, stream, MESSAGES)
    with (
        anthropic_client(body, content_type=EVENT_STREAM) as client,
        client.messages.stream(**ASK_MESSAGES) as events,
    ):
        final = events.get_final_message()
    calls = [block for block in final.content if block.type == "tool_use"]
    assert [(call.name, call.input) for call in calls] == [
        ("weather", {"city": "Bonn"}),
        ("clock", {}),
    ]
    assert final.stop_reason == "tool_use"


def broken(source: DialectName, stream: bytes, request: Any) -> bytes:
    """Part of a stream, then our error event."""
    dialect = OPENAI if request.dialect == "openai_chat" else ANTHROPIC
    encoder = dialect.stream_encoder(request, source)
    sent = encoder.encode(decoded(source, stream)[:4])
    return sent + encoder.fail(errors.StreamBroken("The stream broke."), "req_1")


@pytest.mark.parametrize(("source", "stream"), TEXT_STREAMS)
def test_a_broken_stream_raises_in_the_official_clients(source: DialectName, stream: bytes) -> None:
    body = broken(source, stream, WITH_USAGE)
    with openai_client(body, content_type=EVENT_STREAM) as client:
        chunks = client.chat.completions.create(**ASK_CHAT, stream=True)
        with pytest.raises(openai.APIError, match="The stream broke"):
            list(chunks)
    body = broken(source, stream, MESSAGES)
    with (
        anthropic_client(body, content_type=EVENT_STREAM) as other,
        other.messages.stream(**ASK_MESSAGES) as events,
        pytest.raises(anthropic.APIStatusError, match="The stream broke"),
    ):
        events.until_done()


def test_pings_before_and_within_a_stream_disturb_no_client() -> None:
    for source, stream in TEXT_STREAMS:
        encoder = OPENAI.stream_encoder(WITH_USAGE, source)
        body = encoder.ping() + encoder.encode(decoded(source, stream)) + encoder.ping()
        with openai_client(body + encoder.finish("", Usage()), content_type=EVENT_STREAM) as client:
            chunks = list(client.chat.completions.create(**ASK_CHAT, stream=True))
        assert chunks[0].choices[0].delta.role == "assistant"
        encoder = ANTHROPIC.stream_encoder(MESSAGES, source)
        body = encoder.ping() + encoder.encode(decoded(source, stream)) + encoder.ping()
        with (
            anthropic_client(
                body + encoder.finish("", Usage()), content_type=EVENT_STREAM
            ) as other,
            other.messages.stream(**ASK_MESSAGES) as events,
        ):
            assert events.get_final_text() == "Grüße \u2028 world"


@pytest.mark.parametrize(
    ("error", "in_openai", "in_anthropic"),
    [
        (
            errors.RequestInvalid("m", parameter="n"),
            openai.BadRequestError,
            anthropic.BadRequestError,
        ),
        (errors.Unauthenticated("m"), openai.AuthenticationError, anthropic.AuthenticationError),
        (errors.PolicyDenied("m"), openai.PermissionDeniedError, anthropic.PermissionDeniedError),
        (errors.ModelUnknown("m"), openai.NotFoundError, anthropic.NotFoundError),
        (errors.Exhausted("m"), openai.RateLimitError, anthropic.RateLimitError),
        (errors.NoTargetAvailable("m"), openai.InternalServerError, anthropic.InternalServerError),
    ],
)
def test_errors_raise_the_right_exceptions_in_the_official_clients(
    error: errors.GatewrightError,
    in_openai: type[openai.APIStatusError],
    in_anthropic: type[anthropic.APIStatusError],
) -> None:
    status, body = OPENAI.encode_error(error, "req_1")
    with openai_client(body, status=status) as client, pytest.raises(in_openai) as caught:
        client.chat.completions.create(**ASK_CHAT)
    assert caught.value.code == error.code
    status, body = ANTHROPIC.encode_error(error, "req_1")
    with anthropic_client(body, status=status) as other, pytest.raises(in_anthropic) as raised:
        other.messages.create(**ASK_MESSAGES)
    assert raised.value.api_message == "m"


def test_the_anthropic_client_reads_the_code_that_makes_it_resend_the_history() -> None:
    with pytest.raises(errors.FeatureUnsupported) as caught:
        messages(thread={"type": "create"})
    status, body = ANTHROPIC.encode_error(caught.value, "req_1")
    with (
        anthropic_client(body, status=status) as client,
        pytest.raises(anthropic.BadRequestError) as raised,
    ):
        client.messages.create(**ASK_MESSAGES)
    assert raised.value.error_code == "thread_unsupported_request"
