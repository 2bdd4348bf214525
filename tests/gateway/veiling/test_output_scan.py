"""Answers are read through a window: whatever the cuts, the same is counted and the same masked."""

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classifiers.pii.detect import scan
from classifiers.pii.labels import DataClass
from classifiers.pii.scanner import PATTERNS_ONLY
from gateway.dialects.registry import DIALECTS
from gateway.errors import UpstreamMalformed
from gateway.types import DialectName, StreamEvent
from gateway.veiling.masking import BEFORE_LENGTH, WINDOW_LENGTH, MaskingWindow
from gateway.veiling.output_scan import OutputScan
from gateway.veiling.rewriting import in_turn
from tests.classifiers import samples
from tests.gateway.veiling.test_veil import veil_of
from tests.upstream_messages import anthropic_events
from tests.upstream_responses import openai_response_events
from tests.upstreams import Answer, _openai_events


RNG = random.Random(11)
TOKEN = "gw" + "_live_" + samples.token(RNG, 40)
VALUES = {
    "CREDIT_CARD": samples.grouped(samples.card(random.Random(5)), " "),
    "IN_AADHAAR": samples.grouped(samples.aadhaar(RNG), " "),
    "US_SSN": "SSN " + samples.ssn(RNG),
    "IBAN": samples.grouped(samples.iban(RNG), " "),
    "IN_GSTIN": samples.gstin(RNG),
    "UK_NINO": "QQ 12 34 56 C".replace("QQ", "AB"),
    "SECRET": TOKEN,
    "PASSWORD": "my password is " + samples.token(RNG, 9) + "!7",
}
WORDS = "The report about rivers and trains is ready, and the music was good. "
SOURCES = {
    "openai_chat": _openai_events,
    "anthropic_messages": anthropic_events,
    "openai_responses": openai_response_events,
}
ALL: tuple[DialectName, ...] = ("openai_chat", "anthropic_messages", "openai_responses")


def sensitive_part(text: str) -> str:
    found = [f for f in scan(text).findings if f.label in VALUES]
    return text[found[0].start : found[0].end]


def in_pieces(text: str, cuts: list[int]) -> Iterator[str]:
    edges = [0, *sorted(cuts), len(text)]
    return (text[a:b] for a, b in pairwise(edges))


def masked_in_pieces(text: str, cuts: list[int], least: DataClass = DataClass.S3) -> str:
    window = MaskingWindow(scan, least)
    shown = ""
    for piece in in_pieces(text, cuts):
        shown += window.feed(piece)
        assert len(window._held) <= WINDOW_LENGTH
        assert len(window._before) <= BEFORE_LENGTH
    return shown + window.flush()


@pytest.mark.parametrize("label", VALUES)
def test_a_value_is_masked_wherever_the_stream_is_cut(label: str) -> None:
    text = f"{WORDS}It is {VALUES[label]} as you know. {WORDS}"
    value = sensitive_part(text)
    whole = MaskingWindow(scan, DataClass.S3).whole(text)
    assert value not in whole
    assert f"[REDACTED:{label}]" in whole
    start = text.index(value)
    for cut in range(start - 2, start + len(value) + 3):
        assert masked_in_pieces(text, [cut]) == whole
    assert masked_in_pieces(text, list(range(1, len(text)))) == whole


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_cuts_give_what_the_whole_text_gives(data: st.DataObject) -> None:
    said = data.draw(st.lists(st.sampled_from([*VALUES.values(), WORDS, "No. 12, page 7."])))
    text = " and ".join(said)
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=30))
    assert masked_in_pieces(text, cuts) == MaskingWindow(scan, DataClass.S3).whole(text)


def test_plain_words_are_not_held_back() -> None:
    window = MaskingWindow(scan, DataClass.S3)
    shown = "".join(map(window.feed, WORDS))
    assert shown == WORDS


def test_below_s3_names_of_hosts_and_people_are_masked_at_the_window_s_distance() -> None:
    text = f"{WORDS}Write to anna dot berg at kunde dot de, or to anna.berg@kunde.de. {WORDS * 5}"
    shown = masked_in_pieces(text, list(range(1, len(text), 3)), DataClass.S2)
    assert shown.count("[REDACTED:EMAIL]") == 2
    assert "kunde" not in shown


