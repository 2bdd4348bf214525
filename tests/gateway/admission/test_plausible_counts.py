"""Counts of upstreams: what can be is taken as it is, whatever was reserved, and nothing else."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from gateway.admission.plausible_counts import (
    ROUNDS,
    SEARCHES,
    TOKENS_PER_BYTE,
    UNSEEN_TOKENS,
    WINDOWS,
    believed,
    believed_at_all,
)
from gateway.types import Candidate, ChatRequest, Usage
from tests.gateway.admission.test_bounds import request
from tests.gateway.dialects.samples import target


WINDOW = 1_000_000
WIDE = structs.replace(target(), context_window_tokens=WINDOW)
CANDIDATE = Candidate(WIDE, 16, 1)
PLAIN = request("openai_chat")
SHOWN = TOKENS_PER_BYTE * len(PLAIN.raw) + UNSEEN_TOKENS
figures = st.integers(0, 10**9)
usages = st.builds(
    Usage,
    input_tokens=figures,
    output_tokens=figures,
    cache_read_tokens=figures,
    cache_write_tokens=figures,
    cache_write_1h_tokens=figures,
    reasoning_tokens=figures,
    web_searches=figures,
)


def read_of(asked: ChatRequest, tokens: int, candidate: Candidate = CANDIDATE) -> int:
    return believed(asked, candidate, Usage(tokens, 1)).input_tokens


@pytest.mark.parametrize(
    "usage",
    [
        Usage(SHOWN, 16),
        Usage(20, WINDOWS * WINDOW),
        Usage(100, 7, cache_read_tokens=60, cache_write_tokens=30, reasoning_tokens=5),
        Usage(5, 7, cache_read_tokens=600),
    ],
    ids=["templates", "an upstream that knows no limit", "a cache", "a cache beside its input"],
)
def test_what_can_be_is_taken_as_it_was_counted_also_beyond_what_was_reserved(
    usage: Usage,
) -> None:
    assert believed(PLAIN, CANDIDATE, usage) is usage


def test_plain_input_is_bounded_by_its_bytes_and_what_none_shows_by_the_window() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    seen = request("openai_chat", messages=[{"role": "user", "content": [image]}])

    assert read_of(PLAIN, SHOWN + 1) == 0
    assert read_of(seen, WINDOWS * WINDOW) == WINDOWS * WINDOW
    assert read_of(seen, WINDOWS * WINDOW + 1) == 0


def test_what_a_document_holds_is_bounded_by_the_window_too() -> None:
    source = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
    part = {"type": "document", "source": source}
    read = request("anthropic_messages", messages=[{"role": "user", "content": [part]}])

    assert read_of(read, WINDOWS * WINDOW) == WINDOWS * WINDOW
    assert read_of(read, WINDOWS * WINDOW + 1) == 0


def test_of_texts_that_are_made_vectors_each_may_be_as_long_as_a_window() -> None:
    small = Candidate(structs.replace(WIDE, context_window_tokens=1), 16, 1)
    many = structs.replace(PLAIN, purpose="embedding", raw=PLAIN.raw + b" " * UNSEEN_TOKENS)
    shown = TOKENS_PER_BYTE * len(many.raw) + UNSEEN_TOKENS

    assert read_of(many, shown, small) == shown
    assert read_of(many, shown + 1, small) == 0


def test_all_that_was_written_to_a_cache_counts_as_read() -> None:
    half = SHOWN // 2 + 1
    for told in (
        Usage(1, 1, cache_read_tokens=half, cache_write_tokens=half),
        Usage(1, 1, cache_read_tokens=half, cache_write_1h_tokens=half),
    ):
        seen = believed(PLAIN, CANDIDATE, told)
        assert (seen.input_tokens, seen.disbelieved) == (0, 2 * half)


def test_each_figure_that_is_not_believed_is_noted() -> None:
    told = Usage(10**9, 10**10, web_searches=10**3)
    assert believed(PLAIN, CANDIDATE, told).disbelieved == 10**9 + 10**10 + 10**3


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "web_search_20260209", "name": "web_search"}]},
        {"tools": [{"type": "something_new", "name": "t"}]},
        {"mcp_servers": [{"type": "url", "url": "https://example.org", "name": "a"}]},
    ],
    ids=["search", "unknown", "servers"],
)
def test_a_vendor_that_runs_tools_may_read_it_all_again(more: dict[str, Any]) -> None:
    assert_read_again(request("anthropic_messages", **more))


def test_so_may_one_that_searches_in_a_chat_or_with_a_tool_that_an_item_brings() -> None:
    brought = {"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search"}]}
    said = {"role": "user", "content": "Hi"}

    assert_read_again(request("openai_chat", web_search_options={}))
    assert_read_again(request("openai_responses", input=[brought, said]))


def assert_read_again(asked: ChatRequest) -> None:
    assert read_of(asked, ROUNDS * WINDOWS * WINDOW) > 0
    assert read_of(asked, ROUNDS * WINDOWS * WINDOW + 1) == 0


def test_tools_of_the_callers_own_are_no_reason_to_read_it_again() -> None:
    function = {"type": "function", "function": {"name": "f", "parameters": {}}}
    own = request("openai_chat", tools=[function])
    plain = request("anthropic_messages", tools=[{"name": "f", "input_schema": {}}])

    assert [read_of(asked, 3 * WINDOW) for asked in (own, plain)] == [0, 0]


def test_each_answer_that_is_asked_for_may_be_as_long_as_a_window() -> None:
    several = request("openai_chat", n=3)

    written = believed(several, CANDIDATE, Usage(9, 3 * WINDOWS * WINDOW))
    too_many = believed(several, CANDIDATE, Usage(9, 3 * WINDOWS * WINDOW + 1))

    assert (written.output_tokens, too_many.output_tokens) == (3 * WINDOWS * WINDOW, 0)


def test_searches_beyond_all_that_is_asked_for_cost_what_was_reserved_for_them() -> None:
    tools = [{"type": "web_search_20260209", "name": "web_search", "max_uses": 5}]
    asked = request("anthropic_messages", tools=tools)

    most = believed(asked, CANDIDATE, Usage(9, 9, web_searches=SEARCHES))
    more = believed(asked, CANDIDATE, Usage(9, 9, web_searches=SEARCHES + 1))

    assert (most.web_searches, most.estimated) == (SEARCHES, False)
    assert (more.web_searches, more.estimated, more.disbelieved) == (5, True, SEARCHES + 1)


def test_what_was_told_is_kept_beside_what_stands_in_for_it() -> None:
    told = Usage(10**9, 7, cache_read_tokens=10**8, service_tier="flex")

    assert believed(PLAIN, CANDIDATE, told) == Usage(
        0, 7, estimated=True, service_tier="flex", disbelieved=10**9
    )


@given(usages)
@example(Usage(1, 1, cache_read_tokens=10**9))  # what was reserved for, but for one figure
@example(Usage(1, 1, cache_write_tokens=10**9))
def test_figures_are_taken_or_left_never_changed_and_a_second_look_finds_nothing(
    told: Usage,
) -> None:
    seen = believed(PLAIN, CANDIDATE, told)

    for name in ("input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens"):
        assert getattr(seen, name) in {0, getattr(told, name)}
    assert max(seen.input_tokens, seen.cache_read_tokens) <= SHOWN
    assert seen.output_tokens <= WINDOWS * WINDOW
    assert seen.estimated == bool(seen.disbelieved) == (seen != told)
    assert believed(PLAIN, CANDIDATE, seen) is seen


@given(usages)
def test_without_its_request_no_figure_is_refused_that_some_request_could_have(told: Usage) -> None:
    if not believed(PLAIN, CANDIDATE, told).disbelieved:
        assert believed_at_all(told, WIDE) is told
