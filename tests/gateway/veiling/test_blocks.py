"""Blocks of text that follow each other are one text to a reader, and are masked as one."""

from collections.abc import Iterable
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classifiers.pii.detect import scan
from classifiers.pii.labels import DataClass
from gateway.dialects.registry import DIALECTS
from gateway.types import StreamEvent
from gateway.veiling.masking import MaskingWindow
from gateway.veiling.veil import Veil
from tests.gateway.veiling.answers_in_blocks import (
    CITED,
    STREAMED,
    WHOLE,
    each_through,
    in_messages,
    lifted,
    message,
    repeated,
    texts_of,
    through,
    told,
    trees,
)
from tests.gateway.veiling.test_output_scan import VALUES, WORDS, event, output_scan
from tests.gateway.veiling.test_veil import veil_of


CARD, IBAN = VALUES["CREDIT_CARD"], VALUES["IBAN"]
MASK = "[REDACTED:CREDIT_CARD]"
streamed = pytest.mark.parametrize("shape", STREAMED)
whole = pytest.mark.parametrize("shape", WHOLE)


def cut(text: str, cuts: Iterable[int]) -> list[str]:
    edges = sorted({0, *(each for each in cuts if each < len(text)), len(text)})
    return [text[a:b] for a, b in pairwise(edges)]


def as_one(text: str) -> str:
    return MaskingWindow(scan, DataClass.S3).whole(text)


@st.composite
def texts(draw: st.DrawFn) -> str:
    said = draw(st.lists(st.sampled_from([*VALUES.values(), WORDS, "No. 12, page 7."]), min_size=1))
    return " and ".join(said)


@settings(max_examples=25, deadline=None)
@given(text=texts(), data=st.data())
@streamed
def test_any_split_into_blocks_and_pieces_shows_what_one_block_shows(
    shape: str, text: str, data: st.DataObject
) -> None:
    cuts = st.lists(st.integers(1, len(text)), max_size=6)
    blocks = [cut(block, data.draw(cuts)) for block in cut(text, data.draw(cuts))]
    output = output_scan()
    events = lifted(shape, output.lifted(), blocks)
    said = told(events, len(blocks))

    assert "".join(said) == as_one(text)
    assert all(said)
    again = output_scan()
    joined = ["".join(pieces) for pieces in blocks]
    tree = msgspec.json.decode(again.unveiled(msgspec.json.encode(WHOLE[shape](joined))))
    assert texts_of(tree) == said
    assert again.found == output.found
    if shape != "messages":
        assert repeated(events) == said


@settings(max_examples=25, deadline=None)
@given(text=texts(), data=st.data())
@whole
def test_any_split_of_a_whole_answer_shows_what_one_block_shows(
    shape: str, text: str, data: st.DataObject
) -> None:
    blocks = cut(text, data.draw(st.lists(st.integers(1, len(text)), max_size=9)))
    tree = msgspec.json.decode(output_scan().unveiled(msgspec.json.encode(WHOLE[shape](blocks))))
    assert "".join(texts_of(tree)) == as_one(text)
    assert all(texts_of(tree))


@pytest.mark.parametrize("label", VALUES)
@streamed
def test_a_value_is_masked_wherever_a_block_ends_in_it(shape: str, label: str) -> None:
    text = f"It is {VALUES[label]} as you know."
    for place in range(1, len(text)):
        blocks = [list(text[:place]), [text[place:]]]
        said = told(lifted(shape, output_scan().lifted(), blocks), 2)
        assert "".join(said) == as_one(text)
        assert all(said)


def veiled_text(veil: Veil) -> tuple[str, str]:
    """What a model says of two people, and what the caller is told."""
    person, mail = veil.names.replacements["Ingrid Halvorsen"], "ingrid@corp-mail.no"
    sent = f"{person} ( {veil.names.replacements[mail]} ) met {person}. Dear {person.split()[0]}"
    told = f"Ingrid Halvorsen ( {mail} ) met Ingrid Halvorsen. Dear Ingrid"
    return sent, told


