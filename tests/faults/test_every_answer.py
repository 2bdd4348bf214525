"""Sensitive data in every place of every answer: where policy masks, the caller sees none."""

import base64
import json
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import count, islice
from typing import Any, Final

import pytest
from msgspec import Struct

from classifiers.pii.labels import DataClass
from classifiers.pii.scanner import PATTERNS_ONLY
from gateway.dialects.registry import DIALECTS
from gateway.errors import UpstreamMalformed
from gateway.types import ChatRequest, DialectName, Usage
from gateway.veiling.output_scan import OutputScan
from tests.classifiers import samples
from tests.faults.full_answers import STREAMED, WHOLE, Body
from tests.faults.full_requests import DOORS, Place, added, changed, data_url, places, put, renamed
from tests.identifiers import aadhaar, card


pytestmark = pytest.mark.timeout(3600)

CARD = card(11)
ALL: Final = bool(os.environ.get("GATEWRIGHT_FAULT_EVERY_ANSWER"))
"""Each value in each place by itself, and not many at once."""
RANDOM = random.Random(19)
CALLERS: Mapping[DialectName, str] = {
    "openai_chat": "/v1/chat/completions",
    "openai_completions": "/v1/completions",
    "anthropic_messages": "/v1/messages",
    "openai_responses": "/v1/responses",
}
HEARD: Mapping[DialectName, tuple[DialectName, ...]] = {
    "openai_chat": tuple(CALLERS),
    "openai_completions": ("openai_completions",),
    "anthropic_messages": tuple(CALLERS),
    "openai_responses": ("openai_responses",),
}
"""Whose callers may get an answer in a dialect: every vendor is asked in one of two."""
STRUCTURE: Final = frozenset({"type", "object", "role", "index", "output_index", "status", "name"})
"""Without these an answer is another one; something is put there by itself."""


class Planted(Struct, frozen=True):
    """A value, and what of it would show that it came through."""

    said: object
    marks: tuple[str, ...]


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode().rstrip("=")


def _fours(number: str) -> list[str]:
    return [number[at : at + 4] for at in range(0, len(number), 4)]


def _grouped(seed: int) -> Planted:
    groups = "-".join(_fours(card(seed)))
    return Planted(f"Charge {groups} today", (groups,))


def _with_blanks(seed: int) -> Planted:
    groups = " ".join(_fours(aadhaar(seed)))
    return Planted(f"Aadhaar {groups} it is", (groups,))


