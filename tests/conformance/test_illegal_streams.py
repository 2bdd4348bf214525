"""Streams that no upstream should send: each ends well or in an error that the SDK raises."""

import json
import re
from collections.abc import Callable, Mapping

import anthropic
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.types import DialectName
from tests.conformance.relayed import Ending, relayed
from tests.conformance.test_streams_equal_whole_answers import (
    PAIRS,
    READER,
    REQUESTS,
    SOURCES,
    comparable,
    plain,
)
from tests.conformance.told_answers import Json, Told, data_of, event
from tests.upstream_messages import anthropic_events
from tests.upstream_responses import openai_response_events
from tests.upstreams import Answer


FAILURES: Mapping[DialectName, bytes] = {
    "openai_chat": data_of({"error": {"message": "x", "type": "server_error"}}),
    "anthropic_messages": event("error", error={"type": "overloaded_error", "message": "x"}),
    "openai_responses": event("error", code="server_error", message="x", param=None),
}
CROSSING = [(source, caller) for source, caller in PAIRS if source != caller]
PLACES = st.integers(0, 1_000_000)
BROKEN = ["stream_broken", "upstream_malformed"]


def shown(caller: DialectName, ending: Ending) -> Json | None:
    """The answer as the official SDK has it; None where it raised an error of its own kind."""
    try:
        return READER.streamed(caller, [ending.sent])
    except (openai.OpenAIError, anthropic.APIError):
        return None


def check_broken(caller: DialectName, ending: Ending) -> None:
    """It is told as an error, and recorded as one; or nothing of it was told."""
    if ending.outcome is None:
        assert ending.refusal in BROKEN
        assert ending.sent == b""
        return
    assert shown(caller, ending) is None
    assert ending.is_cut == (caller == "openai_chat")
    assert (ending.outcome.status, ending.outcome.error in BROKEN) == ("incomplete", True)


@pytest.mark.parametrize(("source", "caller"), PAIRS)
def test_a_stream_that_ends_anywhere_before_its_end_is_an_error(
    source: DialectName, caller: DialectName
) -> None:
    @settings(max_examples=15)
    @given(SOURCES[source], PLACES)
    def is_told(told: Told, place: int) -> None:
        before = b"".join(told.events[:-1])
        check_broken(caller, relayed(source, REQUESTS[caller], [before[: place % len(before)]]))

    is_told()


@pytest.mark.parametrize(
    ("source", "caller"), [pair for pair in PAIRS if pair[0] != "openai_responses"]
)
def test_an_end_without_a_reason_is_an_error_of_an_upstream_that_gives_reasons(
    source: DialectName, caller: DialectName
) -> None:
    """A program between us and the model may end in good order what broke behind it."""

    @settings(max_examples=8)
    @given(SOURCES[source])
    def is_told(told: Told) -> None:
        reasons = re.compile(rb'"(finish_reason|stop_reason)": "[a-z_]+"')
        events = [reasons.sub(rb'"\1": null', each) for each in told.events]
        assert events != list(told.events)
        check_broken(caller, relayed(source, REQUESTS[caller], events, explains=True))
        ending = relayed(source, REQUESTS[caller], events)
        assert ending.outcome is not None
        assert ending.outcome.status == "ok"

    is_told()


@pytest.mark.parametrize(("source", "caller"), PAIRS)
def test_an_error_in_the_middle_is_an_error_whatever_follows(
    source: DialectName, caller: DialectName
) -> None:
    @settings(max_examples=15)
    @given(SOURCES[source], PLACES)
    def is_told(told: Told, place: int) -> None:
        events = list(told.events)
        events.insert(place % len(events), FAILURES[source])
        check_broken(caller, relayed(source, REQUESTS[caller], events))

    is_told()