@settings(max_examples=20, deadline=None)
@given(data=st.data())
@streamed
def test_any_split_gets_its_values_back(shape: str, data: st.DataObject) -> None:
    veil = veil_of("openai_chat")
    sent, back = veiled_text(veil)
    cuts = st.lists(st.integers(1, len(sent)), max_size=9)
    blocks = [cut(block, data.draw(cuts)) for block in cut(sent, data.draw(cuts))]
    events = lifted(shape, veil.lifted(), blocks)
    said = told(events, len(blocks))

    assert "".join(said) == back
    assert all(said)
    tree = WHOLE[shape](["".join(pieces) for pieces in blocks])
    assert texts_of(msgspec.json.decode(veil.unveiled(msgspec.json.encode(tree)))) == said
    if shape != "messages":
        assert repeated(events) == said


@streamed
def test_a_name_that_ends_with_its_block_is_put_back_whatever_follows(shape: str) -> None:
    veil = veil_of("openai_chat")
    person = veil.names.replacements["Ingrid Halvorsen"]
    events = lifted(shape, veil.lifted(), [[f"Dear {person}"], [person], ["Then we left."]])
    assert told(events, 3) == ["Dear Ingrid Halvorsen", "Ingrid Halvorsen", "Then we left."]


@streamed
def test_a_value_that_ends_with_its_block_is_masked_whatever_follows(shape: str) -> None:
    digits = CARD.replace(" ", "")
    assert as_one(f"{digits}2. The next") == f"{digits}2. The next"
    for first, then in ((digits, "2. The next"), ("Point 2", f"{digits} it is"), (digits, "and")):
        blocks = [[first], [then]]
        output = output_scan()
        said = told(lifted(shape, output.lifted(), blocks), 2)
        assert said == [each.replace(digits, MASK) for each in (first, then)]
        assert output.found == {"CREDIT_CARD": 1}
        again = output_scan()
        tree = WHOLE[shape]([first, then])
        assert texts_of(msgspec.json.decode(again.unveiled(msgspec.json.encode(tree)))) == said
        assert again.found == output.found


THOUGHT = [
    event("content_block_start", index=1, content_block={"type": "thinking", "thinking": ""}),
    event("content_block_delta", index=1, delta={"type": "thinking_delta", "thinking": "hm. "}),
    event("content_block_stop", index=1),
]
CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
CALLED = [
    event("content_block_start", index=1, content_block=CALL),
    event("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": "{}"}),
    event("content_block_stop", index=1),
]
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
SEARCHED = [
    event("content_block_start", index=1, content_block=SEARCH),
    event("content_block_stop", index=1),
]
BREAKS = [
    (THOUGHT, {"type": "thinking", "thinking": "hm", "signature": "s"}),
    (CALLED, CALL),
    (SEARCHED, SEARCH),
]


@pytest.mark.parametrize(("between", "block"), BREAKS)
def test_what_parts_two_texts_waits_for_neither_and_the_rest_of_a_value_is_masked(
    between: list[bytes], block: dict[str, object]
) -> None:
    blocks = [["It is ", CARD[:10]], [CARD[10:], " , he said."]]
    output = output_scan()
    lift = output.lifted()
    raw = in_messages(blocks, between)
    first = raw.index(between[0])
    early = through("anthropic_messages", lift, raw[: first + len(between)])
    seen = early + through("anthropic_messages", lift, raw[first + len(between) :])

    assert texts_of_deltas(early) == [f"It is {CARD[:10]}"]
    assert early[-1].raw == between[-1]
    said = [f"It is {CARD[:10]}", f"{MASK} , he said."]
    assert texts_of_deltas(seen) == said
    again = output_scan()
    tree = message(["".join(pieces) for pieces in blocks], [block])
    shown = msgspec.json.decode(again.unveiled(msgspec.json.encode(tree)))
    assert texts_of(shown) == said
    assert again.found == output.found == {"CREDIT_CARD": 1}


