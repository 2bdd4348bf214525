"""Streams: whole events in, the caller's dialect out, and an honest end."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.sse import Splitter
from gateway.errors import StreamBroken, UpstreamMalformed
from gateway.tally import Tally
from gateway.types import Delta, DialectName, Usage
from tests.gateway.dialects.samples import (
    ANTHROPIC,
    CHAT_TEXT_STREAM,
    CHAT_TOOL_STREAM,
    CHAT_USAGE,
    INPUT_ESTIMATE,
    MESSAGE_START,
    MESSAGE_STOP,
    MESSAGE_TEXT_STREAM,
    MESSAGE_TOOL_STREAM,
    OPENAI,
    block_delta,
    block_start,
    block_stop,
    call_piece,
    charged,
    chat,
    chunk,
    decoded,
    message_delta,
    messages,
    recoded,
    sse,
)


STREAMS: list[tuple[DialectName, bytes]] = [
    ("openai_chat", CHAT_TEXT_STREAM),
    ("openai_chat", CHAT_TOOL_STREAM),
    ("anthropic_messages", MESSAGE_TEXT_STREAM),
    ("anthropic_messages", MESSAGE_TOOL_STREAM),
]
DIALECTS = {"openai_chat": OPENAI, "anthropic_messages": ANTHROPIC}
NEVER_BEGUN = b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}'
"""Arguments without a call."""
ARGUMENTS_OF_NO_BLOCK = (
    b'{"type":"content_block_delta","index":1,'
    b'"delta":{"type":"input_json_delta","partial_json":"{"}}'
)
CHAT_COUNT = {"prompt_tokens": 3, "completion_tokens": 5}
WITH_USAGE = chat(stream=True, stream_options={"include_usage": True})
WITHOUT_USAGE = chat(stream=True)
MESSAGES = messages(stream=True)


def datas(stream: bytes) -> list[dict[str, Any]]:
    """The JSON of each event, without comments and `[DONE]`."""
    events = Splitter().feed(stream)
    return [json.loads(event.data) for event in events if event.data not in {None, b"[DONE]"}]


def deltas(dialect: DialectName, stream: bytes, kind: str) -> list[Delta]:
    return [d for event in decoded(dialect, stream) for d in event.deltas if d.kind == kind]


@pytest.mark.parametrize(("dialect", "stream"), STREAMS)
def test_any_chunking_gives_the_same_events(dialect: DialectName, stream: bytes) -> None:
    whole = decoded(dialect, stream)
    assert whole[-1].is_terminal
    assert b"".join(event.raw for event in whole) == stream
    for size in (1, 2, 3, 7, 64, 1000):
        decoder = DIALECTS[dialect].stream_decoder()
        events = [
            event
            for start in range(0, len(stream), size)
            for event in decoder.feed(stream[start : start + size])
        ]
        assert events + decoder.close() == whole


@given(st.sampled_from(STREAMS), st.integers(min_value=0))
def test_a_stream_cut_anywhere_before_its_end_never_yields_a_terminal_event(
    sample: tuple[DialectName, bytes], place: int
) -> None:
    dialect, stream = sample
    cut = place % len(stream.rstrip(b"\n"))
    assert not any(event.is_terminal for event in decoded(dialect, stream[:cut]))


@pytest.mark.parametrize(("dialect", "stream"), STREAMS)
def test_a_terminal_event_without_its_blank_line_counts(
    dialect: DialectName, stream: bytes
) -> None:
    events = decoded(dialect, stream[:-2])
    assert events[-1].is_terminal
    assert events[-1].raw.endswith(b"\n\n")


@pytest.mark.parametrize(("dialect", "stream"), STREAMS)
def test_the_same_dialect_gets_the_upstreams_own_bytes(dialect: DialectName, stream: bytes) -> None:
    request = WITH_USAGE if dialect == "openai_chat" else MESSAGES
    encoder = DIALECTS[dialect].stream_encoder(request, dialect)
    events = decoded(dialect, stream)
    sent = encoder.encode(events)
    assert stream.startswith(sent)
    before = list(itertools.takewhile(lambda event: not event.is_closing, events))
    assert sent == b"".join(event.raw for event in before)
    ending = encoder.finish("x-gatewright-receipt=a.1", charged(events))
    held = b"".join(event.raw for event in events[len(before) : -1])
    assert ending.startswith(held + b": x-gatewright-receipt=a.1\n\n")
    assert datas(sent + ending) == datas(stream)
    assert decoded(dialect, sent + ending)[-1].is_terminal


def test_rule_40_usage_we_asked_for_is_hidden_from_who_did_not() -> None:
    hidden = recoded("openai_chat", CHAT_TEXT_STREAM, WITHOUT_USAGE)
    shown = recoded("openai_chat", CHAT_TEXT_STREAM, WITH_USAGE)
    assert b"prompt_tokens" not in hidden
    assert datas(shown)[-1]["usage"] == CHAT_USAGE
    assert datas(shown)[:-1] == datas(hidden)
    for request, is_shown in ((WITHOUT_USAGE, False), (WITH_USAGE, True)):
        crossed = recoded("anthropic_messages", MESSAGE_TEXT_STREAM, request)
        assert (b"prompt_tokens" in crossed) == is_shown


def test_what_a_chat_stream_means() -> None:
    events = decoded("openai_chat", CHAT_TOOL_STREAM)
    assert events[0].deltas[0] == Delta("start", message_id="chatcmpl-77", model="gpt-x")
    assert [event.has_content for event in events] == [False, *[True] * 5, False, False, False]
    assert [event.is_usage_only for event in events].index(True) == 7
    starts = deltas("openai_chat", CHAT_TOOL_STREAM, "tool_start")
    assert [(d.index, d.tool_id, d.name) for d in starts] == [
        (0, "call_a", "weather"),
        (1, "call_b", "clock"),
    ]
    pieces = deltas("openai_chat", CHAT_TOOL_STREAM, "tool_arguments")
    assert [(d.index, d.text) for d in pieces] == [(0, '{"city":'), (0, '"Bonn"}')]
    assert [d.stop_reason for d in deltas("openai_chat", CHAT_TOOL_STREAM, "stop")] == ["tool_use"]
    assert deltas("openai_chat", CHAT_TOOL_STREAM, "usage")[0].usage == Usage(
        input_tokens=50, output_tokens=7, cache_read_tokens=20, reasoning_tokens=3
    )


def test_rule_40_usage_of_messages_is_cumulative() -> None:
    usages = [d.usage for d in deltas("anthropic_messages", MESSAGE_TEXT_STREAM, "usage")]
    first = Usage(input_tokens=45, output_tokens=0, cache_read_tokens=30, cache_write_tokens=5)
    last = Usage(input_tokens=45, output_tokens=12, cache_read_tokens=30, cache_write_tokens=5)
    assert usages == [first, last]


def test_rule_45_messages_become_chunks() -> None:
    crossed = datas(recoded("anthropic_messages", MESSAGE_TOOL_STREAM, WITH_USAGE))
    assert {data["id"] for data in crossed} == {"chatcmpl-42"}
    pieces = [data["choices"][0]["delta"] for data in crossed[:-1]]
    assert pieces[0]["role"] == "assistant"
    assert {"reasoning_content": "Hm."} in pieces
    tools = [piece["tool_calls"][0] for piece in pieces if "tool_calls" in piece]
    assert [(tool["index"], tool.get("id")) for tool in tools] == [
        (0, "toolu_a"),
        (0, None),
        (0, None),
        (1, "toolu_b"),
        (1, None),
    ]
    arguments = [tool["function"]["arguments"] for tool in tools]
    # Clients read them as JSON, of a tool that takes nothing too.
    assert arguments == ["", '{"city":', '"Bonn"}', "", "{}"]
    assert crossed[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert crossed[-1]["choices"] == []
    assert crossed[-1]["usage"]["total_tokens"] == 57


def grammar(events: list[dict[str, Any]]) -> list[str]:
    """Event types in order, with the block's index; checks that one block is open at a time."""
    names, is_open, count = [], False, 0
    for event in events:
        kind = event["type"]
        if kind == "content_block_start":
            assert not is_open
            assert event["index"] == count
            is_open = True
        elif kind == "content_block_delta":
            assert is_open
            assert event["index"] == count
        elif kind == "content_block_stop":
            assert is_open
            assert event["index"] == count
            is_open, count = False, count + 1
        names.append(kind)
    assert not is_open
    return names


