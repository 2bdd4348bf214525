"""What holds for every conversation and every stream: there and back, and cut anywhere."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.registry import DIALECTS
from gateway.types import ChatRequest, DialectName, StreamEvent
from tests.conformance.probes import BASES
from tests.gateway.dialects.samples import (
    CHAT_TEXT_STREAM,
    CHAT_TOOL_STREAM,
    MESSAGE_TEXT_STREAM,
    MESSAGE_TOOL_STREAM,
    charged,
    target,
)
from tests.gateway.dialects.test_round_trips import comparable, conversations
from tests.upstream_responses import openai_response_events
from tests.upstreams import Answer


ABLE = target(
    *("mid_system", "effort", "reasoning_effort", "json_schema", "cache_breakpoints"), model="m"
)
RESPONSE_STREAM = b"".join(openai_response_events(Answer(text="one two three"), {"model": "m"}))
STREAMS: list[tuple[DialectName, bytes]] = [
    ("openai_chat", CHAT_TEXT_STREAM),
    ("openai_chat", CHAT_TOOL_STREAM),
    ("anthropic_messages", MESSAGE_TEXT_STREAM),
    ("anthropic_messages", MESSAGE_TOOL_STREAM),
    ("openai_responses", RESPONSE_STREAM),
]
CALLERS: tuple[DialectName, ...] = ("openai_chat", "anthropic_messages", "openai_responses")
NO_WORD_IN_RESPONSES = ("stop",)
ENDS = (b"[DONE]", b"message_stop", b"response.completed", b"response.incomplete")


def crossed(body: Mapping[str, Any], source: DialectName, wanted: DialectName) -> dict[str, Any]:
    request = DIALECTS[source].decode_request(json.dumps(body).encode(), "r")
    upstream = DIALECTS[wanted].encode_request(request, ABLE, 1000)
    assert upstream.dropped == ()
    return dict(json.loads(upstream.body))


def plain(body: dict[str, Any]) -> dict[str, Any]:
    """What responses have a word for."""
    return {name: value for name, value in body.items() if name not in NO_WORD_IN_RESPONSES}


@given(conversations())
def test_chat_to_responses_and_back_changes_nothing(body: dict[str, Any]) -> None:
    asked = plain(body)
    there = crossed(asked, "openai_chat", "openai_responses")
    back = crossed(there, "openai_responses", "openai_chat")

    assert comparable(back) == comparable(asked)


@given(conversations())
def test_messages_to_responses_and_back_changes_nothing(body: dict[str, Any]) -> None:
    asked = crossed(plain(body), "openai_chat", "anthropic_messages")
    there = crossed(asked, "anthropic_messages", "openai_responses")
    back = crossed(there, "openai_responses", "anthropic_messages")
    assert back == asked


@given(conversations())
def test_one_step_or_two_make_the_same_message(body: dict[str, Any]) -> None:
    asked = plain(body)
    straight = crossed(asked, "openai_chat", "anthropic_messages")
    around = crossed(
        crossed(asked, "openai_chat", "openai_responses"), "openai_responses", "anthropic_messages"
    )

    assert around == straight


def request_of(dialect: DialectName) -> ChatRequest:
    body = BASES[dialect] | {"stream": True}
    if dialect == "openai_chat":
        body |= {"stream_options": {"include_usage": True}}
    return DIALECTS[dialect].decode_request(json.dumps(body).encode(), "req_0000000003e8abcdef")


def carried(source: DialectName, caller: DialectName, pieces: list[bytes]) -> tuple[bytes, bytes]:
    """What a caller gets of a stream that comes in pieces: until its end, and at its end."""
    decoder = DIALECTS[source].stream_decoder()
    encoder = DIALECTS[caller].stream_encoder(request_of(caller), source)
    events: list[StreamEvent] = []
    sent = []
    for piece in pieces:
        batch = decoder.feed(piece)
        events += batch
        sent.append(encoder.encode(batch))
    if not any(event.is_terminal for event in events):
        return b"".join(sent), b""
    return b"".join(sent), encoder.finish("", charged(events))


def pieces_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    return [stream[start:end] for start, end in itertools.pairwise(places)]


@given(
    st.sampled_from(STREAMS),
    st.sampled_from(CALLERS),
    st.lists(st.integers(0, 10_000), max_size=12),
)
def test_any_chunking_of_any_stream_gives_every_caller_the_same_bytes(
    sample: tuple[DialectName, bytes], caller: DialectName, cuts: list[int]
) -> None:
    source, stream = sample
    whole = carried(source, caller, [stream])
    cut = carried(source, caller, pieces_of(stream, cuts))

    assert whole[1]
    assert b"".join(cut) == b"".join(whole)


@given(st.sampled_from(STREAMS), st.sampled_from(CALLERS), st.integers(0, 10_000))
def test_a_stream_that_breaks_anywhere_has_no_end_for_any_caller_but_one_error(
    sample: tuple[DialectName, bytes], caller: DialectName, place: int
) -> None:
    source, stream = sample
    broken = stream[: place % (len(stream.rstrip(b"\n")) - 8)]
    sent, ending = carried(source, caller, [broken])

    assert ending == b""
    assert not any(word in sent for word in ENDS)
    assert b'"finish_reason":"' not in sent
    assert b'"stop_reason":"' not in sent
