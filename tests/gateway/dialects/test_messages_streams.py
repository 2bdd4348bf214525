"""Streams of messages as upstreams send them: what crosses, and what is no event of a message."""

import json
import re
from typing import Any

import pytest

from classifiers.identifiers import is_name
from gateway.dialects.fitting.answer_tool import ANSWER_TOOL
from gateway.dialects.fitting.naming import call_id
from gateway.dialects.sse import Splitter
from gateway.errors import UpstreamMalformed
from gateway.types import Delta, StreamEvent, Usage
from tests.gateway.dialects.samples import (
    ANTHROPIC,
    MESSAGE_START,
    MESSAGE_STOP,
    OPENAI,
    block_delta,
    block_start,
    block_stop,
    call_piece,
    chat,
    chunk,
    message_delta,
    messages,
    recoded,
    sse,
    to_anthropic,
)


DONE = b"data: [DONE]\n\n"
USE = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}


def decoded(*raw: bytes) -> list[StreamEvent]:
    decoder = ANTHROPIC.stream_decoder()
    return [event for each in raw for event in decoder.feed(each)] + decoder.close()


def told(*raw: bytes) -> list[tuple[str, str, int]]:
    return [(d.kind, d.text, d.index) for event in decoded(*raw) for d in event.deltas]


def deltas(kind: str, *raw: bytes) -> list[Delta]:
    return [d for event in decoded(*raw) for d in event.deltas if d.kind == kind]


@pytest.mark.parametrize(
    "event",
    [
        sse("content_block_delta", index=0),
        sse("content_block_start", index=0),
        sse("message_start"),
        *(block_start(0, **{**USE, name: ""}) for name in ("id", "name")),
        *(block_start(0, **{k: v for k, v in USE.items() if k != name}) for name in ("id", "name")),
    ],
)
def test_what_lacks_what_it_is_there_for_is_malformed(event: bytes) -> None:
    with pytest.raises(UpstreamMalformed):
        decoded(MESSAGE_START, event)


def test_calls_are_numbered_as_they_begin_whatever_their_blocks_numbers() -> None:
    raw = (
        block_start(4, **{**USE, "input": {"a": 1}}),
        block_start(2, **USE),
        block_delta(2, type="input_json_delta", partial_json='{"b":'),
        block_delta(4, type="input_json_delta", partial_json=""),
        block_delta(2, type="input_json_delta", partial_json="2}"),
    )
    assert told(*raw) == [
        *(("tool_start", "", 0), ("tool_arguments", '{"a":1}', 0), ("tool_start", "", 1)),
        *(("tool_arguments", '{"b":', 1), ("tool_arguments", "2}", 1)),
    ]


def test_blocks_that_begin_with_words_say_them_and_empty_ones_say_nothing() -> None:
    for kind in ("text", "thinking"):
        assert told(block_start(0, type=kind, **{kind: "So"})) == [(kind, "So", 0)]
        assert told(block_start(0, type=kind, **{kind: ""})) == []
        event = decoded(block_start(0, type=kind, **{kind: ""}))[0]
        assert not event.has_content
    (sealed,) = deltas("thinking", block_start(0, type="redacted_thinking", data="b3Bh"))
    assert sealed.redacted == "b3Bh"
    assert told(block_start(0, type="redacted_thinking", data="")) == [("opaque", "", 0)]


BLOB = {"text": {"parts": ["Call 7"]}, "thinking": 5, "name": [1], "id": 7, "input": "x"}
"""A block in a shape of its own."""


@pytest.mark.parametrize(
    "pieces",
    [
        [block_start(0, type="hologram", **BLOB), block_delta(0, type="hologram_delta", text=[1])],
        [block_start(0, type="hologram"), sse("content_block_delta", index=0, delta="Call 7")],
        [block_start(0, type="hologram"), block_delta(0, type="text_delta", text={"a": "Call 7"})],
        [block_start(0, type="text", text=""), block_delta(0, type="hologram_delta", thinking=[7])],
        [block_start(0, type="hologram", text="Call"), block_delta(0, text="7")],
        [block_start(0, type="hologram"), block_delta(0, type="thinking_delta", thinking="7")],
        [sse("hologram_begun", index="first", delta=7, message=[], usage="all", error="none")],
    ],
)
def test_rule_55_what_is_of_an_unknown_kind_has_a_shape_of_its_own_and_stays_in_its_dialect(
    pieces: list[bytes],
) -> None:
    ended = () if b"block" not in pieces[0] else (block_stop(0),)
    text = (block_start(1, type="text", text=""), block_delta(1, type="text_delta", text="Hi"))
    stream = b"".join(
        (MESSAGE_START, *pieces, *ended, *text, block_stop(1), message_delta("end_turn"))
    )
    told = recoded("anthropic_messages", stream + MESSAGE_STOP, messages(stream=True))
    for each in pieces:
        assert each in told
    crossed = recoded("anthropic_messages", stream + MESSAGE_STOP, chat(stream=True))
    datas = [
        json.loads(e.data) for e in Splitter().feed(crossed) if e.data not in {None, b"[DONE]"}
    ]
    said = [data["choices"][0]["delta"] for data in datas]
    assert said == [{"role": "assistant", "content": "", "refusal": None}, {"content": "Hi"}, {}]


