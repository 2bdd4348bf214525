"""When nothing of a stream is missing but its terminal event, and what that is then."""

import msgspec
import pytest

from gateway.dialects.registry import DIALECTS
from gateway.ports import StreamDecoder
from gateway.types import DialectName
from tests.upstream_responses import openai_response_events
from tests.upstreams import Answer


ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant"}}]}
COUNT = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
COUNTED = {"choices": [], "usage": COUNT}
UNREADABLE = {"choices": [], "usage": {"prompt_tokens": "three"}}


def word(answer: int = 0, **more: object) -> dict[str, object]:
    return {"choices": [{"index": answer, "delta": {"content": "one"}}], **more}


def stop(answer: int = 0, reason: str = "stop", **more: object) -> dict[str, object]:
    return {"choices": [{"index": answer, "delta": {}, "finish_reason": reason}], **more}


def fed(dialect: DialectName, answers: int, *trees: dict[str, object]) -> StreamDecoder:
    decoder = DIALECTS[dialect].stream_decoder(answers)
    for tree in trees:
        decoder.feed(b"data: " + msgspec.json.encode({"id": "x", **tree}) + b"\n\n")
    return decoder


@pytest.mark.parametrize(
    ("answers", "trees", "is_told"),
    [
        (1, (ROLE, word()), False),
        (1, (ROLE, word(), stop()), False),
        (1, (ROLE, word(), COUNTED), False),
        (1, (ROLE, word(), stop(), COUNTED), True),
        (1, (ROLE, word(), stop(usage=COUNT)), True),
        (1, (ROLE, word(usage=COUNT), stop()), False),
        (1, (ROLE, word(), stop(), UNREADABLE), False),
        (2, (word(0), word(1), stop(0), stop(1), COUNTED), True),
        (2, (word(0), word(1), stop(0), COUNTED), False),
        (2, (word(0), stop(0), COUNTED), False),
        (1, (word(0), word(1), stop(0), COUNTED), False),
        (1, (ROLE, word(), stop(reason="error"), COUNTED), False),
    ],
)
def test_chunks_are_told_with_every_reason_and_a_count_after_the_last(
    answers: int, trees: tuple[dict[str, object], ...], *, is_told: bool
) -> None:
    decoder = fed("openai_chat", answers, *trees)
    assert decoder.is_told == is_told
    if is_told:
        (end,) = decoder.conclude()
        assert (end.raw, end.is_terminal, end.is_unexplained) == (b"data: [DONE]\n\n", True, False)


def test_a_message_is_told_with_its_reason_and_its_count() -> None:
    opening = {"usage": {"input_tokens": 3, "output_tokens": 1}, "id": "m", "model": "m"}
    trees: list[dict[str, object]] = [
        {"type": "message_start", "message": opening},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 1}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    ]
    assert not fed("anthropic_messages", 1, *trees).is_told

    trees[-1] |= {"usage": {"output_tokens": 2}}
    decoder = fed("anthropic_messages", 1, *trees)
    assert decoder.is_told
    (end,) = decoder.conclude()
    assert (end.is_terminal, end.is_unexplained) == (True, False)
    assert end.raw == b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


def test_what_tells_why_a_response_stopped_is_its_end() -> None:
    decoder = DIALECTS["openai_responses"].stream_decoder()
    for event in openai_response_events(Answer(), {})[:-1]:
        assert not any(each.is_terminal for each in decoder.feed(event))
    assert (decoder.is_told, decoder.conclude()) == (False, [])
