"""Of several answers in one stream each is read by itself, however their pieces take turns."""

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.registry import DIALECTS
from gateway.types import DialectName, StreamEvent
from gateway.veiling.rewriting import Lift
from tests.gateway.veiling.test_output_scan import VALUES, in_pieces, output_scan
from tests.gateway.veiling.test_veil import veil_of


CARD, IBAN = VALUES["CREDIT_CARD"], VALUES["IBAN"]
TEXTS = (f"It is {CARD} , he said.", f"Pay to {IBAN} please, and at once.")
SHOWN = ("It is [REDACTED:CREDIT_CARD] , he said.", "Pay to [REDACTED:IBAN] please, and at once.")
FIELDS = ("content", "reasoning_content", "refusal", "tool_calls")


def delta(field: str, text: str) -> dict[str, Any]:
    is_call = field == "tool_calls"
    return {field: [{"index": 0, "function": {"arguments": text}}] if is_call else text}


def chunk(*choices: dict[str, Any]) -> bytes:
    body = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": choices}
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def opening(field: str) -> Iterable[bytes]:
    if field == "tool_calls":
        for answer in (0, 1):
            call = {"index": 0, "id": f"call_{answer}", "function": {"name": f"f{answer}"}}
            yield chunk({"index": answer, "delta": {"tool_calls": [call]}})


def said(events: Iterable[StreamEvent], field: str) -> tuple[str, str]:
    """What each answer says in the bytes of a stream."""
    found = {0: "", 1: ""}
    for event in events:
        line = event.raw.partition(b"data:")[2].strip()
        if not line or line == b"[DONE]":
            continue
        for choice in msgspec.json.decode(line)["choices"]:
            piece = choice["delta"].get(field) or ""
            if isinstance(piece, list):
                piece = piece[0]["function"].get("arguments", "")
            found[choice["index"]] += piece
    return found[0], found[1]


def lifted(lift: Lift, raw: Iterable[bytes]) -> list[StreamEvent]:
    decoder = DIALECTS["openai_chat"].stream_decoder()
    return [made for each in raw for event in decoder.feed(each) for made in lift.events([event])]


def in_turns(
    texts: tuple[str, str], field: str, turns: list[bool], cuts: list[int], empty: list[bool]
) -> list[bytes]:
    """Both texts in pieces that take turns, with chunks between that say nothing."""
    left = [list(in_pieces(text, [cut for cut in cuts if cut < len(text)])) for text in texts]
    chunks = [*opening(field)]
    for turn, says_nothing in zip(turns, empty, strict=True):
        answer = int(turn) if left[turn] else 1 - turn
        if says_nothing:
            chunks.append(chunk({"index": answer, "delta": {}, "finish_reason": None}))
        if left[answer]:
            chunks.append(chunk({"index": answer, "delta": delta(field, left[answer].pop(0))}))
            if not left[answer]:
                chunks.append(chunk({"index": answer, "delta": {}, "finish_reason": "stop"}))
    for answer in (0, 1):
        if left[answer]:
            rest = delta(field, "".join(left[answer]))
            chunks += [chunk({"index": answer, "delta": rest}), chunk()]
            chunks.append(chunk({"index": answer, "delta": {}, "finish_reason": "stop"}))
    return [*chunks, b"data: [DONE]\n\n"]


@pytest.mark.parametrize("field", FIELDS)
@settings(max_examples=40)
@given(data=st.data())
def test_what_is_masked_does_not_depend_on_whose_turn_it_is(
    field: str, data: st.DataObject
) -> None:
    size = data.draw(st.integers(2, 40))
    flags = st.lists(st.booleans(), min_size=size, max_size=size)
    cuts = data.draw(st.lists(st.integers(1, 40), max_size=20))
    raw = in_turns(TEXTS, field, data.draw(flags), cuts, data.draw(flags))
    output = output_scan()

    assert said(lifted(output.lifted(), raw), field) == SHOWN
    assert output.found == {"CREDIT_CARD": 1, "IBAN": 1}


@pytest.mark.parametrize("field", FIELDS)
def test_letter_by_letter_in_turns_both_are_masked_and_both_get_their_values_back(
    field: str,
) -> None:
    def every(one: str, other: str) -> list[bytes]:
        turns, empty = [False, True] * 80, [True, False] * 80
        return in_turns((one, other), field, turns, list(range(1, 80)), empty)

    assert said(lifted(output_scan().lifted(), every(*TEXTS)), field) == SHOWN

    veil = veil_of("openai_chat")
    person = veil.names.replacements["Ingrid Halvorsen"]
    both = lifted(veil.lifted(), every(f"Dear {person}, hello", f"To {person}: good morning"))
    assert said(both, field) == (
        "Dear Ingrid Halvorsen, hello",
        "To Ingrid Halvorsen: good morning",
    )