def texts_of_deltas(events: Iterable[object]) -> list[str]:
    """The texts between whose blocks something else stands."""
    said: list[str] = []
    goes_on = False
    for each in trees([e for e in events if isinstance(e, StreamEvent)]):
        if (text := each.get("delta", {}).get("text")) is not None:
            said = [*said[:-1], said[-1] + text] if goes_on else [*said, text]
            goes_on = True
        elif each["type"] != "content_block_stop" and "citation" not in each.get("delta", {}):
            goes_on = False
    return said


@streamed
def test_plain_words_wait_for_no_block_but_the_last_of_them(shape: str) -> None:
    lift = output_scan().lifted()
    dialect, made = STREAMED[shape]
    raw = made([[WORDS], [WORDS], ["And so on."]])
    shown = ""
    for each, seen in zip(raw, each_through(dialect, lift, raw), strict=True):
        shown += "".join(d.text for e in seen for d in e.deltas if d.kind == "text")
        if each == raw[len(raw) // 2]:
            assert shown.startswith(WORDS)
    assert shown == WORDS * 2 + "And so on."


@pytest.mark.parametrize("shown", ["", "Good morning. "])
def test_what_begins_a_value_only_where_a_block_begins_is_held_back_behind_words(
    shown: str,
) -> None:
    """`saidAB` begins nothing, and `AB` does; wherever the words before it were shown already."""
    window = MaskingWindow(scan, DataClass.S3)
    assert window.shown(shown + "she said") == [f"{shown}she "]
    assert not window.edge()
    assert window.shown("AB ") == ["said", ""]
    assert window.shown("12 34 56 C, she said.") == [""]
    assert window.rest() == ["[REDACTED:UK_NINO], she said."]


def test_no_more_than_a_window_is_held_back_over_any_number_of_blocks() -> None:
    lift = output_scan().lifted()
    raw = in_messages([[f"{n:04}"] for n in range(400)])
    given = shown = 0
    for each, seen in zip(raw, each_through("anthropic_messages", lift, raw), strict=True):
        given += 4 * (b"text_delta" in each)
        for found in seen:
            shown += sum(len(d.text) for d in found.deltas if d.kind == "text")
        assert given - shown <= 256
    assert given == shown


def test_a_ping_waits_for_no_block_and_a_citation_for_the_beginning_of_its_own() -> None:
    ping = event("ping")
    raw = in_messages([["It is ", CARD[:9]], [CARD[9:], " , he said."]], [ping])
    lift = output_scan().lifted()
    seen = each_through("anthropic_messages", lift, raw)

    assert [each.raw for each in seen[raw.index(ping)]] == [ping]
    events = [each for batch in seen for each in batch]
    told([each for each in events if each.raw != ping], 2)
    kinds = [tree["type"] for tree in trees(events)]
    starts = [at for at, kind in enumerate(kinds) if kind == "content_block_start"]
    quotes = [at for at, each in enumerate(events) if b"citations_delta" in each.raw]
    assert quotes == [starts[0] + 1, starts[1] + 1]


def test_a_block_that_begins_with_words_begins_once() -> None:
    blocks = in_messages([[], []])
    opening = {"type": "text", "text": f"It is {CARD[:12]}"}
    blocks[1] = event("content_block_start", index=0, content_block=opening)
    opening = {"type": "text", "text": f"{CARD[12:]} , he said"}
    blocks[4] = event("content_block_start", index=1, content_block=opening)
    events = through("anthropic_messages", output_scan().lifted(), blocks)
    kinds = [tree["type"] for tree in trees(events)]

    assert kinds.count("content_block_start") == 2
    assert told(events, 2) == [f"It is {MASK}", " , he said"]


def test_a_thought_that_begins_with_words_begins_once() -> None:
    raw = in_messages([[]])
    opening = {"type": "thinking", "thinking": f"It is {CARD[:12]}"}
    delta = {"type": "thinking_delta", "thinking": f"{CARD[12:]} , he said"}
    raw[1] = event("content_block_start", index=0, content_block=opening)
    raw[2] = event("content_block_delta", index=0, delta=delta)
    seen = trees(through("anthropic_messages", output_scan().lifted(), raw))

    starts = [tree["content_block"] for tree in seen if tree["type"] == "content_block_start"]
    assert starts == [{"type": "thinking", "thinking": "It is "}]
    said = "".join(tree.get("delta", {}).get("thinking", "") for tree in seen)
    assert said == f"{MASK} , he said"

    raw[2] = event("ping")
    seen = trees(through("anthropic_messages", output_scan().lifted(), raw))
    said = "".join(tree.get("delta", {}).get("thinking", "") for tree in seen)
    assert said == CARD[:12]


@pytest.mark.parametrize("at", ["added", "done"])
def test_an_item_that_brings_all_arguments_of_a_call_is_said_once(at: str) -> None:
    arguments = msgspec.json.encode({"to": CARD, "why": "rent"}).decode()
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "pay"}
    whole = {"id": "r", "object": "response", "model": "m", "status": "completed", "output": []}
    items = {"added": {**call, "arguments": ""}, "done": {**call, "arguments": arguments}}
    items[at] = {**call, "arguments": arguments}
    raw = [
        event("response.output_item.added", output_index=0, item=items["added"]),
        event("response.output_item.done", output_index=0, item=items["done"]),
        event("response.completed", response=whole),
    ]
    seen = through("openai_responses", output_scan().lifted(), raw)

    assert [tree["type"] for tree in trees(seen)] == [tree["type"] for tree in trees(plain(raw))]
    shown = msgspec.json.encode({"to": MASK, "why": "rent"}).decode()
    assert trees(seen)[1]["item"]["arguments"] == shown
    said = "".join(d.text for each in seen for d in each.deltas if d.kind == "tool_arguments")
    assert said == shown


