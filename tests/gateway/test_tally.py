"""Usage is never less than what came, never zero for content, and says when it is a guess."""

import itertools
import random
import sys
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.estimate import FAMILIES, MARGIN_TOKENS
from gateway.tally import (
    Tally,
    add_usage,
    read_tokens,
    usage_of,
    with_estimates,
    written_tokens,
)
from gateway.types import Completion, Delta, StreamEvent, Usage
from tests.gateway.dialects.samples import chat
from tests.gateway.test_estimate import COUNTED


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
Kind = Literal["text", "thinking", "refusal", "tool_arguments"]
FIGURES = tuple(name for name in Usage.__struct_fields__ if name != "estimated")


def tally_of(*deltas: Delta, kept_bytes_max: int = 10**6, vendor: str = "") -> Tally:
    tally = Tally(kept_bytes_max, vendor=vendor)
    tally.add([StreamEvent(delta.text.encode() or b"{}", (delta,)) for delta in deltas])
    return tally


def reply_of(text: str) -> Completion:
    return Completion(
        raw=b"",
        message_id="",
        model="",
        text=text,
        tool_calls=(),
        stop_reason="end",
        stop_sequence=None,
        usage=Usage(),
    )


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

    came = tally_of(*deltas).usage_so_far(1)
    assert usage.output_tokens == max(came.output_tokens, opening.output_tokens)
    assert usage.input_tokens == (opening.input_tokens or 1)
    assert usage.estimated, "what a message opens with counts no word of it"


@given(st.text(max_size=3000), st.data())
def test_a_stream_is_estimated_alike_in_whatever_pieces_it_comes(
    text: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    ends = [0, *cuts, len(text)]
    pieces = [Delta("text", text[at:until]) for at, until in itertools.pairwise(ends)]

    assert tally_of(*pieces).usage_so_far(1) == tally_of(Delta("text", text)).usage_so_far(1)
    letters = [Delta("text", letter) for letter in text]
    assert tally_of(*letters).usage_so_far(1) == tally_of(Delta("text", text)).usage_so_far(1)


@given(texts, texts)
def test_a_stream_is_estimated_at_no_less_once_more_of_it_came(
    pieces: list[str], more: list[str]
) -> None:
    tally = tally_of(*(Delta("text", text) for text in pieces))
    before = tally.usage_so_far(1).output_tokens
    longer = tally.and_then([StreamEvent(b"{}", (Delta("text", text),)) for text in more])

    assert longer.usage_so_far(1).output_tokens >= before
    assert tally.usage_so_far(1).output_tokens == before


@given(texts, texts, st.integers(0, 10**6))
def test_what_was_counted_on_the_way_is_not_guessed_again(
    pieces: list[str], more: list[str], beyond: int
) -> None:
    said = [Delta("text", text) for text in ["word", *pieces]]
    counted = tally_of(*said).usage_so_far(1).output_tokens // 3 + 1 + beyond
    count = Delta("usage", usage=Usage(input_tokens=7, output_tokens=counted))
    rest = [Delta("text", text) for text in more]
    usage = tally_of(*said, count, *rest).usage_so_far(1)

    guessed = tally_of(*rest).usage_so_far(1).output_tokens
    assert (usage.input_tokens, usage.output_tokens) == (7, counted + guessed)
    assert usage.estimated == bool(guessed)


@given(st.integers(0, 3), st.integers(1, 9))
def test_a_count_that_does_not_grow_with_the_words_counts_none_of_them(
    said: int, often: int
) -> None:
    """As of a server that says in every piece what it said in the first."""
    count = Delta("usage", usage=Usage(input_tokens=7, output_tokens=said))
    words = [Delta("text", "one two three four five six seven eight nine ten ")] * often
    pieces = [delta for word in words for delta in (count, word)]

    usage = tally_of(count, *pieces, count).usage_so_far(1)
    assert usage == structs.replace(tally_of(*words).usage_so_far(1), input_tokens=7)


@pytest.mark.parametrize("kind", ["text", "thinking", "refusal", "tool_arguments"])
def test_a_word_weighs_the_same_wherever_it_is_said(kind: Kind) -> None:
    said = tally_of(Delta(kind, "sto dwadzieścia lat", index=0)).usage_so_far(1)
    assert said == tally_of(Delta("text", "sto dwadzieścia lat")).usage_so_far(1)


def test_the_name_of_a_called_tool_was_written_too() -> None:
    called = tally_of(Delta("tool_start", tool_id="call_1", name="look_up_order"))
    assert not called.is_empty
    assert called.usage_so_far(1).output_tokens > 1


def test_an_answer_is_estimated_for_the_vendor_whose_model_wrote_it() -> None:
    hindi, openai, anthropic = COUNTED["Hindi"]
    whole = reply_of(hindi)
    for vendor, counted in (("openai", openai), ("anthropic", anthropic)):
        told = tally_of(Delta("text", hindi), vendor=vendor).usage(1).output_tokens
        assert abs(told / counted - 1) < 0.25
        assert written_tokens(whole, vendor) == told
    both = written_tokens(whole, "openai"), written_tokens(whole, "anthropic")
    assert both[0] < written_tokens(whole, "somebody-else") < both[1]


@given(texts, st.integers(0, 200))
def test_no_more_is_kept_than_allowed(pieces: list[str], kept_bytes_max: int) -> None:
    tally = tally_of(*(Delta("text", text) for text in pieces), kept_bytes_max=kept_bytes_max)

    assert len(tally.content) <= kept_bytes_max


@given(usages, st.integers(1, 10**6))
def test_only_what_was_left_at_zero_is_guessed(said: Usage, input_tokens: int) -> None:
    told = with_estimates(said, input_tokens, 40)
    assert told.input_tokens == (said.input_tokens or input_tokens)
    assert told.output_tokens == (said.output_tokens or 40)
    if said.input_tokens and said.output_tokens:
        assert told == said
    else:
        assert told.estimated

    guess = with_estimates(Usage(output_tokens=5, estimated=True), input_tokens)
    assert guess == Usage(input_tokens=input_tokens, output_tokens=5, estimated=True)


@pytest.mark.parametrize("language", COUNTED)
def test_a_request_that_nobody_counted_is_booked_near_what_its_vendor_reads(language: str) -> None:
    text, openai, anthropic = COUNTED[language]
    turns = [{"role": "user", "content": text * 40}]
    request = chat(messages=turns)
    for vendor, counted in (("openai", openai), ("anthropic", anthropic)):
        booked = read_tokens(request, vendor) - MARGIN_TOKENS
        assert abs(booked / (40 * counted) - 1) < 0.36
    assert read_tokens(request, "somebody-else") == request.input_tokens_estimate


def test_what_is_attached_to_a_request_is_booked_alike_whoever_reads_it() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4000}}
    request = chat(messages=[{"role": "user", "content": [image]}])
    assert read_tokens(request, "openai") == request.input_tokens_estimate


