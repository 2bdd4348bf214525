"""Characters that an upstream tears in two: whole again, and no answer is lost for one."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.half_pairs import paired
from gateway.dialects.registry import DIALECTS
from gateway.types import DialectName, StreamEvent


TEXTS = st.text(st.sampled_from('aé漢🙂𝄞\u2028"\\\n\ufffdu'), max_size=12)
CUTS = st.lists(st.integers(0, 24), max_size=8)


def torn(text: str, cuts: list[int]) -> list[str]:
    """Pieces of a text as a program cuts it that counts units of UTF-16."""
    units = text.encode("utf-16-be")
    places = sorted({0, len(units), *(2 * cut for cut in cuts if 2 * cut < len(units))})
    return [units[a:b].decode("utf-16-be", "surrogatepass") for a, b in pairwise(places)]


def chat(piece: str) -> Any:
    delta = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [delta]}


def completion(piece: str) -> Any:
    choice = {"index": 0, "text": piece, "finish_reason": None}
    return {"id": "c", "object": "text_completion", "model": "m", "choices": [choice]}


def message(piece: str) -> Any:
    delta = {"type": "text_delta", "text": piece}
    return {"type": "content_block_delta", "index": 0, "delta": delta}


def response(piece: str) -> Any:
    place = {"item_id": "i", "output_index": 0, "content_index": 0}
    return {"type": "response.output_text.delta", **place, "delta": piece}


WORDS: dict[DialectName, Callable[[str], Any]] = {
    "openai_chat": chat,
    "openai_completions": completion,
    "anthropic_messages": message,
    "openai_responses": response,
}
each_dialect = pytest.mark.parametrize("dialect", WORDS)


def decoded(dialect: DialectName, pieces: list[str], cut: int = 0) -> list[StreamEvent]:
    """Events of a stream that comes `cut` bytes at a time; event by event where that is 0."""
    reads = [f"data: {json.dumps(WORDS[dialect](piece))}\n\n".encode() for piece in pieces]
    if cut:
        stream = b"".join(reads)
        reads = [stream[at : at + cut] for at in range(0, len(stream), cut)]
    decoder = DIALECTS[dialect].stream_decoder(1)
    return [event for read in reads for event in decoder.feed(read)]


def said(events: list[StreamEvent]) -> str:
    return "".join(delta.text for event in events for delta in event.deltas)


@each_dialect
@given(TEXTS, CUTS, st.sampled_from([0, 10_000]) | st.integers(1, 40))
def test_a_text_that_is_cut_within_characters_is_whole(
    dialect: DialectName, text: str, cuts: list[int], cut: int
) -> None:
    events = decoded(dialect, torn(text, cuts), cut)
    assert said(events) == text
    for event in events:
        _, _, data = event.raw.partition(b"data: ")
        assert json.dumps(json.loads(data), ensure_ascii=False).encode(), "a reader of bytes"


@each_dialect
@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["a\ud83d", "b"], "ab"),
        (["a", "\ude00b"], "a\ufffdb"),
        (["a\ud83d", "\ud83d", "\ude00b"], "a\U0001f600b"),
        (["a\ud83dc", "\ude00b"], "a\ufffdc\ufffdb"),
        (["a\ude00", "\ud83db"], "a\ufffd\ufffdb"),
    ],
)
def test_half_a_character_costs_no_answer(
    dialect: DialectName, pieces: list[str], text: str
) -> None:
    assert said(decoded(dialect, pieces)) == said(decoded(dialect, pieces, 10_000)) == text


WHOLE: dict[DialectName, Any] = {
    "openai_chat": {
        "id": "c",
        "model": "m",
        "choices": [{"index": 0, "message": {"content": "half \ud83d"}, "finish_reason": "length"}],
    },
    "anthropic_messages": {
        "id": "m",
        "type": "message",
        "content": [{"type": "text", "text": "half \ud83d"}],
        "stop_reason": "max_tokens",
    },
    "openai_responses": {
        "id": "r",
        "object": "response",
        "status": "incomplete",
        "output": [
            {"type": "message", "content": [{"type": "output_text", "text": "half \ud83d"}]}
        ],
    },
    "openai_completions": {
        "id": "c",
        "model": "m",
        "choices": [{"index": 0, "text": "half \ud83d", "finish_reason": "length"}],
    },
}


@pytest.mark.parametrize("dialect", WHOLE)
def test_a_whole_answer_that_ends_in_half_a_character_is_one(dialect: DialectName) -> None:
    completion = DIALECTS[dialect].decode_reply(json.dumps(WHOLE[dialect]).encode())
    assert completion.text == "half \ufffd"
    assert b"half \\ufffd" in completion.raw


@given(TEXTS, st.booleans())
def test_json_without_halves_stays_as_it_is(text: str, escaped: bool) -> None:
    data = json.dumps({"a": text, "b": json.dumps(text)}, ensure_ascii=escaped).encode()
    assert paired(data) is data or paired(data) == data
    assert json.loads(paired(data)) == json.loads(data)


def test_what_only_looks_like_half_a_character_is_left_alone() -> None:
    data = json.dumps({"path": "C:\\ud83d\\udc00", "code": '"\\ud83d"'}).encode()
    assert paired(data) == data


PIECES = st.lists(st.text(st.sampled_from("ab \ud83d\ude00"), min_size=1, max_size=3), max_size=8)


def flowing(dialect: DialectName, reads: list[bytes]) -> str:
    """The words of a stream as it is relayed: past the parser where a read is plain."""
    decoder = DIALECTS[dialect].stream_decoder(1)
    words: list[str] = []
    for read in reads:
        plain = decoder.plain_words(read)
        words += [said(decoder.feed(read))] if plain is None else plain
    return "".join(words)


@each_dialect
@given(PIECES, st.lists(st.integers(0, 3000), max_size=6))
def test_half_a_character_is_the_same_however_the_reads_are_cut(
    dialect: DialectName, pieces: list[str], cuts: list[int]
) -> None:
    asked = ["one", "two", *pieces, "three", "\ude00", "four"]
    events = [f"data: {json.dumps(WORDS[dialect](piece))}\n\n".encode() for piece in asked]
    stream = b"".join(events)
    places = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    whole = flowing(dialect, [stream])
    assert flowing(dialect, events) == whole
    assert flowing(dialect, [stream[a:b] for a, b in pairwise(places)]) == whole
