"""Summaries of a stream that broke before it counted them: that all was read for one is booked."""

import json
from typing import Any

import pytest

from gateway.dialects.anthropic_messages.stream_in import MessageStreamDecoder
from gateway.tally import Tally
from gateway.types import Usage


OPENED = {"input_tokens": 23_000, "cache_read_input_tokens": 7, "output_tokens": 1}
COUNTED = {
    "output_tokens": 9,
    "iterations": [{"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500}],
}
READ_TOKENS = 170_000
"""Our estimate of all that was asked."""
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("message_start", {"message": {"id": "msg_1", "usage": OPENED}}),
    ("content_block_start", {"index": 0, "content_block": {"type": "compaction"}}),
    (
        "content_block_delta",
        {"index": 0, "delta": {"type": "compaction_delta", "content": "They spoke."}},
    ),
    ("content_block_stop", {"index": 0}),
    ("content_block_start", {"index": 1, "content_block": {"type": "text", "text": ""}}),
    ("content_block_delta", {"index": 1, "delta": {"type": "text_delta", "text": "Yes."}}),
    ("content_block_stop", {"index": 1}),
    ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": COUNTED}),
    ("message_stop", {}),
]


def usage_after(count: int, events: list[tuple[str, dict[str, Any]]] = EVENTS) -> Usage:
    decoder, tally = MessageStreamDecoder(), Tally(0, vendor="anthropic")
    for kind, fields in events[:count]:
        raw = f"event: {kind}\ndata: {json.dumps({'type': kind} | fields)}\n\n".encode()
        found = decoder.feed(raw)
        assert b"".join(event.raw for event in found) == raw
        tally.add(found)
    return tally.usage_so_far(READ_TOKENS)


@pytest.mark.parametrize("count", range(1, len(EVENTS) + 1))
def test_of_a_message_that_broke_a_summary_that_was_shown_is_booked_as_read(count: int) -> None:
    usage = usage_after(count)
    is_summed_up, is_counted = count >= 4, count >= 8
    beyond = 180_000 if is_counted else READ_TOKENS if is_summed_up else 0
    assert usage.input_tokens == 23_007 + beyond
    assert usage.cache_read_tokens == 7
    assert usage.compactions == is_summed_up
    assert usage.estimated is not is_counted
    assert not is_counted or usage.output_tokens == 3_509


def test_two_summaries_of_one_answer_are_two() -> None:
    """As where tools that its vendor runs fill the conversation anew."""
    twice = [*EVENTS[:7], *EVENTS[1:]]
    for count, summaries in ((4, 1), (8, 1), (10, 2), (13, 2)):
        usage = usage_after(count, twice)
        assert usage.compactions == summaries
        assert usage.input_tokens == 23_007 + summaries * READ_TOKENS


def test_what_a_summary_says_was_written_too() -> None:
    words = "They spoke of the harbour, and of ships that came late. " * 40
    said = {"index": 0, "delta": {"type": "compaction_delta", "content": words}}
    long = [*EVENTS[:2], ("content_block_delta", said), *EVENTS[3:]]
    assert usage_after(3).output_tokens < 10
    assert 300 < usage_after(3, long).output_tokens < 900
    assert usage_after(6, long).output_tokens >= usage_after(3, long).output_tokens
    assert usage_after(8, long).output_tokens == 3_509  # What is counted at the end is what counts.


@pytest.mark.parametrize("content", [None, "", 7, ["They spoke."], {"text": "They spoke."}])
def test_a_summary_that_says_no_words_of_its_own_is_passed_on(content: object) -> None:
    said = {"index": 0, "delta": {"type": "compaction_delta", "content": content}}
    odd = [*EVENTS[:2], ("content_block_delta", said), *EVENTS[3:]]
    assert usage_after(4, odd).compactions == 1
    assert usage_after(9, odd).output_tokens == 3_509
