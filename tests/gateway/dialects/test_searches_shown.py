"""Searches of a stream that broke before it told them: what it showed to be done is booked."""

import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.anthropic_messages import reply as messages
from gateway.dialects.anthropic_messages.stream_in import MessageStreamDecoder
from gateway.dialects.openai_responses import reply as responses
from gateway.dialects.openai_responses.stream_in import ResponseStreamDecoder
from gateway.ports import StreamDecoder
from gateway.tally import Tally


Step = Literal["search", "failed search", "page", "text", "code"]
Event = tuple[str, dict[str, Any], int]
"""Its kind, what it says, and how many searches are paid for once it came."""

steps = st.lists(st.sampled_from(["search", "failed search", "page", "text", "code"]), max_size=12)
OPENED: dict[str, Any] = {"input_tokens": 9, "output_tokens": 1}
FAILED = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
FOUND: list[Any] = [
    {"type": "web_search_result", "title": "[T]", "url": "https://docs.example.com"}
]
TOOLS = {"search": "web_search", "failed search": "web_search", "page": "web_fetch"}


def blocks_of(step: Step) -> list[dict[str, Any]]:
    """The blocks of a message for one step, as a whole answer has them."""
    if step == "text":
        return [{"type": "text", "text": "Some words."}]
    name = TOOLS.get(step, "code_execution")
    asks = {"type": "server_tool_use", "id": "s", "name": name, "input": {"query": "a"}}
    got = FAILED if step == "failed search" else FOUND
    return [asks, {"type": f"{name}_tool_result", "tool_use_id": "s", "content": got}]


def message_events(asked: list[Step]) -> Iterator[Event]:
    paid = 0
    yield "message_start", {"message": {"id": "msg_1", "usage": OPENED}}, 0
    index = 0
    for step in asked:
        for block in blocks_of(step):
            paid -= block.get("content") == FAILED
            yield "content_block_start", {"index": index, "content_block": block}, paid
            if step != "text":
                piece = {"type": "input_json_delta", "partial_json": "{}"}
                yield "content_block_delta", {"index": index, "delta": piece}, paid
            paid += block.get("name") == "web_search"
            yield "content_block_stop", {"index": index}, paid
            index += 1


def items_of(step: Step) -> list[dict[str, Any]]:
    call: dict[str, Any] = {"type": "web_search_call", "id": "ws", "status": "completed"}
    if step == "search":
        return [call | {"action": {"type": "search", "query": "a", "queries": ["a", "b"]}}]
    if step == "failed search":
        return [call | {"action": None}]
    if step == "page":
        return [call | {"action": {"type": "open_page", "url": "https://docs.example.com"}}]
    said = [{"type": "output_text", "text": "Some words."}]
    if step == "text":
        return [{"type": "message", "role": "assistant", "content": said}]
    return [{"type": "code_interpreter_call", "id": "ci", "code": "1"}]


def response_events(asked: list[Step]) -> Iterator[Event]:
    paid = 0
    yield "response.created", {"response": {"object": "response", "id": "r"}}, 0
    for index, step in enumerate(asked):
        for item in items_of(step):
            opening = item | {"content": []} if step == "text" else item
            yield "response.output_item.added", {"output_index": index, "item": opening}, paid
            if step == "text":
                yield "response.output_text.delta", {"delta": "Some words."}, paid
            paid += {"search": 2, "failed search": 1}.get(step, 0)
            yield "response.output_item.done", {"output_index": index, "item": item}, paid


def told_of(decoder: StreamDecoder, events: list[Event], *more: Event) -> Tally:
    tally = Tally(0)
    for kind, fields, _ in (*events, *more):
        data = json.dumps({"type": kind} | fields)
        tally.add(decoder.feed(f"event: {kind}\ndata: {data}\n\n".encode()))
    return tally


@given(steps, st.data())
def test_of_a_message_that_broke_each_search_that_was_asked_for_and_did_not_fail_is_booked(
    asked: list[Step], data: st.DataObject
) -> None:
    events = list(message_events(asked))
    events = events[: data.draw(st.integers(1, len(events)))]
    usage = told_of(MessageStreamDecoder(), events).usage_so_far(5)
    assert (usage.web_searches, usage.estimated) == (events[-1][2], True)


@given(steps, st.data())
def test_of_a_response_that_broke_each_query_that_was_shown_is_booked(
    asked: list[Step], data: st.DataObject
) -> None:
    events = list(response_events(asked))
    events = events[: data.draw(st.integers(1, len(events)))]
    usage = told_of(ResponseStreamDecoder(), events).usage_so_far(5)
    assert (usage.web_searches, usage.estimated) == (events[-1][2], True)


@given(steps, st.integers(0, 20))
def test_what_a_whole_message_says_it_searched_is_what_counts(asked: list[Step], told: int) -> None:
    counted = {"output_tokens": 7, "server_tool_use": {"web_search_requests": told}}
    delta = {"delta": {"stop_reason": "end_turn"}, "usage": counted}
    events = list(message_events(asked))
    end: list[Event] = [("message_delta", delta, 0), ("message_stop", {}, 0)]
    for more in (end, end[:1]):
        tally = told_of(MessageStreamDecoder(), events, *more)
        for usage in (tally.usage(5), tally.usage_so_far(5)):
            assert (usage.web_searches, usage.estimated) == (told, False)


def test_what_was_seen_is_seen_by_whoever_reads_on() -> None:
    events = list(message_events(["search", "text", "search"]))
    tally = told_of(MessageStreamDecoder(), events[:5])
    decoder = MessageStreamDecoder()
    more = [
        event
        for kind, fields, _ in message_events(["search"])
        for event in decoder.feed(
            f"event: {kind}\ndata: {json.dumps({'type': kind} | fields)}\n\n".encode()
        )
    ]
    assert tally.and_then(more).usage_so_far(5).web_searches == 2
    assert tally.usage_so_far(5).web_searches == 1


def test_a_stream_that_showed_a_search_and_no_word_is_not_empty() -> None:
    tally = told_of(ResponseStreamDecoder(), list(response_events(["search"])))
    assert not tally.is_empty
    assert tally.usage(5).web_searches == 2


@given(steps)
def test_a_whole_answer_without_a_usage_is_booked_with_what_it_shows(asked: list[Step]) -> None:
    blocks = [block for step in asked for block in blocks_of(step)]
    message = {"type": "message", "content": blocks}
    found = messages.decode_reply(json.dumps(message).encode()).usage
    assert (found.web_searches, found.estimated) == (asked.count("search"), True)
    items = [item for step in asked for item in items_of(step)]
    response = {"object": "response", "status": "completed", "output": items}
    found = responses.decode_reply(json.dumps(response).encode()).usage
    queries = 2 * asked.count("search") + asked.count("failed search")
    assert (found.web_searches, found.estimated) == (queries, True)


@pytest.mark.parametrize("content", [None, "[", 7])
def test_a_failure_of_which_nothing_was_asked_is_below_no_search(content: object) -> None:
    block = {"type": "web_search_tool_result", "content": FAILED}
    message = {"type": "message", "content": [block, block | {"content": content}]}
    assert messages.decode_reply(json.dumps(message).encode()).usage.web_searches == 0
    events: list[Event] = [("content_block_start", {"index": 0, "content_block": block}, 0)]
    assert told_of(MessageStreamDecoder(), events).usage_so_far(5).web_searches == 0
