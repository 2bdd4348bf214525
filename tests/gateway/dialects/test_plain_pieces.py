"""Pieces that say nothing but words: read past the parser, and never otherwise than by it."""

import json
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.dialects.plain_pieces import LESSONS_MAX, PIECE_BYTES_MAX, PlainPieces
from gateway.dialects.registry import DIALECTS
from gateway.dialects.sse import Splitter
from gateway.errors import UpstreamMalformed
from gateway.ports import StreamDecoder
from gateway.tally import Tally
from gateway.types import Delta, DialectName, StreamEvent


Piece = Callable[[str, int, bool], bytes]


def _event(said: object, name: str = "", *, ascii_only: bool = False) -> bytes:
    head = f"event: {name}\n" if name else ""
    data = json.dumps(said, ensure_ascii=ascii_only, separators=(",", ":"))
    return f"{head}data: {data}\n\n".encode()


def _chat(text: str, index: int = 0, ascii_only: bool = False, **more: object) -> bytes:
    choice = {"index": index, "delta": {"content": text}, "finish_reason": None, **more}
    return _event({"id": "c", "model": "m", "choices": [choice]}, ascii_only=ascii_only)


def _completion(text: str, index: int = 0, ascii_only: bool = False) -> bytes:
    choice = {"index": index, "text": text, "finish_reason": None}
    return _event({"id": "c", "model": "m", "choices": [choice]}, ascii_only=ascii_only)


def _message(text: str, index: int = 0, ascii_only: bool = False) -> bytes:
    said = {
        "type": "content_block_delta",
        "index": index,
        "delta": {"type": "text_delta", "text": text},
    }
    return _event(said, "content_block_delta", ascii_only=ascii_only)


