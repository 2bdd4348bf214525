"""Streams of responses as upstreams send them: what crosses, whatever shape it comes in."""

import json
from typing import Any

import pytest

from gateway.dialects.registry import DIALECTS
from gateway.dialects.sse import Splitter
from gateway.errors import UpstreamMalformed
from gateway.types import Delta, StreamEvent, Usage
from tests.gateway.dialects.samples import charged, chat, messages, sse, target, to_anthropic


RESPONSES = DIALECTS["openai_responses"]
ARGUMENTS = '{"city":"Bonn"}'
WHOLE = {"id": "resp_1", "object": "response", "model": "gpt-x", "status": "completed"}
USAGE = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}
BEGUN = sse("response.created", response={**WHOLE, "status": "in_progress", "output": []})
TARGET = target("reasoning_effort")
RESPONSES_ASKED = RESPONSES.decode_request(b'{"model":"m","input":"Hi","stream":true}', "req_1")
ENDED = sse("response.completed", response={**WHOLE, "output": [], "usage": USAGE})


def decoded(*raw: bytes) -> list[StreamEvent]:
    decoder = RESPONSES.stream_decoder()
    return [event for each in raw for event in decoder.feed(each)]


def deltas(*raw: bytes) -> list[Delta]:
    return [delta for event in decoded(*raw) for delta in event.deltas]


def crossed(request: Any, *raw: bytes) -> list[dict[str, Any]]:
    """What a caller of another dialect gets."""
    encoder = DIALECTS[request.dialect].stream_encoder(request, "openai_responses")
    events = decoded(*raw)
    stream = encoder.encode(events) + encoder.finish("", charged(events))
    told = [event.data for event in Splitter().feed(stream)]
    return [json.loads(data) for data in told if data not in {None, b"[DONE]"}]


def called(index: int, name: str, first: str, *pieces: str, last: str = "") -> list[bytes]:
    """A call whose arguments come when it begins, in pieces, or when it ends."""
    item = {"type": "function_call", "id": f"fc_{index}", "call_id": f"call_{name}", "name": name}
    kind = "response.function_call_arguments.delta"
    return [
        sse("response.output_item.added", output_index=index, item={**item, "arguments": first}),
        *(sse(kind, output_index=index, delta=piece) for piece in pieces),
        sse("response.output_item.done", output_index=index, item={**item, "arguments": last}),
    ]


def test_calls_that_name_no_place_or_all_the_same_are_calls_of_their_own() -> None:
    """Clients join what has one index: a third call became part of the second."""
    stream = [
        each for name in ("a", "b", "c") for each in called(0, name, "", f'{{"of":"{name}"}}')
    ]
    told = crossed(chat(stream=True), BEGUN, *stream, ENDED)
    calls: dict[int, list[str]] = {}
    for each in told:
        for call in each["choices"][0]["delta"].get("tool_calls", ()) if each["choices"] else ():
            said = call["function"]
            calls.setdefault(call["index"], []).append(said.get("name", "") + said["arguments"])
    assert ["".join(said) for _, said in sorted(calls.items())] == [
        'a{"of":"a"}',
        'b{"of":"b"}',
        'c{"of":"c"}',
    ]


def thought(index: int, sealed: str) -> list[bytes]:
    item = {"type": "reasoning", "id": f"rs_{index}", "summary": []}
    done = {**item, "encrypted_content": sealed}
    return [
        sse("response.output_item.added", output_index=index, item=item),
        sse("response.output_item.done", output_index=index, item=done),
    ]


@pytest.mark.parametrize(
    "call",
    [
        called(0, "f", ARGUMENTS, last=ARGUMENTS),
        called(0, "f", "", ARGUMENTS[:6], ARGUMENTS[6:], last=ARGUMENTS),
        called(0, "f", "", last=ARGUMENTS),
    ],
)
def test_arguments_of_a_call_are_told_once_however_they_come(call: list[bytes]) -> None:
    found = deltas(BEGUN, *call, ENDED)
    assert "".join(d.text for d in found if d.kind == "tool_arguments") == ARGUMENTS
    (start,) = (d for d in found if d.kind == "tool_start")
    assert (start.tool_id, start.name) == ("call_f", "f")
    assert [d.stop_reason for d in found if d.kind == "stop"] == ["tool_use"]