def test_rule_43_chunks_become_a_message_event_by_event() -> None:
    crossed = datas(recoded("openai_chat", CHAT_TEXT_STREAM, MESSAGES))
    assert grammar(crossed) == [
        *("message_start", "content_block_start", "content_block_delta", "content_block_delta"),
        *("content_block_stop", "message_delta", "message_stop"),
    ]
    assert "".join(event["delta"]["text"] for event in crossed[2:4]) == "Grüße \u2028 world"
    start, ending = crossed[0]["message"], crossed[-2]
    assert start["id"] == "msg_77"
    assert start["usage"]["input_tokens"] == MESSAGES.input_tokens_estimate
    assert ending["delta"]["stop_reason"] == "end_turn"
    assert ending["usage"]["input_tokens"] == 30
    assert ending["usage"]["cache_read_input_tokens"] == 20
    assert ending["usage"]["output_tokens"] == 7


def test_rule_44_interleaved_calls_become_whole_blocks_and_no_argument_is_lost() -> None:
    stream = (
        chunk(call_piece(0, "", id="a", name="f"))
        + chunk(call_piece(1, '{"y"', id="b", name="g"))
        + chunk(call_piece(0, '{"x"'))
        + chunk({"content": "aside"})
        + chunk(call_piece(1, ":2}"))
        + chunk(call_piece(0, ":1}"))
        + chunk(call_piece(2, "", id="c", name="h"), "tool_calls")
        + b"data: [DONE]\n\n"
    )
    crossed = datas(recoded("openai_chat", stream, MESSAGES))
    grammar(crossed)
    blocks: dict[int, list[str]] = {}
    for event in crossed:
        if event["type"] == "content_block_start":
            blocks[event["index"]] = [event["content_block"].get("name", "text")]
        elif event["type"] == "content_block_delta":
            piece = event["delta"]
            blocks[event["index"]].append(piece.get("partial_json") or piece["text"])
    joined = ["".join(pieces) for pieces in blocks.values()]
    assert joined == ['f{"x":1}', 'g{"y":2}', "textaside", "h"]