def plain(raw: list[bytes]) -> list[StreamEvent]:
    return DIALECTS["openai_responses"].stream_decoder().feed(b"".join(raw))


@pytest.mark.parametrize(
    "other", [{"type": "image"}, {"type": "tool_result", "content": "x"}, {"type": ["odd"]}, "odd"]
)
def test_whatever_else_stands_among_blocks_an_answer_is_masked(other: object) -> None:
    tree = {"content": [other, {"type": "text", "text": CARD}, {"type": "text", "text": 7}, other]}
    made = msgspec.json.decode(output_scan().unveiled(msgspec.json.encode(tree)))
    assert made["content"] == [other, {"type": "text", "text": MASK}, tree["content"][2], other]


def cited(text: str) -> dict[str, object]:
    return {**CITED, "cited_text": text}


def test_what_a_citation_quotes_is_masked_and_counted_like_the_words_beside_it() -> None:
    block = {"type": "text", "text": "See there.", "citations": [cited(f"Card {CARD} .")]}
    raw = in_messages([["See there."]])
    delta = {"type": "citations_delta", "citation": cited(f"Card {CARD} .")}
    raw[2] = event("content_block_delta", index=0, delta=delta)
    for mode in (DataClass.S3, None):
        whole_, stream = output_scan(mode), output_scan(mode)
        made = whole_.unveiled(msgspec.json.encode({"content": [block]}))
        events = through("anthropic_messages", stream.lifted(), raw)
        quoted = [
            each["delta"]["citation"]["cited_text"]
            for each in trees(events)
            if "citation" in each.get("delta", {})
        ]
        expected = f"Card {MASK if mode else CARD} ."
        assert msgspec.json.decode(made)["content"][0]["citations"] == [cited(expected)]
        assert quoted == [expected]
        assert whole_.found == stream.found == {"CREDIT_CARD": 1}