def test_reasoning_between_two_calls_stays_between_them_and_goes_back_to_its_vendor() -> None:
    raw = [*thought(0, "one"), *called(1, "f", "", "{}"), *thought(2, "two"), *called(3, "g", "")]
    starts = [
        event["content_block"]
        for event in crossed(messages(stream=True), BEGUN, *raw, ENDED)
        if event["type"] == "content_block_start"
    ]
    assert [block["type"] for block in starts] == ["redacted_thinking", "tool_use"] * 2

    blocks = [{**block, "input": {}} if "name" in block else block for block in starts]
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
        for block in blocks
        if "name" in block
    ]
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": results},
    ]
    request = messages(messages=turns)
    sent = json.loads(RESPONSES.encode_request(request, TARGET, 100).body)["input"]
    said = [item.get("encrypted_content") or item.get("name") for item in sent]
    assert [each for each in said if each] == ["one", "f", "two", "g"]


def test_an_assistant_s_item_without_words_ends_no_turn() -> None:
    call = {"type": "function_call", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "output": "ok"}
    items = [
        {"role": "user", "content": "Hi"},
        {**call, "call_id": "a"},
        {"type": "message", "role": "assistant", "content": []},
        {**call, "call_id": "b"},
        {**output, "call_id": "a"},
        {**output, "call_id": "b"},
    ]
    body = json.dumps({"model": "m", "input": items}).encode()
    sent, _ = to_anthropic(RESPONSES.decode_request(body, "req_1"))
    roles = [(turn["role"], len(turn["content"])) for turn in sent["messages"]]
    assert roles == [("user", 1), ("assistant", 2), ("user", 2)]


def test_what_a_stream_of_responses_means() -> None:
    place = {"output_index": 0, "item_id": "i"}
    raw = (
        BEGUN,
        sse("response.in_progress", response={**WHOLE, "status": "in_progress"}),
        sse("response.reasoning_summary_text.delta", **place, delta="Hm"),
        sse("response.reasoning_text.delta", **place, delta="."),
        sse("response.output_text.delta", **place, delta="Hi"),
        sse("response.refusal.delta", **place, delta="No"),
        b"data: [DONE]\n\n",
        ENDED,
        sse("response.output_text.delta", **place, delta="late"),
    )
    events = decoded(*raw)
    found = [delta for event in events for delta in event.deltas]

    assert [(d.kind, d.text) for d in found if d.text] == [
        *(("thinking", "Hm"), ("thinking", "."), ("text", "Hi"), ("refusal", "No")),
    ]
    assert [(d.message_id, d.model) for d in found if d.kind == "start"] == [("resp_1", "gpt-x")]
    (usage,) = (d.usage for d in found if d.kind == "usage")
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (5, 3)
    assert [d.stop_reason for d in found if d.kind == "stop"] == ["content_filter"]
    assert [event.is_terminal for event in events].count(True) == 1
    assert events[-1].is_terminal
    # The end of a chat completion's stream is none of ours, and is not passed on.
    assert [event.raw for event in events if b"DONE" in event.raw] == []


@pytest.mark.parametrize("missing", ["name", "call_id"])
def test_a_call_that_cannot_be_answered_is_refused(missing: str) -> None:
    item = {"type": "function_call", "call_id": "c", "name": "f"}
    del item[missing]
    with pytest.raises(UpstreamMalformed, match="without a name or an id"):
        decoded(BEGUN, sse("response.output_item.added", output_index=0, item=item))


@pytest.mark.parametrize("kind", ["error", "response.failed", "response.cancelled"])
def test_each_failure_of_a_response_is_an_error_and_its_words_are_not_told(kind: str) -> None:
    failed = sse(kind, code="rate_limit", message="secret words", response={**WHOLE, "id": "r"})
    (event,) = decoded(failed)
    assert [(d.kind, d.text) for d in event.deltas] == [("error", "rate_limit")]
    assert event.raw == b""


def test_a_response_without_deltas_to_speak_of_crosses_as_an_empty_answer() -> None:
    for request in (chat(stream=True), messages(stream=True)):
        last = crossed(request, BEGUN, sse("response.output_text.delta", output_index=0), ENDED)[-1]
        assert last.get("type", "message_stop") == "message_stop"


def summed(place: int, index: int, text: str) -> list[bytes]:
    """A part of a summary as the vendor sends it; without words, no more than its edges."""
    part = {"output_index": place, "item_id": f"rs_{place}", "summary_index": index}
    empty = {"type": "summary_text", "text": ""}
    said = [sse("response.reasoning_summary_text.delta", **part, delta=text)] if text else []
    return [
        sse("response.reasoning_summary_part.added", **part, part=empty),
        *said,
        sse("response.reasoning_summary_text.done", **part, text=text),
        sse("response.reasoning_summary_part.done", **part, part={**empty, "text": text}),
    ]