def test_no_line_of_a_private_key_is_shown_however_long_it_is() -> None:
    lines = [samples.token(RNG, 64) for _ in range(60)]
    head, tail = ("-----" + word + " PRIVATE KEY-----" for word in ("BEGIN", "END"))
    text = "\n".join(["Here it is:", head, *lines, tail, "Keep it safe."])
    for step in (1, 7, 500, 10_000):
        shown = masked_in_pieces(text, list(range(step, len(text), step)))
        assert not any(line in shown or line[:20] in shown for line in lines)
        assert shown.startswith("Here it is:\n[REDACTED:PRIVATE_KEY]")
        assert shown.endswith("\nKeep it safe.")
    cut_off = masked_in_pieces(text[:2000], list(range(1, 2000)))
    assert cut_off == "Here it is:\n[REDACTED:PRIVATE_KEY]"


def output_scan(
    masked_from: DataClass | None = DataClass.S3, asked: dict[str, Any] | None = None
) -> OutputScan:
    return OutputScan(PATTERNS_ONLY.scan, scan, masked_from, asked)


def events_of(dialect: DialectName, text: str) -> list[StreamEvent]:
    raw = SOURCES[dialect](Answer(text=text), {"model": "m"})
    decoder = DIALECTS[dialect].stream_decoder()
    return [event for data in raw for event in decoder.feed(data)]


def text_of(events: list[StreamEvent]) -> str:
    return "".join(d.text for event in events for d in event.deltas if d.kind == "text")


@pytest.mark.parametrize("dialect", ALL)
def test_a_masked_stream_says_the_same_in_events_and_bytes(dialect: DialectName) -> None:
    text = f"{WORDS}It is {VALUES['CREDIT_CARD']} . {WORDS}"
    value = VALUES["CREDIT_CARD"]
    output = output_scan()
    lift = output.lifted()
    seen = [made for event in events_of(dialect, text) for made in lift.events([event])]
    raw = b"".join(event.raw for event in seen)
    again = DIALECTS[dialect].stream_decoder().feed(raw)
    for said in (text_of(seen), text_of(again)):
        assert value not in said
        assert "[REDACTED:CREDIT_CARD]" in said
    assert value.encode() not in raw
    assert again[-1].is_terminal
    assert output.found == {"CREDIT_CARD": 1}


