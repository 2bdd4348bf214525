"""Usage is never less than what came, never zero for content, and says when it is a guess."""

import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tally import Tally, add_usage, with_estimates
from gateway.types import Delta, StreamEvent, Usage
from tests.gateway.dialects.test_estimate import COUNTED


counts = st.integers(0, 10**7)
usages = st.builds(
    Usage,
    input_tokens=counts,
    output_tokens=counts,
    cache_read_tokens=counts,
    cache_write_tokens=counts,
    cache_write_1h_tokens=counts,
    reasoning_tokens=counts,
)
texts = st.lists(st.text(max_size=50), max_size=20)
FIGURES = tuple(name for name in Usage.__struct_fields__ if name != "estimated")


def tally_of(*deltas: Delta, kept_bytes_max: int = 10**6) -> Tally:
    tally = Tally(kept_bytes_max)
    tally.add([StreamEvent(delta.text.encode() or b"{}", (delta,)) for delta in deltas])
    return tally


@given(usages, usages, usages)
def test_pieces_of_usage_add_up_to_the_same_in_any_order(a: Usage, b: Usage, c: Usage) -> None:
    assert add_usage(add_usage(a, b), c) == add_usage(a, add_usage(b, c))
    assert add_usage(a, b) == add_usage(b, a)
    assert add_usage(a, a) == a
    assert add_usage(None, a) == a


@given(usages, usages)
def test_no_figure_ever_shrinks(a: Usage, b: Usage) -> None:
    both = add_usage(a, b)

    for name in FIGURES:
        assert getattr(both, name) == max(getattr(a, name), getattr(b, name))


@given(texts, st.integers(1, 10**6))
def test_content_without_usage_is_estimated_and_never_free(
    pieces: list[str], input_tokens: int
) -> None:
    usage = tally_of(*(Delta("text", text) for text in pieces)).usage(input_tokens)

    assert usage.estimated
    assert usage.input_tokens == input_tokens
    assert (usage.output_tokens > 0) == bool("".join(pieces))


@given(texts, usages)
def test_a_finished_stream_costs_what_the_upstream_says(pieces: list[str], said: Usage) -> None:
    deltas = [Delta("text", text) for text in pieces]
    usage = tally_of(*deltas, Delta("usage", usage=said)).usage(1)

    if said.output_tokens and said.input_tokens:
        assert usage == said
    else:
        assert usage.input_tokens == (said.input_tokens or 1), "nobody answers nothing"


@given(texts, usages)
def test_a_broken_stream_costs_at_least_what_came(pieces: list[str], opening: Usage) -> None:
    deltas = [Delta("text", text) for text in pieces]
    usage = tally_of(Delta("usage", usage=opening), *deltas).usage_so_far(1)

    assert usage.output_tokens >= max(len("".join(pieces)) / 4, opening.output_tokens)
    assert usage.input_tokens == (opening.input_tokens or 1)


@given(texts, st.integers(0, 200))
def test_no_more_is_kept_than_allowed(pieces: list[str], kept_bytes_max: int) -> None:
    tally = tally_of(*(Delta("text", text) for text in pieces), kept_bytes_max=kept_bytes_max)

    assert len(tally.content) <= kept_bytes_max


@given(usages, st.integers(1, 10**6))
def test_only_what_was_left_at_zero_is_guessed(said: Usage, input_tokens: int) -> None:
    told = with_estimates(said, input_tokens, 40)
    assert told.input_tokens == (said.input_tokens or input_tokens)
    assert told.output_tokens == (said.output_tokens or 10)
    if said.input_tokens and said.output_tokens:
        assert told == said
    else:
        assert told.estimated

    guess = with_estimates(Usage(output_tokens=5, estimated=True), input_tokens)
    assert guess == Usage(input_tokens=input_tokens, output_tokens=5, estimated=True)


@pytest.mark.parametrize("language", COUNTED)
def test_a_stream_that_breaks_is_booked_near_what_was_generated(
    language: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The texts' true counts are known; a broken part of one is charged as its share of them."""
    text, *counted = COUNTED[language]
    draw, whole, ratios = random.Random(language), text * 20, []
    is_call = language == "JSON"
    for _ in range(50):
        cut = draw.randint(len(text), len(whole))
        pieces, at = [], 0
        while at < cut:
            step = min(draw.randint(1, 6), cut - at)
            piece = whole[at : at + step]
            pieces.append(Delta("tool_arguments" if is_call else "text", text=piece))
            at += step
        booked = tally_of(*pieces).usage_so_far(1).output_tokens
        # Between both vocabularies, whose counts differ by up to three times.
        ratios.append(booked / (sum(counted) / 2 * cut / len(text)))
    mean = sum(ratios) / len(ratios)
    with capsys.disabled():
        sys.stdout.write(f"\nbooked of what was generated, {language}: {mean:.2f}")
    assert 0.6 <= mean <= 1.5
    assert min(ratios) >= 0.5
