"""Single events of streams that hold very much: one is read in one go, so it may not."""

import msgspec
import pytest

from gateway.dialects.registry import DIALECTS
from gateway.errors import UpstreamMalformed
from gateway.types import DialectName


CHUNK = b'data: {"id":"x","choices":[%b]}\n\n'
CHOICE = b'{"index":0,"delta":{"content":"a"}}'
CALLS = b'{"index":0,"delta":{"tool_calls":[%b]}}'
CALL = b'{"index":0,"function":{"name":"f"}}'
RESPONSE = b'data: {"type":"response.created","response":{"output":[%b]}}\n\n'
MESSAGE = b'data: {"type":"message_start","message":{"x":[%b]}}\n\n'


@pytest.mark.parametrize(
    ("dialect", "event"),
    [
        ("openai_chat", CHUNK % b",".join([CHOICE] * 2_000)),
        ("openai_chat", CHUNK % (CALLS % b",".join([CALL] * 2_000))),
        ("openai_completions", CHUNK % b",".join([b'{"index":0,"text":"a"}'] * 6_000)),
        ("openai_responses", RESPONSE % b",".join([b"{}"] * 20_000)),
        ("anthropic_messages", MESSAGE % b",".join([b"{}"] * 20_000)),
        ("openai_chat", b"data:\n" * 20_000 + b"\n"),
        ("openai_chat", b":\n" * 40_000 + b"\n"),
    ],
)
@pytest.mark.parametrize("slice_bytes", [4096, 1 << 20])
def test_one_event_of_more_than_can_be_read_in_one_go_is_refused(
    dialect: DialectName, event: bytes, slice_bytes: int
) -> None:
    decoder = DIALECTS[dialect].stream_decoder()
    slices = [event[at : at + slice_bytes] for at in range(0, len(event), slice_bytes)]
    with pytest.raises(UpstreamMalformed, match="too"):
        [decoder.feed(each) for each in slices]


@pytest.mark.parametrize(
    "said",
    [
        msgspec.json.encode({"index": 0, "delta": {"content": "one, two [three] " * 20_000}}),
        msgspec.json.encode({"index": 0, "delta": {"content": "a,\n" * 100_000}}),
        msgspec.json.encode(
            {"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [{"b": [1]}] * 9_000}}
        ),
    ],
    ids=["prose", "lines", "probabilities"],
)
def test_a_whole_answer_in_one_event_is_read(said: bytes) -> None:
    (event,) = DIALECTS["openai_chat"].stream_decoder().feed(CHUNK % said)
    assert event.has_content


def test_what_a_broken_stream_left_is_not_read_where_it_is_too_much() -> None:
    decoder = DIALECTS["openai_chat"].stream_decoder()
    decoder.feed((CHUNK % b",".join([CHOICE] * 2_000))[:-2])
    assert decoder.close() == []