def test_a_whole_message_may_hold_blocks_of_unknown_kinds_and_shapes() -> None:
    content = [{"type": "hologram", **BLOB}, {"type": "text", "text": "Hi"}]
    raw = json.dumps({"type": "message", "content": content, "stop_reason": "end_turn"}).encode()
    completion = ANTHROPIC.decode_reply(raw)
    assert (completion.text, completion.tool_calls, completion.thinking) == ("Hi", (), ())
    for block in ({"type": "text", "text": 7}, {"type": 7}, "text", {}):
        raw = json.dumps({"type": "message", "content": [block]}).encode()
        with pytest.raises(UpstreamMalformed):
            ANTHROPIC.decode_reply(raw)


def test_words_of_an_unknown_block_are_held_together_by_its_number() -> None:
    pieces = (
        block_start(3, type="hologram"),
        block_delta(3, type="hologram_delta", text="Ca"),
        block_delta(3, type="hologram_delta", partial_json="ll"),
    )
    assert told(*pieces) == [("opaque", "", 0), ("opaque", "Ca", 3), ("opaque", "ll", 3)]


def test_a_signature_is_no_words_and_a_citation_is_only_its_own_dialects() -> None:
    (signed,) = deltas("thinking", block_delta(0, type="signature_delta", signature="c2ln"))
    assert (signed.signature, signed.text) == ("c2ln", "")
    (event,) = decoded(block_delta(0, type="citations_delta", citation={"cited_text": "x"}))
    assert [d.kind for d in event.deltas] == ["opaque"]
    assert (event.has_content, event.settles) == (True, ())


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, (45, 0)),
        ({"output_tokens": 12}, (45, 12)),
        ({"output_tokens": 12, "input_tokens": 20}, (55, 12)),
        ({"output_tokens": 0, "cache_read_input_tokens": 0}, (15, 0)),
    ],
)
def test_of_each_count_the_latest_holds(counts: dict[str, Any], expected: tuple[int, int]) -> None:
    end = sse("message_delta", delta={"stop_reason": "end_turn"}, usage=counts)
    last = deltas("usage", MESSAGE_START, end)[-1].usage
    assert last is not None
    assert (last.input_tokens, last.output_tokens) == expected


def test_a_stream_that_its_upstream_counts_nothing_of_has_no_usage() -> None:
    start = sse("message_start", message={"id": "m", "model": "c"})
    end = sse("message_delta", delta={"stop_reason": "end_turn"})
    assert deltas("usage", start, end, MESSAGE_STOP) == []


@pytest.mark.parametrize(
    ("reason", "sequence", "meaning"),
    [
        *(("end_turn", None, "end"), ("stop_sequence", "X", "stop_sequence")),
        *(("max_tokens", None, "length"), ("model_context_window_exceeded", None, "length")),
        *(("tool_use", None, "tool_use"), ("pause_turn", None, "pause")),
        *(("refusal", None, "content_filter"), ("of_tomorrow", None, "end")),
    ],
)
def test_every_reason_to_stop_has_its_meaning(
    reason: str, sequence: str | None, meaning: str
) -> None:
    end = message_delta(reason, stop_sequence=sequence)
    (event,) = decoded(end)
    (stop,) = (d for d in event.deltas if d.kind == "stop")
    assert (stop.stop_reason, stop.stop_sequence) == (meaning, sequence)
    assert event.is_closing
    assert bool(deltas("refusal", end)) is (reason == "refusal")


def test_a_start_names_the_message_and_an_end_without_a_reason_gives_none() -> None:
    (start,) = deltas("start", MESSAGE_START)
    assert (start.message_id, start.model) == ("msg_42", "claude-x")
    (start,) = deltas("start", sse("message_start", message={}))
    assert (start.message_id, start.model) == ("", "")
    for end in (
        sse("message_delta"),
        sse("message_delta", delta={}),
        sse("message_delta", usage={}),
    ):
        (event,) = decoded(end)
        assert (event.deltas, event.is_closing) == ((), True)
    (event,) = decoded(MESSAGE_START, sse("message_delta", delta={}))[1:]
    assert event.deltas == ()


