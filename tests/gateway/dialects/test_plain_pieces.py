"""Pieces that say nothing but words: read past the parser, and never otherwise than by it."""

import json
from collections.abc import Callable
from itertools import groupby

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.dialects.plain_pieces import LESSONS_MAX, READ_BYTES_MAX, PlainPieces
from gateway.dialects.registry import DIALECTS
from gateway.dialects.sse import Splitter
from gateway.errors import StreamBroken, UpstreamMalformed
from gateway.ports import StreamDecoder
from gateway.tally import Tally
from gateway.types import EVENT_END, Delta, DialectName, StreamEvent


Piece = Callable[[str, int, bool, int], bytes]
"""Words, whose they are, whether only in ASCII, and which number and padding it has."""
PADDING = "aB3xYzq9"


def _event(said: object, name: str = "", *, ascii_only: bool = False) -> bytes:
    head = f"event: {name}\n" if name else ""
    data = json.dumps(said, ensure_ascii=ascii_only, separators=(",", ":"))
    return f"{head}data: {data}\n\n".encode()


def _chat(text: str, index: int = 0, ascii_only: bool = False, **more: object) -> bytes:
    choice = {"index": index, "delta": {"content": text}, "finish_reason": None, **more}
    return _event({"id": "c", "model": "m", "choices": [choice]}, ascii_only=ascii_only)


def _plain_chat(text: str, index: int = 0, ascii_only: bool = False, _: int = 0) -> bytes:
    return _chat(text, index, ascii_only)


def _padded_chat(text: str, index: int = 0, ascii_only: bool = False, place: int = 0) -> bytes:
    choice = {"index": index, "delta": {"content": text}, "finish_reason": None}
    said = {"id": "c", "model": "m", "choices": [choice], "obfuscation": PADDING[: place % 9]}
    return _event(said, ascii_only=ascii_only)


def _response(text: str, index: int = 0, ascii_only: bool = False, place: int = 0) -> bytes:
    kind = "response.output_text.delta"
    said = {"type": kind, "sequence_number": place, "item_id": "i", "output_index": index}
    said |= {"delta": text, "logprobs": [], "obfuscation": PADDING[: place % 9]}
    return _event(said, kind, ascii_only=ascii_only)


def _numbered_last(text: str, index: int = 0, ascii_only: bool = False, place: int = 0) -> bytes:
    kind = "response.output_text.delta"
    said = {"delta": text, "output_index": index, "sequence_number": place, "type": kind}
    return _event(said, kind, ascii_only=ascii_only)


def _completion(text: str, index: int = 0, ascii_only: bool = False, _: int = 0) -> bytes:
    choice = {"index": index, "text": text, "finish_reason": None}
    return _event({"id": "c", "model": "m", "choices": [choice]}, ascii_only=ascii_only)


def _message(text: str, index: int = 0, ascii_only: bool = False, _: int = 0) -> bytes:
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

RESPONSE_START = _event(
    {"type": "response.created", "sequence_number": 0, "response": {"object": "response"}},
    "response.created",
)
RESPONSE_ITEM = _event(
    {"type": "response.output_item.done", "sequence_number": 7, "item": {"type": "message"}},
    "response.output_item.done",
)
RESPONSE_THOUGHT = _event(
    {"type": "response.reasoning_text.delta", "sequence_number": 4, "delta": "Hm"},
    "response.reasoning_text.delta",
)
RESPONSE_END = _event(
    {"type": "response.completed", "sequence_number": 9, "response": {"object": "response"}},
    "response.completed",
)

