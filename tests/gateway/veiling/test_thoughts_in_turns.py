"""In chunks words and thoughts are two texts: pieces of one may come between those of the other."""

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.registry import DIALECTS
from gateway.types import StreamEvent
from gateway.veiling.rewriting import Lift
from tests.gateway.veiling.test_asides import DONE, chunk
from tests.gateway.veiling.test_output_scan import VALUES, in_pieces, output_scan
from tests.gateway.veiling.test_veil import veil_of


CARD = VALUES["CREDIT_CARD"]
WORDS, THOUGHT = "content", "reasoning_content"
MASK = "[REDACTED:CREDIT_CARD]"
KEY = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0B\n" * 40
Turn = tuple[str, str]


def lifted(lift: Lift, raw: Sequence[bytes]) -> list[StreamEvent]:
    decoder = DIALECTS["openai_chat"].stream_decoder()
    return [made for each in raw for event in decoder.feed(each) for made in lift.events([event])]


def turns_in(events: Sequence[StreamEvent]) -> list[Turn]:
    """What is said in the bytes of a stream, in its order."""
    found: list[Turn] = []
    for event in events:
        line = event.raw.partition(b"data:")[2].strip()
        for choice in msgspec.json.decode(line)["choices"] if line != b"[DONE]" else ():
            delta = choice["delta"]
            found += [(name, delta[name]) for name in (THOUGHT, WORDS) if delta.get(name)]
    return found


def said(events: Sequence[StreamEvent]) -> dict[str, str]:
    told: dict[str, str] = defaultdict(str)
    for name, text in turns_in(events):
        told[name] += text
    return dict(told)


def stream(turns: Sequence[Turn], **beside: Any) -> list[bytes]:
    pieces = [chunk({name: text}, **beside) for name, text in turns]
    return [chunk({"role": "assistant"}), *pieces, chunk({}, finish_reason="stop"), DONE]


def in_turns(texts: dict[str, str], rng: random.Random) -> list[Turn]:
    left = {name: cut(text, rng) for name, text in texts.items()}
    turns: list[Turn] = []
    while left:
        name = rng.choice(sorted(left))
        turns.append((name, left[name].pop(0)))
        if not left[name]:
            del left[name]
    return turns


def cut(text: str, rng: random.Random) -> list[str]:
    return [*in_pieces(text, sorted(rng.sample(range(1, len(text)), k=rng.randint(0, 12))))]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_of_a_number_in_pieces_between_thoughts_no_more_than_four_digits_are_seen(
    seed: int,
) -> None:
    """And no less than its beginning: four digits are a year, and hold nothing back."""
    rng = random.Random(seed)
    texts = {WORDS: f"It is {CARD} , he said.", THOUGHT: f"Hm, {CARD} . So I say that."}
    output = output_scan()
    told = said(lifted(output.lifted(), stream(in_turns(texts, rng))))

    for name, text in texts.items():
        start, _, end = text.partition(CARD)
        assert told[name].startswith(start)
        assert told[name].endswith(MASK + end)
        shown = told[name][len(start) : -len(MASK + end)]
        assert CARD.startswith(shown)
        assert sum(map(str.isdigit, shown)) <= 4
    assert output.found == {"CREDIT_CARD": 2}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_pseudonyms_come_back_however_thoughts_and_words_take_turns(seed: int) -> None:
    rng = random.Random(seed)
    veil = veil_of("openai_chat")
    pairs = [*veil.names.values.items()]
    chosen = {name: [rng.choice(pairs) for _ in range(3)] for name in (WORDS, THOUGHT)}
    texts = {name: " and ".join(sent for sent, _ in some) + "." for name, some in chosen.items()}
    events = lifted(veil.lifted(), stream(in_turns(texts, rng)))

    assert said(events) == {
        name: " and ".join(back for _, back in some) + "." for name, some in chosen.items()
    }


@pytest.mark.parametrize("size", [40, 230, 400])
def test_of_a_key_that_thoughts_interrupt_nothing_is_shown(size: int) -> None:
    text = f"It is {KEY}"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    turns = [turn for each in pieces for turn in ((WORDS, each), (THOUGHT, "Hm."))]
    told = said(lifted(output_scan().lifted(), stream(turns)))

    assert told == {WORDS: "It is [REDACTED:PRIVATE_KEY]", THOUGHT: "Hm." * len(pieces)}


def test_pieces_that_say_words_and_thoughts_at_once_are_two_texts() -> None:
    both = [chunk({THOUGHT: one, WORDS: f"{at} "}) for at, one in enumerate((CARD[:9], CARD[9:]))]
    events = lifted(output_scan().lifted(), [*both, chunk({}, finish_reason="stop"), DONE])

    assert said(events) == {THOUGHT: MASK, WORDS: "0 1 "}


@pytest.mark.parametrize("last", ["It is 42", "As of 2024", "It is Ingrid", f"It is {CARD}."])
def test_a_thought_is_whole_before_the_answer_begins(last: str) -> None:
    """A caller who shows them as they come would else show the end of it behind the answer."""
    veil = veil_of("openai_chat")
    texts = [(THOUGHT, last), (WORDS, "Hello "), (WORDS, "there.")]
    for lift in (output_scan().lifted(), veil.lifted()):
        names = [name for name, _ in turns_in(lifted(lift, stream(texts)))]
        assert names == sorted(names, reverse=True)


def test_calls_take_turns_also_where_every_piece_is_counted() -> None:
    """As vLLM does, where a caller asks for `continuous_usage_stats`."""
    counted = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    heads = [
        {"tool_calls": [{"index": at, "id": f"c{at}", "function": {"name": "f"}}]} for at in (0, 1)
    ]
    parts = [
        {"tool_calls": [{"index": at, "function": {"arguments": text}}]}
        for text in (f'{{"card": "{CARD[:9]}', f'{CARD[9:]}"}}')
        for at in (0, 1)
    ]
    raw = [
        chunk(each).replace(b'{"id":', b'{"usage":' + msgspec.json.encode(counted) + b',"id":')
        for each in (*heads, *parts)
    ]
    events = lifted(output_scan().lifted(), [*raw, chunk({}, finish_reason="tool_calls"), DONE])
    arguments: dict[int, str] = defaultdict(str)
    for each in events:
        for delta in each.deltas:
            if delta.kind == "tool_arguments":
                arguments[delta.index] += delta.text

    assert dict(arguments) == dict.fromkeys((0, 1), f'{{"card": "{MASK}"}}')
    assert CARD[:9].encode() not in b"".join(each.raw for each in events)