@pytest.mark.parametrize(
    "end", [(), (sse("message_delta", delta={}),), (sse("message_delta", usage={}),)]
)
def test_a_message_that_stops_without_a_reason_is_not_explained(end: tuple[bytes, ...]) -> None:
    text = block_delta(0, type="text_delta", text="Half of ")
    raw = (MESSAGE_START, block_start(0, type="text", text=""), text, block_stop(0), *end)
    event = decoded(*raw, MESSAGE_STOP)[-1]
    assert (event.raw, event.is_terminal, event.is_unexplained) == (MESSAGE_STOP, True, True)
    event = decoded(*raw, message_delta("end_turn"), MESSAGE_STOP)[-1]
    assert (event.is_terminal, event.is_unexplained) == (True, False)


def test_what_a_block_of_tomorrow_holds_is_no_thought() -> None:
    assert told(block_start(0, type="of_tomorrow", data="b3Bh")) == [("opaque", "", 0)]


def test_a_call_that_was_the_answer_itself_is_text_and_no_call() -> None:
    answer = {**USE, "name": ANSWER_TOOL}
    piece = block_delta(0, type="input_json_delta", partial_json="{}")
    raw = (block_start(0, **answer), piece, block_stop(0), message_delta("tool_use"))
    assert told(*raw)[:2] == [("text", "{}", 0), ("stop", "", 0)]
    assert deltas("stop", *raw)[0].stop_reason == "end"
    # Beside a call of the caller's own it is still a turn of calls.
    beside = (*raw[:3], block_start(1, **USE), message_delta("tool_use"))
    assert deltas("stop", *beside)[0].stop_reason == "tool_use"
    assert deltas("stop", *raw[:3], message_delta("max_tokens"))[0].stop_reason == "length"


@pytest.mark.parametrize(
    ("error", "word"),
    [({"type": "overloaded_error"}, "overloaded_error"), ({}, "error"), (None, "error")],
)
def test_an_error_is_told_by_its_word_alone(error: dict[str, str] | None, word: str) -> None:
    (event,) = decoded(sse("error", error=error))
    assert (event.raw, [(d.kind, d.text) for d in event.deltas]) == (b"", [("error", word)])
    (event,) = decoded(sse("error", error={"type": "x" * 200}))
    assert event.deltas[0].text == "x" * 64


@pytest.mark.parametrize("ending", ["\r\n", "\r", "\n"])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_line_ends_comments_and_other_fields_change_nothing(ending: str, size: int) -> None:
    whole = (
        MESSAGE_START
        + b": comment\nretry: 3000\nid: 7\n\n"
        + block_start(0, type="text", text="")
        + b"id: 8\nretry: 1\n"
        + block_delta(0, type="text_delta", text="Grüße \u2028")
        + block_stop(0)
        + message_delta("end_turn")
        + MESSAGE_STOP
    ).replace(b"\n", ending.encode())
    events = decoded(*(whole[at : at + size] for at in range(0, len(whole), size)))
    assert [d.text for e in events for d in e.deltas if d.kind == "text"] == ["Grüße \u2028"]
    assert events[-1].is_terminal
    # Nobody may write what looks like a comment of ours.
    assert not any(b"comment" in event.raw for event in events)


COUNTED = "functions.weather:0"