@pytest.mark.parametrize("texts", [["One.", "Two.", "Three."], ["", "Two."], ["One.", ""]])
def test_parts_of_a_summary_stand_apart_in_a_stream_as_in_a_whole_answer(texts: list[str]) -> None:
    summary = [{"type": "summary_text", "text": text} for text in texts]
    item = {"type": "reasoning", "id": "rs_0", "summary": summary}
    whole = RESPONSES.decode_reply(json.dumps({**WHOLE, "output": [item]}).encode())
    raw = [each for index, text in enumerate(texts) for each in summed(0, index, text)]

    told = crossed(chat(stream=True), BEGUN, *raw, ENDED)
    pieces = [choice["delta"] for each in told for choice in each["choices"]]
    assert "".join(p.get("reasoning_content", "") for p in pieces) == whole.thinking[0].text

    told = crossed(messages(stream=True), BEGUN, *raw, ENDED)
    pieces = [each["delta"] for each in told if each["type"] == "content_block_delta"]
    assert "".join(each["thinking"] for each in pieces) == whole.thinking[0].text


def test_another_thought_is_no_part_of_the_one_before() -> None:
    raw = [*summed(0, 0, "One."), *summed(1, 0, "Two."), *summed(1, 1, "Three.")]
    kinds = [delta.kind for delta in deltas(*raw)]
    assert kinds == ["thinking", "thinking", "part", "thinking"]


DELTA = "response.output_text.delta"
ARGUED = "response.function_call_arguments.delta"
MESSAGE = {"type": "message", "id": "msg_0", "role": "assistant", "content": []}
CUSTOM = {"type": "custom_tool_call", "id": "ctc_0", "call_id": "c", "name": "f", "input": ""}
ANNOTATED = "response.output_text.annotation.added"
SHOWN: list[tuple[bytes, bool, tuple[int, ...] | None, list[str]]] = [
    (b": awake\n\n", False, (), []),
    (sse(DELTA, delta="a"), True, None, ["text"]),
    (sse(DELTA, delta=""), True, (), ["text"]),
    (sse("response.refusal.delta", delta="a"), True, None, ["refusal"]),
    (sse("response.reasoning_text.delta", delta="a"), True, None, ["thinking"]),
    (sse(ARGUED, output_index=5, delta="a"), True, None, ["opaque"]),
    (sse(ARGUED, output_index=5), True, (), ["opaque"]),
    (sse("response.code_interpreter_call_code.delta", delta="a"), True, None, ["opaque"]),
    (sse("response.something_new", item_id=7), True, (), ["opaque"]),
    (sse("response.something_new"), False, (), []),
    (sse(ANNOTATED, annotation={}), False, (), []),
    (sse("response.output_text.done", text="a"), False, None, []),
    (sse("response.output_item.added", item=MESSAGE), False, None, []),
    (sse("response.output_item.added", item={"type": "reasoning"}), False, None, []),
    (sse("response.output_item.added", item=CUSTOM), True, None, ["text_tool_start"]),
    (sse("response.output_item.done", item=MESSAGE), False, None, []),
    (BEGUN, False, None, ["start"]),
]


@pytest.mark.parametrize(("event", "is_shown", "settles", "kinds"), SHOWN)
def test_what_the_caller_sees_of_the_answer_in_an_event_and_what_it_ends(
    event: bytes, *, is_shown: bool, settles: tuple[int, ...] | None, kinds: list[str]
) -> None:
    """After the first that shows something no other target is tried."""
    (read,) = decoded(event)
    assert (read.has_content, read.settles, read.is_terminal) == (is_shown, settles, False)
    assert [delta.kind for delta in read.deltas] == kinds


@pytest.mark.parametrize("last", ["", ARGUMENTS])
def test_a_call_that_ends_shows_what_was_not_shown_of_it(last: str) -> None:
    begun, ended = decoded(*called(0, "f", "", last=last))
    assert (begun.has_content, ended.has_content) == (True, True)
    assert [delta.text for delta in ended.deltas] == [last] * bool(last)


def test_an_end_without_its_blank_line_counts() -> None:
    decoder = RESPONSES.stream_decoder()
    assert decoder.feed(BEGUN + ENDED.rstrip(b"\n"))[0].deltas[0].kind == "start"
    (end,) = decoder.close()
    assert end.is_terminal