def test_an_answer_that_was_counted_costs_what_was_counted() -> None:
    request = chat(messages=[{"role": "user", "content": COUNTED["Hindi"][0]}])
    counted = structs.replace(reply_of("one two"), usage=Usage(input_tokens=3, output_tokens=2))
    assert usage_of(counted, request, "openai") == counted.usage
    bare = usage_of(reply_of("one two"), request, "openai")
    read = read_tokens(request, "openai")
    assert bare == Usage(input_tokens=read, output_tokens=2, estimated=True)


def test_of_a_prompt_that_is_only_said_again_nothing_was_written() -> None:
    request = structs.replace(chat(), max_output_tokens=0)
    told = structs.replace(reply_of("one two"), usage=Usage(input_tokens=3))
    assert usage_of(told, request, "openai") == Usage(input_tokens=3)

    stream = [StreamEvent(b"", (Delta("text", "one two "),)) for _ in range(200)]
    silent = Tally(0, is_silent=True)
    silent.add(stream)
    assert silent.usage_so_far(5) == Usage(input_tokens=5, estimated=True)
    assert silent.and_then(stream).usage_so_far(5) == Usage(input_tokens=5, estimated=True)
    silent.add([StreamEvent(b"", (Delta("usage", usage=Usage(input_tokens=3)),))])
    assert silent.usage(5) == Usage(input_tokens=3)


@pytest.mark.parametrize("vendor", FAMILIES)
@pytest.mark.parametrize("language", COUNTED)
def test_a_stream_that_breaks_is_booked_near_what_was_generated(
    language: str, vendor: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The texts' true counts are known; a broken part of one is charged as its share of them."""
    text, openai, anthropic = COUNTED[language]
    counted = {"openai": openai, "anthropic": anthropic}[vendor]
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
        booked = tally_of(*pieces, vendor=vendor).usage_so_far(1).output_tokens
        ratios.append(booked / (counted * cut / len(text)))
    mean = sum(ratios) / len(ratios)
    with capsys.disabled():
        sys.stdout.write(f"\nbooked of what was generated, {language}, {vendor}: {mean:.2f}")
    assert abs(mean - 1) < 0.36
    assert min(ratios) >= 0.6