def _key(seed: int) -> Planted:
    del seed
    key = "AKIA" + samples.token(RANDOM, 16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
    return Planted(key, (key,))


def _private_key(seed: int) -> Planted:
    del seed
    lines = base64.b64encode(RANDOM.randbytes(600)).decode()
    head, tail = (f"-----{word} PRIVATE KEY-----" for word in ("BEGIN", "END"))
    return Planted(f"{head}\n{lines}\n{tail}", (lines[:40],))


def _url(media_type: str, text: str) -> Callable[[int], Planted]:
    def planted(seed: int) -> Planted:
        url = data_url(media_type, text.format(card(seed)))
        return Planted(url, (url.partition(",")[2],))

    return planted


def _of(text: str) -> Callable[[int], Planted]:
    return lambda seed: Planted(text.replace("{}", card(seed)), (card(seed),))


def _in_json(seed: int) -> Planted:
    inside = json.dumps({"a": json.dumps({"b": json.dumps([card(seed)])})})
    return Planted(inside, (card(seed),))


def _in_escapes(seed: int) -> Planted:
    """Arguments of a call, in which every digit is written as an escape."""
    escapes = "".join(f"\\u{ord(digit):04x}" for digit in card(seed))
    return Planted(f'{{"to": "{escapes}"}}', (json.dumps(escapes)[1:-1], card(seed)))


def _in_base64(seed: int) -> Planted:
    line = _coded(f"card\n{card(seed)}")
    return Planted(f"call_{line}", (line,))


def _list(*pieces: object) -> Planted:
    return Planted(list(pieces), (json.dumps(pieces, separators=(",", ":"))[1:-1],))


TEXTS: Mapping[str, Callable[[int], Planted]] = {
    "card": _of("{}"),
    "card in groups": _grouped,
    "Aadhaar": _with_blanks,
    "access key": _key,
    "private key": _private_key,
    "JSON in JSON in JSON": _in_json,
    "escapes in JSON": _in_escapes,
    "path of an address": _of("https://shop.example/{}/pay?no={}#{}"),
    "plain data URL": _of("data:text/plain,card%20{}"),
    "words behind a scheme": _of("data: it is {} , he said"),
    "text": _url("text/plain", "card {}"),
    "table": _url("text/csv;charset=utf-8", "name,card\r\ninge,{}\r\n"),
    "drawing": _url("image/svg+xml", "<svg><text>{}</text></svg>"),
    "tree": _url("application/json", '{{"card": "{}"}}'),
    "name of a card": _of("call_abcd{}"),
    "name of a line": _in_base64,
}
OTHERS: Mapping[str, Callable[[int], Planted]] = {
    "card as a number": lambda seed: Planted(int(card(seed)), (card(seed),)),
    "card as a float": lambda seed: Planted(float(card(seed)), (card(seed),)),
    "digits": lambda seed: _list(*card(seed)),
    "groups as numbers": lambda seed: _list(*map(int, _fours(card(seed)))),
    "letters": lambda seed: _list(*card(seed).encode()),
}
VALUES = {**TEXTS, **OTHERS}
NAMES = ("card", "card in groups", "access key", "name of a card")


def masking(asked: ChatRequest | None = None) -> OutputScan:
    tree = None if asked is None else asked.tree
    return OutputScan(PATTERNS_ONLY.scan, PATTERNS_ONLY.scan, DataClass.S3, tree)


def asking(caller: DialectName, *, stream: bool) -> ChatRequest:
    body = DOORS[CALLERS[caller]] | {"stream": stream}
    return DIALECTS[caller].decode_request(json.dumps(body).encode(), "req_1")


ASKING = {(c, s): asking(c, stream=s) for c in CALLERS for s in (False, True)}


def whole_told(source: DialectName, raw: bytes, callers: tuple[DialectName, ...]) -> str:
    """What callers of all these dialects get of an answer, one behind the other."""
    completion = DIALECTS[source].decode_reply(masking().unveiled(raw))
    told = [
        DIALECTS[each].encode_reply(completion, source, ASKING[each, False]) for each in callers
    ]
    return b"\n".join(told).decode()


def stream_told(source: DialectName, events: list[bytes], callers: tuple[DialectName, ...]) -> str:
    """The same of a stream."""
    decoder, lift = DIALECTS[source].stream_decoder(), masking().lifted()
    batches = [lift.events(decoder.feed(raw)) for raw in events]
    told = b""
    for each in callers:
        encoder = DIALECTS[each].stream_encoder(ASKING[each, True], source)
        told += b"".join(map(encoder.encode, batches))
        if any(event.is_terminal for batch in batches for event in batch):
            told += encoder.finish("", Usage()) + encoder.response
    return told.decode()


def framed(source: DialectName, tree: Body) -> bytes:
    name = f"event: {tree['type']}\n" if "type" in tree and "openai_c" not in source else ""
    return f"{name}data: {json.dumps(tree)}\n\n".encode()


def stream_of(source: DialectName, trees: list[Body]) -> list[bytes]:
    done = [b"data: [DONE]\n\n"] if "openai_c" in source else []
    return [*(framed(source, tree) for tree in trees), *done]


def there(body: Body, place: Place) -> object:
    found: Any = body
    for step in place:
        found = found[step]
    return found


def is_structure(place: Place, body: Body) -> bool:
    """Whether the answer would be another one without what stands there."""
    found = there(body, place)
    numbers = isinstance(found, int | float) or found is None
    return place[-1] in STRUCTURE or numbers or isinstance(found, dict | list)


PIECES: Final = frozenset(
    {
        *("text", "content", "delta", "thinking", "partial_json", "reasoning", "input", "refusal"),
        *("reasoning_content", "arguments", "transcript"),
    }
)
"""What may go on in the next event: there a value is one only with blanks around it."""


def apart(said: object, place: Place) -> object:
    """As it is put into a place."""
    return f" {said} " if isinstance(said, str) and place[-1] in PIECES else said


def spread(body: Any, value: Callable[[int], Planted]) -> tuple[Any, dict[str, Place]]:
    """A body with another value in each place that holds text, and which mark stands where."""
    marks: dict[str, Place] = {}
    for seed, place in enumerate(places(body)):
        if not is_structure(place, body):
            planted = value(seed)
            body = changed(body, place, put(apart(planted.said, place)))
            marks |= dict.fromkeys(planted.marks, place)
    return body, marks


def singly(body: Any, name: str, *, structure: bool) -> Iterator[tuple[Place, Any, Planted]]:
    """Bodies with a value in one place, in every place or only where `spread` puts none."""
    seeds = count(1000)
    for place in places(body):
        if not structure or is_structure(place, body):
            planted = VALUES[name](next(seeds))
            is_leaf = not isinstance(there(body, place), dict | list)
            change = put if is_leaf else added
            yield place, changed(body, place, change(apart(planted.said, place))), planted
        if isinstance(place[-1], str) and name in NAMES:
            planted = VALUES[name](next(seeds))
            yield place, changed(body, place, renamed(str(planted.said))), planted


Told = Callable[[Any], str]


def left_by(told: Told, body: Any, name: str, step: int = 1) -> Iterator[tuple[str, Place]]:
    """Where values of a kind came through; by itself each is put into one place of `step`."""
    if name in TEXTS:
        full, marks = spread(body, VALUES[name])
        said = told(full)
        yield from ((name, place) for mark, place in marks.items() if mark in said)
    if ALL or name in {"card", "card as a number", "digits"}:
        some = singly(body, name, structure=not ALL)
        for place, one, planted in some if ALL else islice(some, 0, None, step):
            try:
                said = told(one)
            except UpstreamMalformed:
                continue
            if any(mark in said for mark in planted.marks):
                yield name, place


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("source", WHOLE)
def test_no_place_of_a_whole_answer_tells_it(source: DialectName, name: str) -> None:
    def told(body: Any) -> str:
        return whole_told(source, json.dumps(body).encode(), HEARD[source])

    assert "It rains" in told(WHOLE[source])
    assert not list(left_by(told, WHOLE[source], name))


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("source", STREAMED)
def test_no_place_of_a_stream_tells_it(source: DialectName, name: str) -> None:
    def told(trees: Any) -> str:
        return stream_told(source, stream_of(source, trees), HEARD[source])

    assert "rains" in told(STREAMED[source])
    assert not list(left_by(told, STREAMED[source], name, step=11))


def in_letters(source: DialectName, trees: list[Body], at: int, said: str) -> list[Body] | None:
    """A stream in which one event's words come letter by letter; None where it says none.

    Nor where it closes an item: clients take that whole, and put nothing of it together.
    """
    if trees[at].get("type") == "response.output_item.done":
        return None
    decoder = DIALECTS[source].stream_decoder()
    for tree in trees[:at]:
        decoder.feed(framed(source, tree))
    words = [d.text for e in decoder.feed(framed(source, trees[at])) for d in e.deltas if d.text]
    if len(words) != 1:
        return None
    found = [p for p in places(trees[at]) if there(trees[at], p) == words[0]]
    if not found:
        return None
    pieces = [changed(trees[at], found[0], put(letter)) for letter in f" {said} "]
    return [*trees[:at], *pieces, *trees[at + 1 :]]


def strings_told(events: str) -> Mapping[Place, str]:
    """What comes at each place of all events, put together as clients do."""
    told: dict[Place, str] = defaultdict(str)
    for line in events.split("\n"):
        if line.startswith("data: {"):
            tree = json.loads(line.removeprefix("data: "))
            for place in places(tree):
                if isinstance(text := there(tree, place), str):
                    told[(tree.get("type", ""), *place)] += text
    return told


@pytest.mark.parametrize("source", STREAMED)
def test_no_words_of_a_stream_tell_it_letter_by_letter(source: DialectName) -> None:
    trees = STREAMED[source]
    read = 0
    for at in range(len(trees)):
        torn = in_letters(source, trees, at, card(at))
        for caller in HEARD[source] if torn is not None else ():
            assert torn is not None
            told = strings_told(stream_told(source, stream_of(source, torn), (caller,)))
            assert not [place for place, text in told.items() if card(at) in text], trees[at]
            read += "[REDACTED" in str(told)
    assert read


def escaped(raw: bytes, said: str) -> bytes:
    """The same JSON with every letter of a text written as an escape."""
    return raw.replace(said.encode(), "".join(f"\\u{ord(x):04x}" for x in said).encode())


@pytest.mark.parametrize("source", STREAMED)
def test_escapes_hide_nothing(source: DialectName) -> None:
    full, marks = spread(WHOLE[source], VALUES["card"])
    raw = json.dumps(full).encode()
    for mark in marks:
        raw = escaped(raw, mark)
    assert b"\\u0034" in raw
    told = whole_told(source, raw, HEARD[source])
    assert not [
        place
        for mark, place in marks.items()
        if mark in json.dumps(json.loads("[" + told.replace("\n", ",") + "]"))
    ]


TWIN = "\ue000"


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("source", STREAMED)
def test_a_member_that_stands_twice_hides_nothing(source: DialectName, is_first: bool) -> None:
    """Whoever reads JSON takes the last of both, or the first."""

    def doubled(body: Any, place: Place) -> bytes:
        def change(holder: Any, key: str | int) -> None:
            other = (f"{key}{TWIN}", CARD)
            members = list(holder.items())
            members.insert(list(holder).index(str(key)) + (not is_first), other)
            holder.clear()
            holder.update(members)

        return json.dumps(changed(body, place, change)).replace("\\ue000", "").encode()

    for place in places(WHOLE[source]):
        if isinstance(place[-1], str):
            try:
                told = whole_told(source, doubled(WHOLE[source], place), HEARD[source])
            except UpstreamMalformed:
                continue
            assert CARD not in told, place
    events = STREAMED[source]
    for at, tree in list(enumerate(events))[:: 1 if ALL else 5]:
        for place in places(tree):
            if isinstance(place[-1], str) and (ALL or len(place) < 6):
                raw = stream_of(source, events)
                line, _, _ = raw[at].partition(b"data: ")
                raw[at] = line + b"data: " + doubled(tree, place) + b"\n\n"
                try:
                    told = stream_told(source, raw, HEARD[source])
                except UpstreamMalformed:
                    continue
                assert CARD not in told, place


LINES = ("id: {}", "event: {}", "retry: {}", "x: {}", ": {}", "{}", "data: {}", "\x00data: {}")


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("source", STREAMED)
def test_no_line_beside_the_data_of_an_event_tells_it(
    source: DialectName, end: str, line: str
) -> None:
    said = line.format(CARD) + end
    for alone in ("", end):
        for at in (0, 1, -1):
            raw = stream_of(source, STREAMED[source])
            raw[at] = (said + alone).encode() + raw[at].replace(b"\n", end.encode())
            try:
                told = stream_told(source, raw, HEARD[source])
            except UpstreamMalformed:
                continue
            assert CARD not in told


UNREADABLE = (b"1e999", b'"\xff"', b"1" + b"0" * 5000, b"NaN", b"[" * 3000)


@pytest.mark.parametrize("more", UNREADABLE)
@pytest.mark.parametrize("source", STREAMED)
def test_what_cannot_be_read_is_not_passed_on(source: DialectName, more: bytes) -> None:
    def with_more(tree: Body) -> bytes:
        return json.dumps(tree).encode()[:-1] + b', "more": %b}' % more

    with pytest.raises(UpstreamMalformed):
        whole_told(source, with_more(WHOLE[source]), HEARD[source])
    raw = stream_of(source, STREAMED[source])
    raw[1] = b"data: " + with_more(STREAMED[source][1]) + b"\n\n"
    with pytest.raises(UpstreamMalformed):
        stream_told(source, raw, HEARD[source])