def test_a_call_that_is_done_twice_is_told_once() -> None:
    begun, done = called(0, "f", "", last=ARGUMENTS)
    said = [delta.text for delta in deltas(begun, done, done) if delta.kind == "tool_arguments"]
    assert said == [ARGUMENTS]


WORDS = [{"type": "output_text", "text": "All of it."}, {"type": "output_text", "text": " Yes."}]
SAID = {**MESSAGE, "content": WORDS}


def whole(*items: Any, **fields: Any) -> bytes:
    return sse("response.completed", response={**WHOLE, "output": items, "usage": USAGE, **fields})


@pytest.mark.parametrize(
    "raw",
    [
        (sse("response.output_item.done", item=SAID), ENDED),
        (sse("response.output_item.done", item=SAID), whole(SAID)),
        (sse(DELTA, delta="All of it. Yes."), whole(SAID)),
        # The same words in two places of the output are one message that is numbered badly.
        (
            sse(DELTA, delta="All of it. Yes."),
            sse("response.output_item.done", output_index=1, item=SAID),
            whole({"type": "reasoning", "summary": []}, SAID),
        ),
        (whole(SAID),),
    ],
)
def test_words_are_told_once_however_they_come(raw: tuple[bytes, ...]) -> None:
    said = "".join(d.text for d in deltas(BEGUN, *raw) if d.kind == "text")
    assert said == "All of it. Yes."
    told = crossed(messages(stream=True), BEGUN, *raw)
    pieces = [each["delta"]["text"] for each in told if each["type"] == "content_block_delta"]
    assert "".join(pieces) == said
    # A caller of the same dialect has the upstream's bytes, and each of them once.
    encoder = RESPONSES.stream_encoder(RESPONSES_ASKED, "openai_responses")
    events = decoded(BEGUN, *raw)
    sent = encoder.encode(events) + encoder.finish("", charged(events))
    assert sent.count(b'"response.completed"') == 1
    assert sent.count(b'"delta"') == b"".join(raw).count(b'"delta"')


def test_two_messages_take_turns_and_neither_is_told_twice() -> None:
    raw = [sse(DELTA, output_index=place, delta=text) for place, text in ((0, "a"), (1, "b"))]
    for place, text in ((0, "a"), (1, "b"), (2, "c"), (2, "c")):
        item = {**MESSAGE, "content": [{"type": "output_text", "text": text}]}
        raw.append(sse("response.output_item.done", output_index=place, item=item))
    assert [d.text for d in deltas(*raw) if d.kind == "text"] == ["a", "b", "c"]


def test_calls_and_refusals_that_only_the_last_event_has_are_told() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": ARGUMENTS}
    found = deltas(BEGUN, whole(call, {**call, "call_id": "d"}))
    starts = [(d.index, d.tool_id) for d in found if d.kind == "tool_start"]
    assert starts == [(0, "c"), (1, "d")]
    assert [d.text for d in found if d.kind == "tool_arguments"] == [ARGUMENTS] * 2
    assert [d.stop_reason for d in found if d.kind == "stop"] == ["tool_use"]

    refused = {**MESSAGE, "content": [{"type": "refusal", "refusal": "No."}]}
    found = deltas(BEGUN, whole(refused))
    assert [d.text for d in found if d.kind == "refusal"] == ["No."]
    assert [d.stop_reason for d in found if d.kind == "stop"] == ["content_filter"]


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_response_that_is_called_complete_and_says_that_it_failed_did(status: str) -> None:
    (event,) = decoded(whole(SAID, status=status))
    error, counted = event.deltas
    assert (event.raw, error, event.is_terminal) == (b"", Delta("error", status), False)
    assert counted.usage == Usage(5, 3)


def test_a_response_that_fails_says_why_to_nobody_but_the_dispatcher() -> None:
    said = {"code": "insufficient_quota", "message": "Pay."}
    (event,) = decoded(
        sse("response.failed", response={**WHOLE, "status": "failed", "error": said})
    )
    assert json.loads(event.said) == {"error": said}
    assert (event.raw, event.deltas[0]) == (b"", Delta("error", "error"))


def test_a_response_that_ends_as_incomplete_is_no_whole_answer_whatever_it_says_of_itself() -> None:
    end = sse("response.incomplete", response={**WHOLE, "output": [SAID]})
    assert [d.stop_reason for d in deltas(BEGUN, end) if d.kind == "stop"] == ["length"]