CHATS = (CHAT_START, CHAT_STOP, CHAT_USAGE, CHAT_CALL, DONE, COMMENT)
RESPONSES = (RESPONSE_ITEM, RESPONSE_THOUGHT, RESPONSE_END, COMMENT)
SHAPES: dict[str, tuple[DialectName, Piece, bytes, tuple[bytes, ...]]] = {
    "chat": ("openai_chat", _plain_chat, CHAT_START, CHATS),
    "padded chat": ("openai_chat", _padded_chat, CHAT_START, CHATS),
    "completion": (
        "openai_completions",
        _completion,
        _completion(""),
        (CHAT_USAGE, DONE, COMMENT),
    ),
    "message": (
        "anthropic_messages",
        _message,
        BLOCK,
        (BLOCK, BLOCK_END, MESSAGE_DELTA, MESSAGE_STOP, COMMENT),
    ),
    "response": ("openai_responses", _response, RESPONSE_START, RESPONSES),
    "response numbered last": ("openai_responses", _numbered_last, RESPONSE_START, RESPONSES),
}
"""Ways to say words: their dialect, a piece, what comes first, and what else may come."""
BEGINNINGS = {dialect: beginning for dialect, _, beginning, _ in SHAPES.values()}

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
        words = decoder.plain_words(data)
        if words is not None:
            found += 1
            events += [
                StreamEvent(raw + EVENT_END, (Delta("text", text),), has_content=True)
                for raw, text in zip(data.split(EVENT_END), words, strict=False)
            ]
            assert data.count(EVENT_END) == len(words)
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


def _is_plain(event: StreamEvent) -> bool:
    return [delta.kind for delta in event.deltas] == ["text"] and bool(event.deltas[0].text)


@st.composite
def cut_streams(draw: st.DrawFn) -> tuple[DialectName, list[bytes]]:
    """Some dialect's events in any order, in reads that end where they do, and elsewhere."""
    dialect, piece, beginning, others = draw(st.sampled_from(list(SHAPES.values())))
    place = st.integers(0, 10**9)
    made = st.builds(piece, words, st.sampled_from([0, 0, 0, 1]), st.booleans(), place)
    events = draw(st.lists(st.one_of(made, made, made, st.sampled_from(others)), max_size=14))
    reads = [beginning]
    for event in events:
        cut = draw(st.one_of(st.none(), st.none(), st.integers(1, len(event) - 1)))
        reads += [event] if cut is None else [event[:cut], event[cut:]]
    for at in range(len(reads) - 2, 0, -1):
        if draw(st.booleans()):
            reads[at : at + 2] = [reads[at] + reads[at + 1]]
    return dialect, reads


@given(cut_streams())
@example(("openai_chat", [CHAT_START, _chat("a"), _chat("b"), CHAT_STOP, _chat("c"), DONE]))
@example(("openai_chat", [CHAT_START, _chat("a"), b"data: [1,\n", _chat("b")]))
@example(("openai_chat", [CHAT_START, _chat("a"), _chat("b") + _chat("") + _chat("c")]))
@example(("openai_chat", [CHAT_START, _chat("a"), _chat("b") + CHAT_STOP + _chat("c")]))
@example(("openai_chat", [CHAT_START, _chat("a"), _chat("b") + _chat("c", 1) + _chat("d")]))
@example(("openai_chat", [CHAT_START, _chat("a"), _chat("b\xc3") + _chat("\xa9")]))
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
        for is_plain, some in groupby(events, _is_plain):
            alike = list(some)
            if is_plain:
                raw = b"".join(event.raw for event in alike)
                other.add_plain([event.deltas[0].text for event in alike], raw)
            else:
                other.add(alike)
    assert one.content == other.content
    assert one.usage(10) == other.usage(10)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_ordinary_stream_is_parsed_once(shape: str) -> None:
    dialect, piece, beginning, _ = SHAPES[shape]
    reads = [beginning, *(piece(f" word{n}", 0, False, n) for n in range(50))]
    _, found = _read_plainly(DIALECTS[dialect].stream_decoder(), reads)
    assert found == 49


@pytest.mark.parametrize("shape", SHAPES)
def test_pieces_that_come_in_one_read_are_parsed_no_more_than_alone(shape: str) -> None:
    dialect, piece, beginning, _ = SHAPES[shape]
    decoder = DIALECTS[dialect].stream_decoder()
    decoder.feed(beginning)
    decoder.feed(piece("one", 0, False, 1))
    some = [piece(text, 0, False, place) for place, text in enumerate((" a", "é", " c"), 2)]
    assert decoder.plain_words(b"".join(some)) == [" a", "é", " c"]
    other = piece("d", 1, False, 5)
    assert decoder.plain_words(b"".join([*some, other])) is None
    assert decoder.plain_words(b"".join([*some, other, *some])) is None
    assert decoder.plain_words(b"".join(some) + b"data: ") is None


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "text", ['he said "no"', "back\\slash", "two\nlines", "", "x" * READ_BYTES_MAX, "\x7f"]
)
def test_other_words_are_left_to_the_parser(shape: str, text: str) -> None:
    dialect, piece, beginning, _ = SHAPES[shape]
    decoder = DIALECTS[dialect].stream_decoder()
    decoder.feed(beginning)
    decoder.feed(piece("one", 0, False, 1))
    assert decoder.plain_words(piece("two", 0, False, 2)) == ["two"]
    assert decoder.plain_words(piece(text, 0, False, 3)) is None
    assert decoder.plain_words(piece("three", 0, False, 4)) == ["three"]