@pytest.mark.parametrize("part", ["text", "thinking"])
def test_a_value_in_a_part_of_a_chat_s_piece_is_masked(part: str) -> None:
    """As Mistral's reasoning models answer."""
    value = VALUES["CREDIT_CARD"]
    pieces = [f"{WORDS}It is ", value[:9], f"{value[9:]} . {WORDS}"]
    said = [{"type": "text", "text": text} for text in pieces]
    said.append({"type": "text", "text": "".join(pieces)})
    *parts, last = said if part == "text" else [{"type": part, "thinking": [s]} for s in said]
    chunks = [{"choices": [{"index": 0, "delta": {"content": [each]}}]} for each in parts]
    whole = {"choices": [{"index": 0, "message": {"content": [last]}, "finish_reason": "stop"}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    stream = [b"data: " + msgspec.json.encode(each) + b"\n\n" for each in (*chunks, end)]
    output = output_scan()
    decoder, lift = DIALECTS["openai_chat"].stream_decoder(), output.lifted()
    seen = [made for raw in stream for made in lift.events(decoder.feed(raw))]
    raw = b"".join(event.raw for event in seen)
    assert value.encode()[:9] not in raw
    assert value.encode()[9:] not in raw
    assert b"[REDACTED:CREDIT_CARD]" in raw
    assert output.found == {"CREDIT_CARD": 1}
    shown = output_scan().unveiled(msgspec.json.encode(whole | {"id": "c"}))
    assert value.encode()[9:] not in shown


def written_otherwise(raw: bytes, how: str) -> bytes:
    """The same event to every reader of server-sent events."""
    lines = raw.removesuffix(b"\n\n").split(b"\n")
    data = lines.pop().removeprefix(b"data: ")
    if how == "data in several lines" and data.startswith(b"{"):
        place = data.index(b":") + 1
        data = data[:place] + b"\ndata: " + data[place:]
    end = b"\r" if how == "lone CRs" else b"\n"
    first = [b"id: 7"] if how == "an id" else []
    return end.join([*first, *lines, b"data: " + data]).replace(b"\n", end) + b"\n\n"


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize("how", ["data in several lines", "lone CRs", "an id"])
def test_no_writing_of_an_event_hides_its_words_from_masking(
    dialect: DialectName, how: str
) -> None:
    text = f"{WORDS}It is {VALUES['CREDIT_CARD']} . {WORDS}"
    decoder = DIALECTS[dialect].stream_decoder()
    raws = [event.raw for event in events_of(dialect, text)]
    assert all(raw.endswith(b"\n\n") and raw.count(b"data: ") == 1 for raw in raws)
    events = [e for raw in raws for e in decoder.feed(written_otherwise(raw, how))]
    lift = output_scan().lifted()
    raw = b"".join(made.raw for event in events for made in lift.events([event]))
    assert VALUES["CREDIT_CARD"].encode() not in raw
    again = DIALECTS[dialect].stream_decoder().feed(raw)
    assert text_of(again) == text.replace(VALUES["CREDIT_CARD"], "[REDACTED:CREDIT_CARD]")


@pytest.mark.parametrize("dialect", ALL)
def test_counting_changes_no_byte_and_counts_each_finding_once(dialect: DialectName) -> None:
    text = (WORDS * 7 + VALUES["IBAN"] + " " + WORDS * 9 + VALUES["IN_GSTIN"] + " ") * 3
    events = events_of(dialect, text)
    output = output_scan(None)
    lift = output.lifted()
    assert [made for event in events for made in lift.events([event])] == events
    assert output.found == {"IBAN": 3, "IN_GSTIN": 3}


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_counts_do_not_depend_on_the_cuts(data: st.DataObject) -> None:
    said = data.draw(st.lists(st.sampled_from([*VALUES.values(), WORDS * 4]), max_size=40))
    text = " and ".join(said)
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=60))
    window = output_scan(None).window()
    for piece in in_pieces(text, cuts):
        window.feed(piece)
    window.flush()
    whole = output_scan(None).window()
    whole.feed(text)
    whole.flush()
    assert window.counts == whole.counts
    assert sum(whole.counts.values()) >= sum(value in text for value in VALUES.values())


def test_masked_arguments_of_a_tool_are_still_json() -> None:
    card = samples.card(random.Random(5))
    text = f'{{"card": {card}, "note": "card {card}", "n": 3}}'
    window = MaskingWindow(scan, DataClass.S3, in_json=True)
    shown = "".join(map(window.feed, text)) + window.flush()
    mask = "[REDACTED:CREDIT_CARD]"
    assert msgspec.json.decode(shown) == {"card": mask, "note": f"card {mask}", "n": 3}


@pytest.mark.parametrize("first", ["%s", '"%s"'])
@pytest.mark.parametrize("second", ["%s", '"%s"'])
def test_a_number_in_two_fields_is_masked_and_they_are_still_json(first: str, second: str) -> None:
    card = samples.with_luhn("4" + samples.digits(random.Random(6), 7) + "9876543")
    halves = first.replace("%s", card[:8]), second.replace("%s", card[8:])
    text = f'{{"card_a": {halves[0]}, "card_b": {halves[1]}, "n": 3}}'
    window = MaskingWindow(scan, DataClass.S3, in_json=True)
    shown = "".join(map(window.feed, text)) + window.flush()
    assert msgspec.json.decode(shown) == {"card_a": "[REDACTED:CREDIT_CARD]", "n": 3}


def test_a_whole_answer_is_masked_in_its_words_and_a_call_keeps_its_name() -> None:
    card, name = VALUES["CREDIT_CARD"], f"ident-{samples.token(RNG, 30)}"
    tree = {
        "id": name,
        "choices": [{"message": {"content": card, "tool_calls": [{"id": name}]}}],
        "content": [{"type": "tool_use", "id": name, "input": {"to": card}}],
    }
    output = output_scan()
    made = msgspec.json.decode(output.unveiled(msgspec.json.encode(tree)))
    mask = "[REDACTED:CREDIT_CARD]"
    assert made["id"] == name
    assert made["choices"] == [{"message": {"content": mask, "tool_calls": [{"id": name}]}}]
    assert made["content"] == [{"type": "tool_use", "id": name, "input": {"to": mask}}]
    assert output.found == {"CREDIT_CARD": 2}
    assert output_scan(None).unveiled(b"no json") == b"no json"
    for unreadable in (b"no json", b'{"content": "\xff"}', b'{"\xff": 1}'):
        with pytest.raises(UpstreamMalformed):
            output.unveiled(unreadable)


