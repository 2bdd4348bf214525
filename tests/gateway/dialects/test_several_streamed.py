"""Streams of several answers: each that began has to end, and of bare text none may be missing."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.registry import DIALECTS
from gateway.errors import UpstreamMalformed
from gateway.types import CUT_SHORT, DialectName, StreamEvent, Usage
from tests.gateway.dialects.samples import chat


CHAT: DialectName = "openai_chat"
BARE: DialectName = "openai_completions"
DONE = b"data: [DONE]\n\n"
COUNTED: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}


def piece(dialect: DialectName, index: int, text: str, finish: str | None = None) -> dict[str, Any]:
    said = {"text": text} if dialect == BARE else {"delta": {"content": text}}
    return {"index": index, "finish_reason": finish, **said}


def chunk(*choices: dict[str, Any], **more: Any) -> bytes:
    tree = {"id": "c", "model": "m", "choices": list(choices)} | more
    return b"data: " + msgspec.json.encode(tree) + b"\n\n"


def last(dialect: DialectName, answers: int, *chunks: bytes) -> StreamEvent:
    """The event that the end of a stream is, behind its usage."""
    decoder = DIALECTS[dialect].stream_decoder(answers)
    events = decoder.feed(b"".join([*chunks, chunk(**COUNTED), DONE]))
    assert any(delta.usage is not None for event in events for delta in event.deltas)
    assert decoder.feed(chunk(piece(dialect, 0, "late")) + DONE) == []
    return events[-1]


def is_short(event: StreamEvent) -> bool:
    told = [(delta.kind, delta.text) for delta in event.deltas]
    assert event.is_terminal == (not told)
    assert told in ([], [("error", CUT_SHORT)])
    return bool(told)


@pytest.mark.parametrize("dialect", [CHAT, BARE])
def test_what_stands_beside_many_choices_is_not_told_once_for_each(dialect: DialectName) -> None:
    """Twenty thousand choices beside half a megabyte of anything would be ten gigabytes."""
    decoder = DIALECTS[dialect].stream_decoder(2)
    choices = [piece(dialect, 0, "a")] * 200
    with pytest.raises(UpstreamMalformed):
        decoder.feed(chunk(*choices, beside="x" * 500_000))
    several = DIALECTS[dialect].stream_decoder(2).feed(chunk(*choices[:2], beside="x" * 400_000))
    assert [event.raw.count(b"x" * 400_000) for event in several] == [1, 1]


@pytest.mark.parametrize("dialect", [CHAT, BARE])
@given(
    said=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "b"])), max_size=9),
    ends=st.sets(st.integers(0, 3)),
    together=st.booleans(),
)
def test_a_stream_is_whole_if_every_answer_that_began_says_why_it_ended(
    dialect: DialectName, said: list[tuple[int, str]], ends: set[int], *, together: bool
) -> None:
    pieces = [piece(dialect, index, text) for index, text in said]
    pieces += [piece(dialect, index, "", "stop") for index in sorted(ends)]
    chunks = [chunk(*pieces)] if together else [chunk(each) for each in pieces]
    begun = {index for index, _ in said} | ends
    end = last(dialect, 4, *chunks)

    is_cut = bool(ends) and begun != ends
    assert is_short(end) == (is_cut or (dialect == BARE and len(begun) < 4))
    assert end.is_unexplained == (end.is_terminal and not ends)


@pytest.mark.parametrize("dialect", [CHAT, BARE])
def test_one_answer_needs_no_reason(dialect: DialectName) -> None:
    said = [chunk(piece(dialect, 0, "a")), chunk(piece(dialect, 0, "b"))]
    assert not is_short(last(dialect, 1, *said))
    more = [*said, chunk(piece(dialect, 1, "c", "stop"))]
    assert is_short(last(dialect, 1, *more))
    assert is_short(last(dialect, 2, *more))


@pytest.mark.parametrize(("answers", "is_held"), [({}, True), ({"n": 1}, True), ({"n": 2}, False)])
def test_why_an_answer_stopped_waits_for_the_end_unless_there_are_others(
    answers: dict[str, Any], *, is_held: bool
) -> None:
    encoder = DIALECTS[CHAT].stream_encoder(chat(stream=True, **answers), CHAT)
    decoder = DIALECTS[CHAT].stream_decoder()
    sent = encoder.encode(
        decoder.feed(chunk(piece(CHAT, 0, "a")) + chunk(piece(CHAT, 0, "", "stop")))
    )
    assert (b'"stop"' in sent) != is_held
    assert b'"stop"' in sent + encoder.finish("", Usage())


def test_a_usage_that_was_left_out_has_the_name_of_the_answer_whatever_came_last() -> None:
    asked = chat(stream=True, stream_options={"include_usage": True})
    encoder = DIALECTS[CHAT].stream_encoder(asked, CHAT)
    decoder = DIALECTS[CHAT].stream_decoder()
    for batch in (chunk(piece(CHAT, 0, "a")), chunk(piece(CHAT, 0, "", "stop")), DONE):
        encoder.encode(decoder.feed(batch))
    told = encoder.finish("", Usage(3, 4, estimated=True)).split(b"\n\n")[1]
    tree = msgspec.json.decode(told.removeprefix(b"data: "))
    assert (tree["id"], tree["usage"]["completion_tokens"]) == ("c", 4)


def test_an_answer_that_only_ever_said_a_piece_of_text_has_begun() -> None:
    said = [
        chunk(piece(CHAT, 0, "a")),
        chunk(piece(CHAT, 1, "b")),
        chunk(piece(CHAT, 0, "", "stop")),
    ]
    assert is_short(last(CHAT, 2, *said))


def test_a_usage_that_cannot_be_read_and_says_no_more_is_not_passed_on() -> None:
    (event,) = DIALECTS[CHAT].stream_decoder().feed(chunk(usage={"prompt_tokens": "many"}))
    assert event.raw == b""


@pytest.mark.parametrize("dialect", [CHAT, BARE])
@pytest.mark.parametrize("given_up", [0, 1])
@pytest.mark.parametrize("counted", [{}, {"usage": COUNTED["usage"]}])
def test_an_answer_that_is_given_up_cuts_no_other_one_short(
    dialect: DialectName, given_up: int, counted: dict[str, Any]
) -> None:
    """Some servers tell a usage with every chunk, and that one is not the last."""
    other = 1 - given_up
    pieces = [
        *(piece(dialect, index, "a") for index in (0, 1)),
        piece(dialect, given_up, "", "abort"),
        piece(dialect, other, "b"),
        piece(dialect, other, "c", "stop"),
    ]
    decoder = DIALECTS[dialect].stream_decoder(2)
    events = decoder.feed(b"".join([*(chunk(each, **counted) for each in pieces), DONE]))

    said = [(d.index, d.text) for event in events for d in event.deltas if d.kind == "text"]
    assert said == [(0, "a"), (1, "a"), (other, "b"), (other, "c")]
    assert [(delta.kind, delta.text) for delta in events[-1].deltas] == [("error", "abort")]
    assert any(d.usage is not None for event in events for d in event.deltas) == bool(counted)


@pytest.mark.parametrize("dialect", [CHAT, BARE])
def test_what_was_counted_of_answers_that_were_all_given_up_is_told_with_the_error(
    dialect: DialectName,
) -> None:
    decoder = DIALECTS[dialect].stream_decoder(2)
    pieces = [piece(dialect, index, "a", "abort") for index in (0, 1)]
    events = decoder.feed(b"".join([chunk(each, usage=COUNTED["usage"]) for each in pieces]))
    assert [delta.kind for delta in events[-1].deltas] == ["error", "usage"]