def test_calls_in_two_answers_are_two_calls_though_both_are_their_answers_first() -> None:
    raw = in_turns(
        ('{"a": 1}', '{"b": 2}'), "tool_calls", [False, True] * 8, [2, 4, 6], [False] * 16
    )
    decoder = DIALECTS["openai_chat"].stream_decoder()
    deltas = [piece for each in raw for event in decoder.feed(each) for piece in event.deltas]

    for index, arguments in enumerate(('{"a": 1}', '{"b": 2}')):
        mine = [each for each in deltas if each.index == index]
        assert [each.name for each in mine if each.kind == "tool_start"] == [f"f{index}"]
        pieces = [each.text for each in mine if each.kind == "tool_arguments"]
        assert "".join(pieces) == arguments


def together(field: str, size: int) -> list[bytes]:
    """Pieces of both answers in each chunk, which ends with both."""
    pieces = [list(in_pieces(text, [*range(size, len(text), size)])) for text in TEXTS]
    both = [
        chunk(*({"index": at, "delta": delta(field, text)} for at, text in enumerate(said)))
        for said in zip_longest(*pieces, fillvalue="")
    ]
    ends: list[dict[str, Any]] = [
        {"index": at, "delta": {}, "finish_reason": "stop"} for at in (0, 1)
    ]
    return [*opening(field), *both, chunk(*ends), b"data: [DONE]\n\n"]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("size", [1, 2, 7, 20])
def test_pieces_of_both_answers_in_one_chunk_are_masked_and_said_once(
    field: str, size: int
) -> None:
    output = output_scan()

    assert said(lifted(output.lifted(), together(field, size)), field) == SHOWN
    assert output.found == {"CREDIT_CARD": 1, "IBAN": 1}


def test_a_call_in_the_same_piece_as_words_is_not_repeated_with_them() -> None:
    call = {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": '{"a":'}}
    rest = {"index": 0, "function": {"arguments": " 1}"}}
    raw = [
        chunk({"index": 0, "delta": {"content": f"It is {CARD}", "tool_calls": [call]}}),
        chunk({"index": 0, "delta": {"tool_calls": [rest]}}),
        chunk({"index": 0, "delta": {}, "finish_reason": "tool_calls"}),
        b"data: [DONE]\n\n",
    ]
    events = lifted(output_scan().lifted(), raw)
    again = DIALECTS["openai_chat"].stream_decoder().feed(b"".join(each.raw for each in events))

    told = [(piece.kind, piece.text) for event in again for piece in event.deltas]
    assert "".join(text for kind, text in told if kind == "text") == "It is [REDACTED:CREDIT_CARD]"
    assert "".join(text for kind, text in told if kind == "tool_arguments") == '{"a": 1}'


def test_equal_pieces_of_two_continuations_are_each_judged_by_their_own() -> None:
    def piece(*texts: str) -> bytes:
        choices = [{"index": at, "text": text} for at, text in enumerate(texts)]
        body = {"id": "c", "object": "text_completion", "model": "m", "choices": choices}
        return b"data: " + msgspec.json.encode(body) + b"\n\n"

    card = f"{CARD} , he said."
    raw = [piece("No 1", ""), *(piece(each, each) for each in card), b"data: [DONE]\n\n"]
    decoder, lift = DIALECTS["openai_completions"].stream_decoder(), output_scan().lifted()
    events = [out for each in raw for event in decoder.feed(each) for out in lift.events([event])]
    told = ["", ""]
    for event in events[:-1]:
        for choice in msgspec.json.decode(event.raw.partition(b"data:")[2])["choices"]:
            told[choice["index"]] += choice["text"]

    assert told == [f"No 1{card}", SHOWN[0][6:]]


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_completions"])
def test_what_is_told_of_tokens_is_told_once_where_words_are_held_back(
    dialect: DialectName,
) -> None:
    """What was held back comes in one more chunk like the last, whose tokens were told with it."""
    veil = veil_of("openai_chat")
    words = f"Dear {veil.names.replacements['Ingrid Halvorsen']}"[:-1]
    is_chat = dialect == "openai_chat"
    said: dict[str, Any] = {"delta": {"content": words}} if is_chat else {"text": words}
    told = {"tokens": [words], "content": [{"token": words}]}
    end: dict[str, Any] = {"delta": {}} if is_chat else {"text": ""}
    raw = [
        chunk({"index": 0, "logprobs": told, "token_ids": [7], "finish_reason": None} | said),
        chunk({"index": 0, "logprobs": None, "finish_reason": "stop"} | end),
    ]
    decoder, lift = DIALECTS[dialect].stream_decoder(), veil.lifted()
    out = [e for each in raw for event in decoder.feed(each) for e in lift.events([event])]

    choices = [msgspec.json.decode(event.raw.partition(b"data:")[2])["choices"][0] for event in out]
    assert len(choices) == len(raw) + 1
    assert [each["logprobs"] for each in choices if each.get("logprobs")] == [told]
    assert [each["token_ids"] for each in choices if each.get("token_ids")] == [[7]]