def answered_with(arguments: object) -> bytes:
    block = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": arguments}
    return msgspec.json.encode({"type": "message", "content": [block]})


def nested(value: object, depth: int) -> object:
    for _ in range(depth):
        value = [value]
    return value


CARD = VALUES["CREDIT_CARD"]
DIGITS = int("".join(filter(str.isdigit, CARD)))


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({CARD: True, "n": 3}, {"[REDACTED:CREDIT_CARD]": True, "n": 3}),
        ({"card": DIGITS, "n": 1.5}, {"card": "[REDACTED:CREDIT_CARD]", "n": 1.5}),
        ({"card": float(DIGITS), "n": 10**30}, {"card": "[REDACTED:CREDIT_CARD]", "n": 10**30}),
        (
            {"a": {"input": [{"b": [DIGITS]}]}},
            {"a": {"input": [{"b": ["[REDACTED:CREDIT_CARD]"]}]}},
        ),
    ],
)
def test_names_and_numbers_among_a_tool_s_arguments_are_the_model_s_words_too(
    arguments: object, shown: object
) -> None:
    output = output_scan()
    made = msgspec.json.decode(output.unveiled(answered_with(arguments)))
    assert made["content"][0]["input"] == shown
    assert output.found == {"CREDIT_CARD": 1}
    counted = output_scan(None)
    assert counted.unveiled(answered_with(arguments)) == answered_with(arguments)
    assert counted.found == {"CREDIT_CARD": 1}


@pytest.mark.parametrize("depth", [1, 50, 60, 61, 62, 63, 64, 65, 66, 90, 400])
def test_what_is_nested_too_deeply_to_be_read_is_not_shown(depth: int) -> None:
    raw = answered_with({"a": nested(CARD, depth), "b": "fine"})
    made = output_scan().unveiled(raw)
    assert CARD.encode() not in made
    assert msgspec.json.decode(made)["content"][0]["input"]["b"] == "fine"
    assert output_scan(None).unveiled(raw) == raw


def test_an_upstream_that_nests_without_end_is_answered_with_what_can_be_read() -> None:
    message = {"content": f"It is {CARD} ."}
    choice = {"index": 0, "message": message, "x_extra": nested(CARD, 900)}
    made = output_scan().unveiled(msgspec.json.encode({"choices": [choice]}))
    assert CARD.encode() not in made
    shown = msgspec.json.decode(made)["choices"][0]
    assert shown["message"]["content"] == "It is [REDACTED:CREDIT_CARD] ."


@pytest.mark.parametrize("label", sorted(VALUES))
@pytest.mark.parametrize("before", ["\n", "\t", "\r\n", "\\", "\\\n", '"', " "])
def test_an_escape_before_a_value_is_no_part_of_it(label: str, before: str) -> None:
    said = f"see{before}{VALUES[label]}{before}end"
    arguments = msgspec.json.encode({"note": said}).decode()
    output = output_scan()
    raw = msgspec.json.encode({"tool_calls": [{"function": {"arguments": arguments}}]})
    made = msgspec.json.decode(output.unveiled(raw))["tool_calls"][0]["function"]["arguments"]
    in_letters = MaskingWindow(scan, DataClass.S3, in_json=True)
    shown = "".join(map(in_letters.feed, arguments)) + in_letters.flush()
    for each in (made, shown):
        assert sensitive_part(VALUES[label]) not in each
        assert f"[REDACTED:{label}]" in msgspec.json.decode(each)["note"]
    assert output.found == {label: 1}
    window = output_scan(None).window()
    for letter in arguments:
        window.feed(letter)
    window.flush()
    assert window.counts == {label: 1}