def test_rule_32_what_was_thought_comes_first_where_all_is_said_at_once() -> None:
    """As servers do that make a stream of a whole answer."""
    whole = {"role": "assistant", "content": "Hi", "reasoning_content": "Hm."}
    stream = chunk(whole) + chunk({}, "stop") + b"data: [DONE]\n\n"
    kinds = [delta.kind for event in decoded("openai_chat", stream) for delta in event.deltas]
    assert kinds == ["start", "thinking", "text", "stop"]


def test_rule_18_an_id_that_comes_before_its_name_is_kept() -> None:
    stream = (
        chunk(call_piece(0, "", id="call_a", type="function"))
        + chunk(call_piece(0, "{}", name="clock"))
        + chunk(call_piece(1, "{}", id="call_b", name="clock"))
        + chunk({}, "tool_calls")
        + b"data: [DONE]\n\n"
    )
    deltas = [delta for event in decoded("openai_chat", stream) for delta in event.deltas]
    begun = [delta for delta in deltas if delta.kind == "tool_start"]
    assert [delta.tool_id for delta in begun] == ["call_a", "call_b"]


def test_rule_18_calls_of_a_stream_that_bear_one_id_are_told_apart() -> None:
    stream = (
        chunk(call_piece(0, '{"a"', id="call_a", name="clock"))
        + chunk(call_piece(0, ":1}", id="call_a", name="clock"))
        + chunk(call_piece(1, "{}", id="call_a", name="clock"))
        + chunk({}, "tool_calls")
        + b"data: [DONE]\n\n"
    )
    crossed = datas(recoded("openai_chat", stream, MESSAGES))
    grammar(crossed)
    blocks = [e["content_block"] for e in crossed if e["type"] == "content_block_start"]
    assert [block["name"] for block in blocks] == ["clock", "clock"]
    assert blocks[0]["id"] == "call_a"
    assert blocks[1]["id"] != "call_a"