@pytest.mark.parametrize(
    ("shape", "end"),
    [
        ("chat", CHAT_STOP),
        ("padded chat", CHAT_STOP),
        ("message", MESSAGE_DELTA),
        ("response", RESPONSE_END),
    ],
)
def test_words_behind_the_reason_to_stop_are_never_plain(shape: str, end: bytes) -> None:
    dialect, piece, beginning, _ = SHAPES[shape]
    decoder = DIALECTS[dialect].stream_decoder()
    for data in (beginning, piece("one", 0, False, 1), end, piece("two", 0, False, 2)):
        decoder.feed(data)
    assert decoder.plain_words(piece("three", 0, False, 3)) is None


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(b'"sequence_number":05', id="no number"),
        pytest.param(b'"sequence_number":5.5', id="a fraction"),
        pytest.param(b'"sequence_number":"5"', id="a number as text"),
        pytest.param(b'"sequence_number":5,"sequence_number":6', id="twice"),
        pytest.param(b"\0", id="what stands for it here"),
        pytest.param(b'"sequence_number":5,"text":"b"', id="something else beside it"),
    ],
)
def test_only_what_nobody_reads_may_differ(other: bytes) -> None:
    decoder = DIALECTS["openai_responses"].stream_decoder()
    decoder.feed(RESPONSE_START)
    decoder.feed(_response("one", place=4))
    piece = _response("two", place=5)
    assert decoder.plain_words(piece) == ["two"]
    assert decoder.plain_words(piece.replace(b'"sequence_number":5', other)) is None
    moved = piece.replace(b'"sequence_number":5,', b"").replace(b"two", b'two"sequence_number":5')
    assert decoder.plain_words(moved) is None


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
    assert decoder.plain_words(_chat("b")) is None


def test_a_piece_that_writes_words_another_way_teaches_no_wrong_place() -> None:
    decoder = DIALECTS["openai_chat"].stream_decoder()
    decoder.feed(CHAT_START)
    decoder.feed(b'data: {"model":"a","choices":[{"index":0,"delta":{"content":"\\u0061"}}]}\n\n')
    other = b'data: {"model":"b","choices":[{"index":0,"delta":{"content":"\\u0061"}}]}\n\n'
    assert decoder.plain_words(other) is None
    assert decoder.feed(other)[0].deltas[0].text == "a"


def test_a_stream_whose_pieces_are_never_plain_is_not_searched_for_ever() -> None:
    pieces = PlainPieces(Splitter())
    for _ in range(LESSONS_MAX):
        pieces.learn(_chat("m"), "m")
    pieces.learn(_chat("a"), "a")
    assert pieces.words_of(_chat("b")) is None


def test_an_error_behind_words_that_were_passed_on_has_the_next_number() -> None:
    dialect = DIALECTS["openai_responses"]
    request = dialect.decode_request(b'{"model":"m","input":"Hi","stream":true}', "req_1")
    encoder = dialect.stream_encoder(request, "openai_responses")
    decoder = dialect.stream_decoder()
    written = [encoder.encode(decoder.feed(RESPONSE_START))]
    written.append(encoder.encode(decoder.feed(_response("one", place=1))))

    def write(raw: bytes) -> bool:
        written.append(raw)
        return False

    push = encoder.plain(write)
    assert push is not None
    for places in ((2,), (3, 4, 5)):
        read = b"".join([_response(" more", place=place) for place in places])
        assert decoder.plain_words(read) == [" more"] * len(places)
        assert not push(read)
    written.append(encoder.fail(StreamBroken("It broke."), "req_1"))
    events = b"".join(written).split(EVENT_END)[:-1]
    numbers = [json.loads(raw.partition(b"data: ")[2])["sequence_number"] for raw in events]
    assert numbers == [0, 1, 2, 3, 4, 5, 6]