def test_a_call_that_comes_in_one_piece_keeps_its_name_and_its_arguments_are_masked() -> None:
    arguments = msgspec.json.encode({"to": CARD, "why": "rent"}).decode()
    call: dict[str, Any] = {"index": 0, "id": "call_1", "type": "function"}
    call["function"] = {"name": "pay", "arguments": arguments}
    head = {"id": "c", "object": "chat.completion.chunk", "model": "m"}
    raw: list[dict[str, Any]] = [
        {"delta": {"tool_calls": [call]}},
        {"delta": {}, "finish_reason": "tool_calls"},
    ]
    chunks = [{**head, "choices": [{"index": 0, **choice}]} for choice in raw]
    decoder, lift = DIALECTS["openai_chat"].stream_decoder(), output_scan().lifted()
    pieces = []
    for each in chunks:
        for event in decoder.feed(b"data: " + msgspec.json.encode(each) + b"\n\n"):
            for made in lift.events([event]):
                said = msgspec.json.decode(made.raw.partition(b"data:")[2])
                pieces += said["choices"][0]["delta"].get("tool_calls", [])
    joined = {
        name: "".join(piece["function"].get(name, "") for piece in pieces)
        for name in ("name", "arguments")
    }
    assert joined["name"] == "pay"
    assert "".join(piece.get("id", "") for piece in pieces) == "call_1"
    assert msgspec.json.decode(joined["arguments"]) == {
        "to": "[REDACTED:CREDIT_CARD]",
        "why": "rent",
    }


def test_a_call_that_begins_with_all_its_arguments_is_masked_where_they_stand() -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {"to": CARD, "n": DIGITS}}
    start = {"type": "content_block_start", "index": 0, "content_block": block}
    raw = b"event: content_block_start\ndata: " + msgspec.json.encode(start) + b"\n\n"
    decoder = DIALECTS["anthropic_messages"].stream_decoder()
    events = [
        made for event in decoder.feed(raw) for made in output_scan().lifted().events([event])
    ]
    mask = "[REDACTED:CREDIT_CARD]"
    (shown,) = events
    told = msgspec.json.decode(shown.raw.partition(b"data:")[2])
    assert told["content_block"]["input"] == {"to": mask, "n": mask}
    arguments = [each.text for each in shown.deltas if each.kind == "tool_arguments"]
    assert msgspec.json.decode(arguments[0]) == {"to": mask, "n": mask}


def tokens_of(text: str) -> list[dict[str, Any]]:
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    return [{"token": each, "bytes": list(each.encode()), "logprob": -0.1} for each in pieces]


def test_what_is_masked_is_not_told_by_the_tokens_of_probabilities() -> None:
    tokens = tokens_of(CARD)
    message = {"role": "assistant", "content": CARD}
    chat = {"choices": [{"message": message, "logprobs": {"content": tokens}}]}
    part = {"type": "output_text", "text": CARD, "logprobs": tokens}
    trees = (chat, {"output": [{"type": "message", "content": [part]}]})
    for tree in trees:
        raw = msgspec.json.encode(tree)
        made = output_scan().unveiled(raw)
        assert b'"token"' not in made
        assert b"[REDACTED:CREDIT_CARD]" in made
        assert output_scan(None).unveiled(raw) == raw
    for name in ("token_ids", "meta_info", "hidden_states", "raw_output"):
        beside = {"choices": [{"message": message, name: {"of_tokens": tokens}}]}
        assert b"of_tokens" not in output_scan().unveiled(msgspec.json.encode(beside)), name
    harmless = answered_with({"logprobs": True, "n": 1})
    assert output_scan().unveiled(harmless) == harmless


def test_nor_in_a_stream_whose_chunks_say_nothing_else_that_is_masked() -> None:
    lift, decoder = output_scan().lifted(), DIALECTS["openai_chat"].stream_decoder()
    raw = b""
    for each in tokens_of(f"It is {CARD} indeed, and that was all."):
        choice = {"index": 0, "delta": {"content": each["token"]}, "logprobs": {"content": [each]}}
        sent = {"id": "c", "model": "m", "choices": [choice]}
        for event in decoder.feed(b"data: " + msgspec.json.encode(sent) + b"\n\n"):
            raw += b"".join(made.raw for made in lift.events([event]))
    raw += b"".join(made.raw for made in lift.events(decoder.feed(b"data: [DONE]\n\n")))
    assert b'"token"' not in raw
    assert raw.count(b'"logprobs":null') > 10
    again = DIALECTS["openai_chat"].stream_decoder().feed(raw)
    assert text_of(again) == "It is [REDACTED:CREDIT_CARD] indeed, and that was all."