@pytest.mark.parametrize(("source", "caller"), PAIRS)
def test_what_follows_the_end_changes_nothing(source: DialectName, caller: DialectName) -> None:
    @settings(max_examples=15)
    @given(SOURCES[source], st.lists(PLACES, min_size=1, max_size=3))
    def is_the_same(told: Told, places: list[int]) -> None:
        after = [told.events[-1 - place % len(told.events)] for place in places]
        ending = relayed(source, REQUESTS[caller], [*told.events, *after])

        assert ending.outcome is not None
        assert ending.outcome.status == "ok"
        got = shown(caller, ending)
        assert got is not None
        whole = READER.whole(caller, plain(told, caller))
        assert comparable(got, caller, told) == comparable(whole, caller, told)

    is_the_same()


def left_out(events: list[bytes], place: int) -> None:
    del events[place]


def said_twice(events: list[bytes], place: int) -> None:
    events.insert(place, events[place])


def swapped(events: list[bytes], place: int) -> None:
    events[place - 1 : place + 1] = reversed(events[place - 1 : place + 1])


def misplaced(events: list[bytes], place: int) -> None:
    where = re.compile(rb'"(index|output_index|content_index)": \d+')
    events[place] = where.sub(rb'"\1": %d' % (place % 9 - 1), events[place])


def unnamed(events: list[bytes], place: int) -> None:
    called = re.compile(rb'"(id|call_id)": "(?:call|toolu|functions)[^"]*"')
    nothing = (rb'"\1": null', rb'"\1": ""')[place % 2]
    events[:] = [called.sub(nothing, each) for each in events]


def no_objects(events: list[bytes], place: int) -> None:
    argued = re.compile(rb'"(arguments|partial_json)": "')
    first = (b"x", b"[", b"}", b"null")[place % 4]
    events[:] = [argued.sub(rb'"\1": "' + first, each) for each in events]


HURTS: list[Callable[[list[bytes], int], None]] = [
    *(left_out, said_twice, swapped, misplaced, unnamed, no_objects)
]


@pytest.mark.parametrize("hurt", HURTS, ids=[hurt.__name__ for hurt in HURTS])
@pytest.mark.parametrize(("source", "caller"), CROSSING)
def test_a_stream_of_illegal_events_ends_as_the_record_says(
    source: DialectName, caller: DialectName, hurt: Callable[[list[bytes], int], None]
) -> None:
    """The SDK has an answer or raises an error of its own, and nothing else, of what is ours."""

    @settings(max_examples=12)
    @given(SOURCES[source], PLACES)
    def ends_well(told: Told, place: int) -> None:
        events = list(told.events)
        hurt(events, place % len(events))
        ending = relayed(source, REQUESTS[caller], events)
        if ending.outcome is None:
            assert ending.refusal in BROKEN
            return
        try:
            got = shown(caller, ending)
        except ValueError:
            # Arguments that begin like an object are passed on as they come; the SDK says that its
            # model wrote no JSON, as it would to who calls the vendor.
            assert caller == "anthropic_messages"
            assert any(is_no_json(each) for each in arguments_of(ending.sent))
        else:
            assert (got is not None) == (ending.outcome.status == "ok")

    ends_well()


def arguments_of(sent: bytes) -> list[str]:
    """Of each call in a stream of messages, whole."""
    events = [json.loads(line[6:]) for line in sent.split(b"\n") if line.startswith(b"data: ")]
    pieces: dict[int, str] = {}
    for each in events:
        if (piece := each.get("delta", {}).get("partial_json")) is not None:
            pieces[each["index"]] = pieces.get(each["index"], "") + piece
    return list(pieces.values())


def is_no_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return True
    return False