def test_rule_18_an_id_that_messages_refuse_is_another_one_for_the_call_and_its_result_alike() -> (
    None
):
    function = {"name": "weather", "arguments": "{}"}
    calls = [
        {"id": given, "type": "function", "function": function}
        for given in (COUNTED, "functions_weather_0", "call_a")
    ]
    results = [{"role": "tool", "tool_call_id": each["id"], "content": "ok"} for each in calls]
    said = {"role": "assistant", "content": None, "tool_calls": calls}
    asked = chat(messages=[{"role": "user", "content": "Hi"}, said, *results])
    body, _ = to_anthropic(asked)
    uses = [block["id"] for block in body["messages"][1]["content"]]
    assert uses == [block["tool_use_id"] for block in body["messages"][2]["content"]]
    assert uses[1:] == ["functions_weather_0", "call_a"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", uses[0])
    assert len(set(uses)) == 3
    # It comes back with each turn of the caller's: no token of anybody's.
    assert all(is_name(call_id(f"functions.weather:{number}")) for number in range(100))

    stream = chunk(call_piece(0, "{}", id=COUNTED, name="weather"), "tool_calls") + DONE
    told = Splitter().feed(recoded("openai_chat", stream, messages(stream=True)))
    starts = [json.loads(e.data or b"") for e in told if e.name == b"content_block_start"]
    assert starts[0]["content_block"]["id"] == uses[0]
    message = {"role": "assistant", "content": None, "tool_calls": calls[:1]}
    reply = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
    completion = OPENAI.decode_reply(json.dumps(reply).encode())
    answer = json.loads(ANTHROPIC.encode_reply(completion, "openai_chat", messages()))
    assert answer["content"][0]["id"] == uses[0]


@pytest.mark.parametrize("starts", [0, 1, 2])
@pytest.mark.parametrize("said", [Delta("text", "a"), Delta("stop", stop_reason="end")])
def test_a_message_begins_once_however_often_it_is_said_to_begin(starts: int, said: Delta) -> None:
    begun = Delta("start", message_id="msg_1", model="m")
    encoder = ANTHROPIC.stream_encoder(messages(stream=True), "openai_chat")
    sent = encoder.encode([StreamEvent(b"", (*[begun] * starts, said))])
    kinds = [event.name for event in Splitter().feed(sent + encoder.finish("", Usage()))]
    assert kinds[0] == b"message_start"
    assert kinds.count(b"message_start") == 1


SEARCHING = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
STRANGE = {"type": "a_block_of_tomorrow", "text": 7}
SHOWN: list[tuple[bytes, bool, tuple[int, ...] | None]] = [
    (b": awake\n\n", False, ()),
    (sse("ping"), False, None),
    (sse("something_new", x=1), False, ()),
    (sse("something_new", index="x"), True, ()),
    (block_start(0, type="text", text=""), False, None),
    (block_start(0, type="text", text="a"), True, None),
    (block_start(0, type="thinking", thinking=""), False, None),
    (block_start(0, type="redacted_thinking", data="c2Vj"), True, None),
    (block_start(0, **USE), True, None),
    (block_start(0, **SEARCHING), True, None),
    (block_start(0, **STRANGE), True, ()),
    (block_delta(0, type="text_delta", text="a"), True, None),
    (block_delta(0, type="text_delta", text=""), True, ()),
    (block_delta(0, type="citations_delta", citation={}), True, ()),
    (block_delta(0, type="signature_delta"), True, ()),
    (block_delta(0, type="signature_delta", signature="c2ln"), False, None),
    (block_stop(0), False, None),
]


@pytest.mark.parametrize(("event", "is_shown", "settles"), SHOWN)
def test_what_the_caller_sees_of_the_answer_in_an_event_and_what_it_ends(
    event: bytes, is_shown: bool, settles: tuple[int, ...] | None
) -> None:
    """After the first that shows something no other target is tried."""
    (read,) = decoded(event)
    assert (read.raw, read.has_content, read.is_closing, read.settles) == (
        *(b":\n\n" if event.startswith(b":") else event, is_shown, False),
        settles,
    )


def test_pieces_of_a_block_that_nobody_reads_may_have_any_shape_and_others_not() -> None:
    odd = block_delta(3, type="text_delta", text=7)
    assert [each.has_content for each in decoded(block_start(3, **STRANGE), odd)] == [True, True]
    for wrong in (block_start(2, **STRANGE), sse("content_block_start", content_block=STRANGE)):
        with pytest.raises(UpstreamMalformed):
            decoded(wrong, odd)
    with pytest.raises(UpstreamMalformed):
        decoded(block_start(3, type="text", text=7))


def test_a_ping_while_a_search_is_asked_for_is_no_search() -> None:
    asked = decoded(block_start(0, **SEARCHING), sse("ping"), block_stop(0), sse("ping"))
    assert [each.searches for each in asked] == [0, 0, 1, 0]


def test_a_citation_has_no_words_and_an_empty_object_is_an_answer() -> None:
    (cited,) = decoded(block_delta(0, type="citations_delta", citation={}))
    assert cited.deltas == (Delta("opaque"),)
    begun, ended = decoded(block_start(0, **USE | {"name": ANSWER_TOOL}), block_stop(0))
    assert (begun.has_content, ended.has_content) == (False, True)
    assert [(delta.kind, delta.text) for delta in ended.deltas] == [("text", "{}")]


@pytest.mark.parametrize("thought", ["Hm.", ""])
def test_rule_29_a_seal_with_which_a_block_of_thinking_begins_is_kept(thought: str) -> None:
    """Programs between us and the model tell a block at once, sealed."""
    stream = (
        MESSAGE_START
        + block_start(0, type="thinking", thinking=thought, signature="c2ln")
        + block_stop(0)
    )
    told_back = recoded("anthropic_messages", stream + MESSAGE_STOP, chat(stream=True))
    pieces = [
        json.loads(e.data) for e in Splitter().feed(told_back) if e.data and e.data[:1] == b"{"
    ]
    said = [piece["choices"][0]["delta"] for piece in pieces if piece["choices"]]
    (blocks,) = [each["thinking_blocks"] for each in said if "thinking_blocks" in each]
    assert blocks == [{"index": 0, "type": "thinking", "thinking": thought, "signature": "c2ln"}]