def test_what_the_caller_sent_comes_back_and_what_the_model_adds_is_masked() -> None:
    veil = veil_of("openai_chat")
    person = veil.names.replacements["Ingrid Halvorsen"]
    mail = veil.names.replacements["ingrid@corp-mail.no"]
    text = f"I told {person} ( {mail} ) about {VALUES['CREDIT_CARD']} today. {WORDS}"
    both = in_turn(output_scan(DataClass.S2), veil)
    assert both is not None
    lift = both.lifted()
    events = events_of("openai_chat", text)
    said = text_of([made for event in events for made in lift.events([event])])
    assert "Ingrid Halvorsen ( ingrid@corp-mail.no ) about [REDACTED:CREDIT_CARD] today" in said
    raw = msgspec.json.encode({"content": text})
    assert b"Ingrid Halvorsen ( ingrid@corp-mail.no ) about [RED" in both.unveiled(raw)
    assert in_turn(None, None) is None


def event(kind: str, **fields: Any) -> bytes:
    body = msgspec.json.encode({"type": kind, **fields})
    return b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n"


def custom_chunk(**call: Any) -> bytes:
    return chat_chunk({"tool_calls": [{"index": 0, **call}]})


def chat_chunk(delta: Any, **choice: Any) -> bytes:
    body = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, **choice}]}
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def in_chat(pieces: list[str]) -> list[bytes]:
    start = custom_chunk(id="call_1", type="custom", custom={"name": "note", "input": ""})
    middle = [custom_chunk(custom={"input": each}) for each in pieces]
    end = chat_chunk({}, finish_reason="tool_calls")
    return [start, *middle, end, b"data: [DONE]\n\n"]


def in_responses(pieces: list[str]) -> list[bytes]:
    item = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "n", "input": ""}
    kind = "response.custom_tool_call_input"
    middle = [event(f"{kind}.delta", output_index=0, item_id="ctc_1", delta=p) for p in pieces]
    end = event(f"{kind}.done", output_index=0, item_id="ctc_1", input="".join(pieces))
    whole = {"id": "resp_1", "object": "response", "model": "m", "status": "completed"}
    stop = event("response.completed", response={**whole, "output": []})
    return [event("response.output_item.added", output_index=0, item=item), *middle, end, stop]


def in_messages(pieces: list[str]) -> list[bytes]:
    block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": each} for each in pieces]
    middle = [event("content_block_delta", index=0, delta=each) for each in deltas]
    start = event("content_block_start", index=0, content_block=block)
    ended = event("message_delta", delta={"stop_reason": "end_turn"})
    ends = [event("content_block_stop", index=0), ended, event("message_stop")]
    return [start, *middle, *ends]


@pytest.mark.parametrize(
    ("dialect", "sent"),
    [
        ("openai_chat", in_chat),
        ("openai_responses", in_responses),
        ("anthropic_messages", in_messages),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_what_goes_to_a_tool_that_only_one_dialect_knows_is_masked_and_counted_too(
    dialect: DialectName, sent: Any, size: int
) -> None:
    text = f'{{"query": "who has {CARD} ?"}}'
    raw = sent([text[at : at + size] for at in range(0, len(text), size)])
    output = output_scan()
    decoder, lift = DIALECTS[dialect].stream_decoder(), output.lifted()
    events = [made for each in raw for found in decoder.feed(each) for made in lift.events([found])]
    said = "".join(each.text for found in events for each in found.deltas)
    assert msgspec.json.decode(said) == {"query": "who has [REDACTED:CREDIT_CARD] ?"}
    bare = b"".join(found.raw for found in events)
    again = DIALECTS[dialect].stream_decoder().feed(bare)
    assert "".join(each.text for found in again for each in found.deltas) == said
    assert CARD.encode() not in bare
    assert output.found == {"CREDIT_CARD": 1}
