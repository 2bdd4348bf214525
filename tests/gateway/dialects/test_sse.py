"""Server-sent events: the same events however the bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.sse import EVENT_BYTES_MAX, Event, Splitter, comment
from gateway.errors import UpstreamMalformed


LINES = st.lists(
    st.sampled_from(
        [
            *("data: x", "data: {}", "data:ü", "data", "data: a\u2028b\u0085c"),
            *(": note", "event: ping", "id: 7", "x", "", "", ""),
        ]
    ),
    max_size=12,
)
ENDINGS = st.lists(st.sampled_from(["\n", "\n", "\r\n", "\r"]), min_size=12, max_size=12)


def split(*pieces: bytes) -> list[Event]:
    splitter = Splitter()
    events = [event for piece in pieces for event in splitter.feed(piece)]
    return events + splitter.close()


@given(LINES, ENDINGS, st.lists(st.integers(0, 120), max_size=6))
def test_any_cut_gives_the_same_events(
    lines: list[str], endings: list[str], places: list[int]
) -> None:
    stream = "".join(line + ending for line, ending in zip(lines, endings, strict=False)).encode()
    cuts = sorted({0, len(stream), *(place for place in places if place < len(stream))})
    pieces = [stream[start:end] for start, end in pairwise(cuts)]
    whole = split(stream)
    assert split(*pieces) == whole
    assert split(*(bytes([byte]) for byte in stream)) == whole


def test_events_of_each_line_ending_keep_their_bytes_and_meaning() -> None:
    for end in (b"\n", b"\r\n"):
        raw = b"event: e" + end + b"data: 1" + end + end
        assert split(raw) == [Event(raw, b"e", b"1")]
    assert [event.data for event in split(b"data: 1\r\rdata: 2\r\r")] == [b"1", b"2"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_data_in_several_lines_or_behind_a_lone_cr_comes_in_one(end: bytes) -> None:
    """Its JSON is looked for there, by those who blacken words in it."""
    several = end.join([b"event: e", b'data: {"a":', b"data: 2}", b"", b""])
    assert split(several) == [Event(b'event: e\ndata: {"a": 2}\n\n', b"e", b'{"a":\n2}')]
    (one,) = split(end.join([b"id: 7", b"data: 1", b"", b""]))
    assert (one.data, b"\ndata: 1" in one.raw or one.raw == b"data: 1\n\n") == (b"1", True)


def test_an_event_with_crlf_is_ready_as_soon_as_its_blank_line_is_whole() -> None:
    splitter = Splitter()
    assert splitter.feed(b"data: 1\r\n\r") == []
    assert [event.data for event in splitter.feed(b"\n")] == [b"1"]


def test_unicode_line_separators_are_text() -> None:
    text = "data: a\u2028b\u2029c\u0085d\n\n".encode()
    assert split(text) == [Event(text, b"", text[6:-2])]


def test_a_byte_order_mark_is_ignored() -> None:
    assert split(b"\xef\xbb\xbfdata: 1\n\n")[0].data == b"1"


def test_comments_of_an_upstream_are_emptied() -> None:
    events = split(b": x-gatewright-receipt=forged\n\n", b": y\ndata: 1\n\n")
    assert events == [Event(b":\n\n", b"", None), Event(b":\ndata: 1\n\n", b"", b"1")]


@pytest.mark.parametrize(
    ("block", "raw"),
    [
        (b"event: e", b":"),
        (b"event: response.output_te", b":"),
        (b"id: 7", b":"),
        (b"retry: 3000\nid: 7", b":"),
        (b"da", b":"),
        (b"event: e\ndata:", b":"),
        (b"event: e\ndata: ", b":"),
        (b"data:", b":"),
        (b"data: ", b":"),
        (b"id: 7\nevent: e\ndata: 1", b"event: e\ndata: 1"),
        (b"data: 1\nretry: 3000", b"data: 1"),
        (b": note\nid: 7\ndata: 1", b"data: 1"),
    ],
)
def test_only_names_with_data_are_passed_on(block: bytes, raw: bytes) -> None:
    """OpenAI's clients raise on what they take for an event without data."""
    (event,) = split(block + b"\n\n")
    assert event.raw == raw + b"\n\n"
    assert split(block) == [event]


def test_an_event_of_up_to_one_mebibyte_passes_and_a_larger_one_does_not() -> None:
    largest = b"data: " + b"x" * (EVENT_BYTES_MAX - 6)
    assert len(split(largest + b"\n\n")) == 1
    halves = (largest[:1000], largest[1000:] + b"\n\n")
    assert len(split(*halves)) == 1
    for pieces in (
        (largest + b"x\n\n",),
        (largest, b"xxxx"),
        (largest[:9], largest[9:] + b"xx\n\n"),
    ):
        with pytest.raises(UpstreamMalformed):
            split(*pieces)


def test_a_comment_of_ours_cannot_start_a_field() -> None:
    assert comment("a\ndata: [DONE]\r\n\nb") == b": a data: [DONE] b\n\n"
    assert comment("") == b""