def test_rule_32_reasoning_comes_before_text_in_a_block_of_its_own() -> None:
    stream = (
        chunk({"reasoning_content": "Hm."})
        + chunk({"reasoning": "So."})
        + chunk({"content": "Hi"})
        + chunk({}, "stop")
        + b"data: [DONE]\n\n"
    )
    crossed = datas(recoded("openai_chat", stream, MESSAGES))
    grammar(crossed)
    starts = [e["content_block"]["type"] for e in crossed if e["type"] == "content_block_start"]
    assert starts == ["thinking", "text"]


def test_rule_23_the_stop_sequence_that_ended_a_stream_is_told() -> None:
    end = {"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "END"}
    stream = chunk({"content": "Hi"}) + chunk({}, choices=[end]) + b"data: [DONE]\n\n"
    ending = datas(recoded("openai_chat", stream, MESSAGES))[-2]["delta"]
    assert (ending["stop_reason"], ending["stop_sequence"]) == ("stop_sequence", "END")


def test_calls_that_all_bear_the_same_number_are_told_apart_by_their_ids() -> None:
    stream = chunk(call_piece(0, "{}", id="a", name="f")) + chunk(
        call_piece(0, "{}", id="b", name="g")
    )
    assert [d.index for d in deltas("openai_chat", stream, "tool_start")] == [0, 1]
    assert [d.index for d in deltas("openai_chat", stream, "tool_arguments")] == [0, 1]


def test_a_call_whose_name_and_id_come_with_every_piece_is_one() -> None:
    pieces = [call_piece(0, text, id="a", name="f") for text in ('{"a"', ":1}")]
    stream = b"".join(map(chunk, pieces))
    assert [d.tool_id for d in deltas("openai_chat", stream, "tool_start")] == ["a"]
    assert [d.text for d in deltas("openai_chat", stream, "tool_arguments")] == ['{"a"', ":1}"]


@pytest.mark.parametrize(
    ("piece", "kind"),
    [
        ({"audio": {"transcript": "Hi"}}, "opaque"),
        ({"function_call": {"name": "f", "arguments": "Hi"}}, "tool_arguments"),
        ({"tool_calls": [{"index": 0, "id": "a", "custom": {"input": "Hi"}}]}, "opaque"),
    ],
)
def test_what_only_its_own_callers_see_is_read_as_well(piece: dict[str, Any], kind: str) -> None:
    """Whoever looks for values in an answer has to see it; no other dialect has a word for it."""
    (event,) = decoded("openai_chat", chunk(piece))
    _, said = event.deltas
    assert (said.kind, said.text, event.has_content) == (kind, "Hi", True)


def test_a_custom_call_is_counted_among_the_calls() -> None:
    custom = {"tool_calls": [{"index": 0, "id": "a", "custom": {"input": "Hi"}}]}
    stream = chunk(custom) + chunk(call_piece(1, "{}", id="b", name="f")) + chunk({}, "stop")
    (begun,) = deltas("openai_chat", stream, "tool_start")
    assert (begun.index, begun.tool_id) == (1, "b")
    (stopped,) = deltas("openai_chat", chunk(custom) + chunk({}, "stop"), "stop")
    assert stopped.stop_reason == "tool_use"


def test_a_custom_call_in_pieces_is_one_and_a_call_that_says_nothing_is_none() -> None:
    more = [{"index": 0, "custom": {"input": "Hi"}}]
    first = chunk({"tool_calls": [{"id": "a", **more[0]}]})
    said = deltas("openai_chat", first + chunk({"tool_calls": more}), "opaque")
    assert [each.index for each in said] == [0, 0]
    assert deltas("openai_chat", chunk({"tool_calls": [{"id": "a"}]}), "tool_start") == []


def test_calls_without_numbers_are_told_apart_by_their_places() -> None:
    begun = [{"id": id_, "function": {"name": "f", "arguments": ""}} for id_ in ("a", "b")]
    more = [{"function": {"arguments": text}} for text in ("1", "2")]
    stream = chunk({"tool_calls": begun}) + chunk({"tool_calls": more})
    said = deltas("openai_chat", stream, "tool_arguments")
    assert [(each.index, each.text) for each in said] == [(0, "1"), (1, "2")]


@pytest.mark.parametrize("choices", [{}, {"choices": None}, {"choices": []}])
def test_rule_40_a_usage_without_choices_is_one(choices: dict[str, Any]) -> None:
    told = b"data: " + json.dumps({"id": "c", "usage": CHAT_USAGE} | choices).encode() + b"\n\n"
    stream = chunk({"content": "Hi"}) + chunk({}, "stop") + told + b"data: [DONE]\n\n"
    (counted,) = [event for event in decoded("openai_chat", stream) if event.is_usage_only]
    assert [delta.usage.output_tokens for delta in counted.deltas if delta.usage] == [7]
    # Nobody asked for it: it is what we asked for, and is not shown.
    hidden = recoded("openai_chat", stream, chat(stream=True))
    assert b'"usage"' not in hidden
    with pytest.raises(UpstreamMalformed):
        decoded("openai_chat", b'data: {"id":"c"}\n\n')


ONE, TWO = '{"a":1}', '{"a":2}'


@pytest.mark.parametrize("numbered", [{}, {"index": 0}])
@pytest.mark.parametrize("second", ["f", "g"])
def test_whole_calls_without_ids_that_all_bear_one_number_are_told_apart(
    numbered: dict[str, Any], second: str
) -> None:
    """As Google's endpoint for OpenAI's clients has them."""
    pieces = [
        {"tool_calls": [{"id": "", "function": {"name": name, "arguments": said}, **numbered}]}
        for name, said in (("f", ONE), (second, TWO))
    ]
    stream = b"".join(map(chunk, pieces))
    begun = deltas("openai_chat", stream, "tool_start")
    assert [(each.index, each.name) for each in begun] == [(0, "f"), (1, second)]
    assert len({each.tool_id for each in begun}) == 2
    said = deltas("openai_chat", stream, "tool_arguments")
    assert [(each.index, each.text) for each in said] == [(0, ONE), (1, TWO)]


@pytest.mark.parametrize("pieces", [('{"a"', ":1}"), ('{"a"', ":", "1}"), (ONE, "")])
def test_a_call_without_an_id_whose_name_comes_with_every_piece_is_one(
    pieces: tuple[str, ...],
) -> None:
    stream = b"".join(chunk(call_piece(0, text, name="f")) for text in pieces)
    assert len(deltas("openai_chat", stream, "tool_start")) == 1
    said = deltas("openai_chat", stream, "tool_arguments")
    assert [(each.index, each.text) for each in said] == [(0, text) for text in pieces if text]


PARTS = [
    {
        "type": "thinking",
        "thinking": [{"type": "text", "text": "Hm"}, {"type": "text", "text": "."}],
    },
    {"type": "reference", "reference_ids": [1]},
    {"type": "text", "text": "Hi"},
]


def test_rule_32_what_was_thought_among_the_parts_of_a_piece_is_read() -> None:
    """As Mistral's reasoning models answer."""
    pieces: list[dict[str, Any]] = [{"content": ""}, {"content": PARTS}, {"content": " there"}]
    start, *events = decoded("openai_chat", b"".join(chunk(piece) for piece in pieces))
    assert [delta.kind for delta in start.deltas] == ["start"]
    said = [(delta.kind, delta.text) for event in events for delta in event.deltas]
    assert said == [("thinking", "Hm."), ("text", "Hi"), ("text", " there")]
    assert all(event.has_content for event in events)


def test_a_choice_without_a_piece_shows_nothing() -> None:
    (event,) = decoded("openai_chat", chunk({}, choices=[{"index": 0, "finish_reason": None}]))
    assert not event.has_content


def charged_for(stream: bytes) -> str:
    """Why a stream of chunks ended, as the record says it."""
    tally = Tally(0)
    tally.add(decoded("openai_chat", stream))
    return tally.stop_reason


@pytest.mark.parametrize("empty", ["", None])
def test_a_reason_without_a_word_ends_nothing(empty: str | None) -> None:
    """Some servers send one with every piece."""
    pieces = [chunk({"content": each}, empty) for each in ("So ", "it ", "is.")]
    stream = b"".join((*pieces, chunk({}, "length"), b"data: [DONE]\n\n"))
    events = decoded("openai_chat", stream)
    assert [event.is_closing for event in events] == [False, False, False, True, False]
    encoder = OPENAI.stream_encoder(WITHOUT_USAGE, "openai_chat")
    assert encoder.encode(events) == b"".join(pieces)
    assert charged_for(stream) == "length"


def test_refusals_cross_in_streams() -> None:
    stream = chunk({"refusal": "I won't."}) + chunk({}, "stop") + b"data: [DONE]\n\n"
    assert charged_for(stream) == "content_filter"
    ending = datas(recoded("openai_chat", stream, MESSAGES))[-2]
    assert ending["delta"]["stop_reason"] == "refusal"
    assert ending["delta"]["stop_details"]["explanation"] == "I won't."
    other = MESSAGE_START + message_delta("refusal", stop_details=None) + MESSAGE_STOP
    crossed = datas(recoded("anthropic_messages", other, WITHOUT_USAGE))
    assert crossed[-2]["choices"][0]["delta"]["refusal"]
    assert crossed[-1]["choices"][0]["finish_reason"] == "content_filter"


def test_rule_42_a_stream_without_usage_is_estimated_and_never_zero() -> None:
    stream = chunk({"content": "word " * 100}) + chunk({}, "stop") + b"data: [DONE]\n\n"
    counted = datas(recoded("openai_chat", stream, MESSAGES))[-2]["usage"]
    assert counted["input_tokens"] == INPUT_ESTIMATE
    assert counted["output_tokens"] == 104
    bare = (
        sse("message_start", message={"id": "msg_1", "model": "m"})
        + block_start(0, type="text", text="")
        + block_delta(0, type="text_delta", text="word " * 100)
        + block_stop(0)
        + sse("message_delta", delta={"stop_reason": "end_turn"})
        + MESSAGE_STOP
    )
    usage = datas(recoded("anthropic_messages", bare, WITH_USAGE))[-1]["usage"]
    assert usage["prompt_tokens"] == INPUT_ESTIMATE
    assert usage["completion_tokens"] == 104


@pytest.mark.parametrize(
    ("dialect", "stream", "word"),
    [
        (
            "openai_chat",
            b'data: {"error":{"message":"secret","type":"server_error"}}\n\n',
            "server_error",
        ),
        ("openai_chat", b'event: error\ndata: {"message":"secret"}\n\n', "error"),
        ("openai_chat", b'data: {"error":"secret words"}\n\n', "error"),
        (
            "anthropic_messages",
            sse("error", error={"type": "overloaded_error", "message": "secret"}),
            "overloaded_error",
        ),
        ("anthropic_messages", b'event: error\ndata: {"type":"error"}\n\n', "error"),
    ],
)
def test_an_error_event_of_an_upstream_is_told_and_its_words_are_not(
    dialect: DialectName, stream: bytes, word: str
) -> None:
    (event,) = decoded(dialect, stream)
    assert (event.raw, event.is_terminal, event.has_content) == (b"", False, False)
    assert event.deltas == (Delta("error", word),)


@pytest.mark.parametrize("source", ["openai_chat", "anthropic_messages"])
@pytest.mark.parametrize("request_", [WITH_USAGE, MESSAGES])
def test_rule_47_after_a_failure_comes_no_terminal_event(
    source: DialectName, request_: Any
) -> None:
    stream = dict(STREAMS)[source]
    encoder = DIALECTS[request_.dialect].stream_encoder(request_, source)
    sent = encoder.encode(decoded(source, stream)[:4])
    sent += encoder.fail(StreamBroken("The stream broke."), "req_1") + encoder.finish(
        "late", Usage()
    )
    assert datas(sent)[-1]["error"]["message"] == "The stream broke."
    for word in (b"[DONE]", b"message_stop", b"message_delta", b"late", b'"stop"}'):
        assert word not in sent


@pytest.mark.parametrize("request_", [WITH_USAGE, WITHOUT_USAGE, MESSAGES])
@pytest.mark.parametrize("source", ["openai_chat", "anthropic_messages"])
def test_pings_are_harmless_at_any_time(source: DialectName, request_: Any) -> None:
    encoder = DIALECTS[request_.dialect].stream_encoder(request_, source)
    for event in Splitter().feed(encoder.ping()):
        assert event.data in {None, b'{"type":"ping"}'}
    assert encoder.ping().endswith(b"\n\n")


@pytest.mark.parametrize(
    ("dialect", "data"),
    [
        *(("openai_chat", data) for data in (b"{}", b"[]", b"{", b"hello", b"\xff")),
        ("openai_chat", b'{"choices":[{"delta":{"content":7}}]}'),
        ("openai_chat", NEVER_BEGUN),
        *(("anthropic_messages", data) for data in (b"{}", b"[]", b"{", b"[DONE]", b"\xff")),
        ("anthropic_messages", b'{"type":"message_start"}'),
        ("anthropic_messages", b'{"type":"content_block_start"}'),
        ("anthropic_messages", b'{"type":"content_block_delta","delta":{"text":7}}'),
        ("anthropic_messages", ARGUMENTS_OF_NO_BLOCK),
    ],
)
def test_one_malformed_event_is_an_error_and_not_skipped(dialect: DialectName, data: bytes) -> None:
    with pytest.raises(UpstreamMalformed):
        DIALECTS[dialect].stream_decoder().feed(b"data: " + data + b"\n\n")


def test_nothing_is_reported_after_the_terminal_event() -> None:
    for dialect, stream in STREAMS:
        assert decoded(dialect, stream + stream) == decoded(dialect, stream)


def test_unknown_events_and_blocks_pass_to_the_same_dialect_only() -> None:
    stream = (
        MESSAGE_START
        + sse("something_new", x=1)
        + block_start(0, type="server_tool_use", id="s", name="web_search", input={})
        + block_delta(0, type="input_json_delta", partial_json="{}")
        + block_delta(0, type="citations_delta", citation={})
        + block_stop(0)
        + message_delta("end_turn")
        + MESSAGE_STOP
    )
    assert b"something_new" in recoded("anthropic_messages", stream, MESSAGES)
    crossed = datas(recoded("anthropic_messages", stream, WITHOUT_USAGE))
    assert [data["choices"][0]["delta"] for data in crossed[1:]] == [{}]


def test_a_chunk_that_goes_on_with_several_answers_is_an_event_for_each() -> None:
    choices = [
        {"index": 0, "delta": {"role": "assistant", "content": "one"}, "finish_reason": None},
        {"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"},
    ]
    sent = {"id": "c", "model": "m", "x_extra": 1e2, "choices": choices, "usage": CHAT_COUNT}
    raw = f"data: {json.dumps(sent)}\n\n".encode()
    for size in (1, len(raw)):
        decoder = OPENAI.stream_decoder()
        events = [e for at in range(0, len(raw), size) for e in decoder.feed(raw[at : at + size])]

        assert [[d.kind for d in each.deltas] for each in events] == [
            ["start", "text"],
            ["text", "usage"],
        ]
        assert [each.settles for each in events] == [(0,), (1,)]
        assert [each.is_closing for each in events] == [False, True]
        told = datas(b"".join(each.raw for each in events))
        assert [each["choices"] for each in told] == [[choice] for choice in choices]
        assert [each.get("usage") for each in told] == [None, CHAT_COUNT]
        assert all(each["x_extra"] == 1e2 for each in told)