CHAT_START = _event({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}}]})
CHAT_STOP = _event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
CHAT_USAGE = _event(
    {"id": "c", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}}
)
TOOL = {"index": 0, "id": "t", "function": {"name": "f", "arguments": "{}"}}
CHAT_CALL = _event({"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [TOOL]}}]})
DONE = b"data: [DONE]\n\n"
BLOCK = _event(
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    "content_block_start",
)
BLOCK_END = _event({"type": "content_block_stop", "index": 0}, "content_block_stop")
MESSAGE_DELTA = _event(
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
    "message_delta",
)
MESSAGE_STOP = _event({"type": "message_stop"}, "message_stop")
COMMENT = b": awake\n\n"

PIECES: dict[DialectName, Piece] = {
    "openai_chat": _chat,
    "openai_completions": _completion,
    "anthropic_messages": _message,
}
BEGINNINGS: dict[DialectName, bytes] = {
    "openai_chat": CHAT_START,
    "openai_completions": _completion(""),
    "anthropic_messages": BLOCK,
}
OTHERS: dict[DialectName, tuple[bytes, ...]] = {
    "openai_chat": (CHAT_START, CHAT_STOP, CHAT_USAGE, CHAT_CALL, DONE, COMMENT),
    "openai_completions": (CHAT_USAGE, DONE, COMMENT),
    "anthropic_messages": (BLOCK, BLOCK_END, MESSAGE_DELTA, MESSAGE_STOP, COMMENT),
}
STREAMED = tuple(PIECES)

words = st.one_of(
    st.sampled_from(
        ["a", "m", "c", " the", ",", ":", "{", '"', "\\", "\n", "", "é", "\u2028", "0"]
    ),
    st.text(max_size=6),
)


def _fed(decoder: StreamDecoder, reads: list[bytes]) -> list[StreamEvent]:
    """What the parser makes of all of them; up to where it refuses."""
    events: list[StreamEvent] = []
    for data in reads:
        try:
            events += decoder.feed(data)
        except UpstreamMalformed:
            events.append(StreamEvent(b"refused", ()))
            break
    return events


def _read_plainly(decoder: StreamDecoder, reads: list[bytes]) -> tuple[list[StreamEvent], int]:
    """The same where words alone are looked for first, and how often they were found."""
    events: list[StreamEvent] = []
    found = 0
    for data in reads:
        text = decoder.plain_text(data)
        if text is not None:
            found += 1
            events.append(StreamEvent(data, (Delta("text", text),), has_content=True))
            continue
        try:
            events += decoder.feed(data)
        except UpstreamMalformed:
            events.append(StreamEvent(b"refused", ()))
            break
    return events, found


def _said(events: list[StreamEvent]) -> list[object]:
    return [
        (e.raw, e.has_content, e.is_closing, e.is_terminal, [(d.kind, d.text) for d in e.deltas])
        for e in events
    ]


@st.composite
def cut_streams(draw: st.DrawFn) -> tuple[DialectName, list[bytes]]:
    """Some dialect's events in any order, in reads that end where they do, and elsewhere."""
    dialect = draw(st.sampled_from(STREAMED))
    piece, others = PIECES[dialect], OTHERS[dialect]
    made = st.builds(piece, words, st.sampled_from([0, 0, 0, 1]), st.booleans())
    events = draw(st.lists(st.one_of(made, made, made, st.sampled_from(others)), max_size=14))
    reads = [BEGINNINGS[dialect]]
    for event in events:
        cut = draw(st.one_of(st.none(), st.none(), st.integers(1, len(event) - 1)))
        reads += [event] if cut is None else [event[:cut], event[cut:]]
    if draw(st.booleans()) and len(reads) > 2:
        reads[1:3] = [reads[1] + reads[2]]
    return dialect, reads


@given(cut_streams())
@example(("openai_chat", [CHAT_START, _chat("a"), _chat("b"), CHAT_STOP, _chat("c"), DONE]))
@example(("openai_chat", [CHAT_START, _chat("a"), b"data: [1,\n", _chat("b")]))
@example(("anthropic_messages", [BLOCK, _message("a"), BLOCK_END, _message("b"), MESSAGE_STOP]))
def test_words_alone_are_what_the_parser_finds(stream: tuple[DialectName, list[bytes]]) -> None:
    dialect, reads = stream
    parsed = _fed(DIALECTS[dialect].stream_decoder(), reads)
    plain, _ = _read_plainly(DIALECTS[dialect].stream_decoder(), reads)
    assert _said(plain) == _said(parsed)


@given(cut_streams())
def test_counting_words_alone_counts_the_same(stream: tuple[DialectName, list[bytes]]) -> None:
    dialect, reads = stream
    one, other = Tally(500), Tally(500)
    for data in reads:
        decoder = DIALECTS[dialect].stream_decoder()
        events = _fed(decoder, [BEGINNINGS[dialect], data])[1:]
        one.add(events)
        for event in events:
            if [delta.kind for delta in event.deltas] == ["text"] and event.deltas[0].text:
                other.add_plain(event.deltas[0].text, event.raw)
            else:
                other.add([event])
    assert one.content == other.content
    assert one.usage(10) == other.usage(10)


@pytest.mark.parametrize("dialect", STREAMED)
def test_an_ordinary_stream_is_parsed_once(dialect: DialectName) -> None:
    piece = PIECES[dialect]
    reads = [BEGINNINGS[dialect], *(piece(f" word{n}", 0, False) for n in range(50))]
    _, found = _read_plainly(DIALECTS[dialect].stream_decoder(), reads)
    assert found == 49


@pytest.mark.parametrize("dialect", STREAMED)
@pytest.mark.parametrize(
    "text", ['he said "no"', "back\\slash", "two\nlines", "", "x" * PIECE_BYTES_MAX, "\x7f"]
)
def test_other_words_are_left_to_the_parser(dialect: DialectName, text: str) -> None:
    decoder, piece = DIALECTS[dialect].stream_decoder(), PIECES[dialect]
    decoder.feed(BEGINNINGS[dialect])
    decoder.feed(piece("one", 0, False))
    assert decoder.plain_text(piece("two", 0, False)) == "two"
    assert decoder.plain_text(piece(text, 0, False)) is None
    assert decoder.plain_text(piece("three", 0, False)) == "three"


@pytest.mark.parametrize(
    ("dialect", "end"), [("openai_chat", CHAT_STOP), ("anthropic_messages", MESSAGE_DELTA)]
)
def test_words_behind_the_reason_to_stop_are_never_plain(dialect: DialectName, end: bytes) -> None:
    decoder, piece = DIALECTS[dialect].stream_decoder(), PIECES[dialect]
    for data in (BEGINNINGS[dialect], piece("one", 0, False), end, piece("two", 0, False)):
        decoder.feed(data)
    assert decoder.plain_text(piece("three", 0, False)) is None


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(_chat("m"), id="the words are a model's name too"),
        pytest.param(_chat("é", ascii_only=True), id="another way to write the words"),
        pytest.param(_chat('"'), id="a quote"),
        pytest.param(_chat(","), id="what stands between strings"),
        pytest.param(_chat("a", logprobs={"content": [{"token": "a"}]}), id="said twice"),
    ],
)
def test_where_words_cannot_be_told_from_other_strings_nothing_is_learned(first: bytes) -> None:
    decoder = DIALECTS["openai_chat"].stream_decoder()
    decoder.feed(CHAT_START)
    decoder.feed(first)
    assert decoder.plain_text(_chat("b")) is None


def test_a_piece_that_writes_words_another_way_teaches_no_wrong_place() -> None:
    decoder = DIALECTS["openai_chat"].stream_decoder()
    decoder.feed(CHAT_START)
    decoder.feed(b'data: {"model":"a","choices":[{"index":0,"delta":{"content":"\\u0061"}}]}\n\n')
    other = b'data: {"model":"b","choices":[{"index":0,"delta":{"content":"\\u0061"}}]}\n\n'
    assert decoder.plain_text(other) is None
    assert decoder.feed(other)[0].deltas[0].text == "a"


def test_a_stream_whose_pieces_are_never_plain_is_not_searched_for_ever() -> None:
    pieces = PlainPieces(Splitter())
    for _ in range(LESSONS_MAX):
        pieces.learn(_chat("m"), "m")
    pieces.learn(_chat("a"), "a")
    assert pieces.text_of(_chat("b")) is None
