"""Pieces of several calls may take turns: each is read by itself, and comes back whole."""

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.types import StreamEvent
from gateway.veiling.veil import Veil
from tests.gateway.veiling.test_output_scan import VALUES, in_pieces, output_scan
from tests.gateway.veiling.test_several_answers import chunk, lifted
from tests.gateway.veiling.test_veil import veil_of


CARD = VALUES["CREDIT_CARD"]
Name = tuple[int, int]
"""Of a call: its answer's number and its own; that of an answer's words is -1."""
WORDS = -1


def piece(name: Name, text: str) -> bytes:
    answer, call = name
    said: dict[str, Any] = {"content": text}
    if call != WORDS:
        said = {"tool_calls": [{"index": call, "function": {"arguments": text}}]}
    return chunk({"index": answer, "delta": said})


def beginning(name: Name, number: int | None = None) -> bytes:
    answer, call = name
    begun = {
        "index": call if number is None else number,
        "id": f"call_{answer}{call}",
        "type": "function",
        "function": {"name": f"f{call}", "arguments": ""},
    }
    return chunk({"index": answer, "delta": {"tool_calls": [begun]}})


def end(answer: int) -> bytes:
    return chunk({"index": answer, "delta": {}, "finish_reason": "tool_calls"})


def said(events: Sequence[StreamEvent]) -> dict[Name, str]:
    """What is said under each name in the bytes of a stream."""
    found: dict[Name, str] = defaultdict(str)
    for event in events:
        line = event.raw.partition(b"data:")[2].strip()
        for choice in msgspec.json.decode(line)["choices"] if line != b"[DONE]" else ():
            delta = choice["delta"]
            if delta.get("content"):
                found[choice["index"], WORDS] += delta["content"]
            for call in delta.get("tool_calls") or ():
                found[choice["index"], call["index"]] += call["function"].get("arguments", "")
    return dict(found)


def in_turns(texts: dict[Name, str], rng: random.Random) -> list[bytes]:
    """Words first, then the calls of each answer, in pieces that take turns with the others."""
    left = {name: list(_cut(text, rng)) for name, text in texts.items()}
    raw: list[bytes] = []
    begun: set[Name] = set()
    while left:
        ready = [n for n in left if n[1] == WORDS or (n[0], WORDS) not in left]
        name = rng.choice(sorted(ready))
        if name[1] != WORDS and name not in begun:
            begun.add(name)
            raw.append(beginning(name))
            continue
        raw.append(piece(name, left[name].pop(0)))
        if not left[name]:
            del left[name]
            if not any(other[0] == name[0] for other in left):
                raw.append(end(name[0]))
    return [*raw, b"data: [DONE]\n\n"]


def _cut(text: str, rng: random.Random) -> Sequence[str]:
    return [*in_pieces(text, sorted(rng.choices(range(1, len(text)), k=rng.randint(1, 30))))]


def written(tree: object, how: str) -> str:
    """JSON as programs of several languages write it."""
    if how == "plain":
        return json.dumps(tree, ensure_ascii=False)
    return json.dumps(tree)


def veil() -> tuple[Veil, list[tuple[str, str]]]:
    """A veil, and surrogates in it with what they stand for."""
    made = veil_of("openai_chat")
    return made, [*made.names.values.items()]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), how=st.sampled_from(["plain", "escapes"]))
def test_each_call_gets_its_own_values_back_however_pieces_take_turns(seed: int, how: str) -> None:
    rng = random.Random(seed)
    made, pairs = veil()
    texts: dict[Name, str] = {}
    meant: dict[Name, object] = {}
    for answer in range(rng.randint(1, 2)):
        sentence = [rng.choice([*pairs, ("and", "and")]) for _ in range(3)]
        texts[answer, WORDS] = " ".join(sent for sent, _ in sentence) + "."
        meant[answer, WORDS] = " ".join(back for _, back in sentence) + "."
        for call in range(rng.randint(1, 3)):
            some = [rng.choice([*pairs, ("x}", "x}"), ('"\\', '"\\')]) for _ in range(3)]
            texts[answer, call] = written({"to": [sent for sent, _ in some], "n": call}, how)
            meant[answer, call] = {"to": [back for _, back in some], "n": call}
    events = lifted(made.lifted(), in_turns(texts, rng))

    told: dict[Name, object] = {
        name: text if name[1] == WORDS else json.loads(text) for name, text in said(events).items()
    }
    assert told == meant
    assert sum(event.raw.count(b'"name":"f') for event in events) == sum(
        call != WORDS for _, call in texts
    )
    assert ends_last(events)


def ends_last(events: Sequence[StreamEvent]) -> bool:
    """Whether nothing is said of an answer behind its end."""
    over: set[int] = set()
    for event in events:
        line = event.raw.partition(b"data:")[2].strip()
        for choice in msgspec.json.decode(line)["choices"] if line != b"[DONE]" else ():
            if choice["index"] in over:
                return False
            over |= {choice["index"]} if choice.get("finish_reason") else set()
    return bool(over)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_is_masked_in_calls_does_not_depend_on_whose_turn_it_is(seed: int) -> None:
    rng = random.Random(seed)
    texts = {
        (0, call): json.dumps({"note": f"card {CARD} of {call}", "n": call}) for call in range(3)
    }
    output = output_scan()
    events = lifted(output.lifted(), in_turns(texts, rng))

    assert {name: json.loads(text) for name, text in said(events).items()} == {
        (0, call): {"note": f"card [REDACTED:CREDIT_CARD] of {call}", "n": call}
        for call in range(3)
    }
    assert output.found == {"CREDIT_CARD": 3}


def test_a_call_that_words_interrupt_is_read_as_one() -> None:
    name = (0, 0)
    head, tail = '{"note": "card ' + CARD[:9], CARD[9:] + '"}'
    raw = [beginning(name), piece(name, head), piece((0, WORDS), "Wait."), piece(name, tail)]
    told = said(lifted(output_scan().lifted(), [*raw, end(0)]))

    assert told == {name: '{"note": "card [REDACTED:CREDIT_CARD]"}', (0, WORDS): "Wait."}


@pytest.mark.parametrize("number", [0, 1])
def test_what_is_held_back_of_a_call_never_becomes_part_of_the_next(number: int) -> None:
    """Some upstreams give all calls one number: there the next one ends what came before."""
    made, pairs = veil()
    sent = max(pairs)[0]
    raw = [
        beginning((0, 0)),
        piece((0, 0), f'{{"a": "{sent[:4]}'),
        beginning((0, 1), number),
        piece((0, number), '{"b": 2}'),
        end(0),
    ]
    events = lifted(made.lifted(), raw)
    starts = [at for at, e in enumerate(events) if any(d.kind == "tool_start" for d in e.deltas)]
    before = said(events[: starts[1]])
    if number == 0:
        assert before == {(0, 0): f'{{"a": "{sent[:4]}'}
    assert said(events) == {
        (0, 0): f'{{"a": "{sent[:4]}' + ('{"b": 2}' if number == 0 else ""),
        **({(0, 1): '{"b": 2}'} if number else {}),
    }