def test_arguments_that_are_no_object_reach_callers_of_messages_as_one() -> None:
    """As in a whole answer (rule 16); each way that a stream may bring them."""
    said = [("f", '"{}"'), ("g", " [1]"), ("h", "null"), ("i", ' {"a":1}'), ("j", " ")]
    calls = [
        {"index": n, "id": f"c{n}", "function": {"name": name, "arguments": arguments[:1]}}
        for n, (name, arguments) in enumerate(said)
    ]
    rests = [{"index": n, "function": {"arguments": a[1:]}} for n, (_, a) in enumerate(said)]
    in_turn = [each for pair in zip(calls, rests, strict=True) for each in pair]
    for pieces in ([*calls, *rests], in_turn):
        events = [
            data_of({"choices": [{"index": 0, "delta": {"tool_calls": [piece]}}]})
            for piece in pieces
        ]
        events.append(data_of({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        events.append(b"data: [DONE]\n\n")
        caller: DialectName = "anthropic_messages"
        message = READER.streamed(caller, [relayed("openai_chat", REQUESTS[caller], events).sent])
        assert [block["input"] for block in message["content"]] == [
            *({"_raw_arguments": '"{}"'}, {"_raw_arguments": " [1]"}, {"_raw_arguments": "null"}),
            *({"a": 1}, {}),
        ]


def test_a_call_that_is_told_only_when_it_is_done_is_told_all_the_same() -> None:
    call = {"type": "function_call", "id": "fc_0", "call_id": "call_0", "name": "weather"}
    call |= {"arguments": '{"a":1}', "status": "completed"}
    begun = {"id": "resp_1", "object": "response", "model": "up", "output": []}
    events = [
        event("response.created", response=begun),
        event("response.output_item.done", output_index=0, item=call),
        event("response.completed", response=begun | {"output": [call]}),
    ]
    sent = relayed("openai_responses", REQUESTS["openai_chat"], events).sent
    (choice,) = READER.streamed("openai_chat", [sent])["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"a":1}'


@pytest.mark.parametrize(("source", "caller"), PAIRS)
def test_numbers_of_events_and_names_without_data_disturb_no_client(
    source: DialectName, caller: DialectName
) -> None:
    """OpenAI's clients raise at a comment behind a number, and we end each stream with one."""

    @settings(max_examples=5)
    @given(SOURCES[source])
    def is_read(told: Told) -> None:
        numbered = [b"id: %d\n" % number + each for number, each in enumerate(told.events)]
        alone = [b"retry: 3000\n\n", b"event: ping\n\n", b"id: 7\n\n", b"data: \n\n", b"data:\n\n"]
        ending = relayed(source, REQUESTS[caller], [*alone, *numbered[:-1], *alone, numbered[-1]])
        plainly = relayed(source, REQUESTS[caller], list(told.events))
        assert shown(caller, ending) == shown(caller, plainly) is not None

    is_read()


@pytest.mark.parametrize("caller", ["anthropic_messages", "openai_responses"])
def test_a_stream_that_ends_within_the_name_of_an_event_is_an_error(caller: DialectName) -> None:
    make = {"anthropic_messages": anthropic_events, "openai_responses": openai_response_events}
    *events, last = make[caller](Answer(text="Good morning"), {"model": "m"})
    before = b"".join(events)
    for place in range(len(last.partition(b"data")[0]) + 5):
        check_broken(caller, relayed(caller, REQUESTS[caller], [before + last[:place]]))


@pytest.mark.parametrize("caller", ["openai_chat", "anthropic_messages", "openai_responses"])
@pytest.mark.parametrize("reason", ["abort", "error"])
def test_rule_60_an_answer_that_its_upstream_gave_up_is_broken(
    caller: DialectName, reason: str
) -> None:
    """As vLLM and SGLang end one when a replica is drained: with `[DONE]`."""
    choice = {"index": 0, "finish_reason": None}
    said = data_of({"id": "c", "choices": [choice | {"delta": {"content": "The first half"}}]})
    given_up = choice | {"delta": {"content": " of"}, "finish_reason": reason}
    stream = [said, data_of({"id": "c", "choices": [given_up]}), b"data: [DONE]\n\n"]
    check_broken(caller, relayed("openai_chat", REQUESTS[caller], stream))
    assert relayed("openai_chat", REQUESTS[caller], stream[1:]).refusal == "stream_broken"
