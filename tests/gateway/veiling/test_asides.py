"""What stands beside a text while it streams, such as a citation, does not end it."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from gateway.dialects.registry import DIALECTS
from gateway.types import DialectName, StreamEvent
from gateway.veiling.rewriting import Lift
from tests.gateway.veiling.test_output_scan import VALUES, event, output_scan
from tests.gateway.veiling.test_veil import veil_of


CARD = VALUES["CREDIT_CARD"]
Said = Callable[[list[str], bytes], list[bytes]]
MARK = "the-mark-of-what-stands-beside"
COMMENT, PING = b": still here\n\n", b'event: ping\ndata: {"type": "ping"}\n\n'


def between(pieces: Iterable[bytes], aside: bytes) -> list[bytes]:
    """An aside before, between and after the pieces."""
    return [aside, *(each for piece in pieces for each in (piece, aside))]


def chunk(delta: Any, **choice: Any) -> bytes:
    body = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, **choice}]}
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def in_chat(pieces: list[str], aside: bytes) -> list[bytes]:
    said = between((chunk({"content": each}) for each in pieces), aside)
    return [chunk({"role": "assistant"}), *said, chunk({}, finish_reason="stop"), DONE]


def in_messages(pieces: list[str], aside: bytes) -> list[bytes]:
    message = {"id": "msg_1", "model": "m", "usage": {"input_tokens": 1, "output_tokens": 1}}
    block = {"type": "text", "text": "", "citations": []}
    said = (block_delta(type="text_delta", text=each) for each in pieces)
    return [
        event("message_start", message=message),
        event("content_block_start", index=0, content_block=block),
        *between(said, aside),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9}),
        event("message_stop"),
    ]


def in_responses(pieces: list[str], aside: bytes) -> list[bytes]:
    whole = {"id": "resp_1", "object": "response", "model": "m", "status": "completed"}
    text = "".join(pieces)
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    said = (event("response.output_text.delta", **place, delta=each) for each in pieces)
    return [
        event("response.created", response={**whole, "status": "in_progress", "output": []}),
        *between(said, aside),
        event("response.output_text.done", **place, text=text),
        event("response.completed", response={**whole, "output": []}),
    ]


def bare(text: str, **choice: Any) -> bytes:
    body = {"id": "c", "model": "m", "choices": [{"index": 0, "text": text, **choice}]}
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def in_completions(pieces: list[str], aside: bytes) -> list[bytes]:
    return [*between(map(bare, pieces), aside), bare("", finish_reason="stop"), DONE]


def block_delta(**piece: Any) -> bytes:
    return event("content_block_delta", index=0, delta=piece)


DONE = b"data: [DONE]\n\n"
CITED = {"type": "char_location", "cited_text": "rivers", "document_title": MARK}
URL = {"type": "url_citation", "url": "https://docs.invalid/", "title": MARK}
ANNOTATION = "response.output_text.annotation.added"
CASES: Iterable[tuple[DialectName, Said, bytes]] = [
    ("openai_chat", in_chat, chunk({"annotations": [URL]})),
    ("openai_chat", in_chat, chunk({"content": "", "annotations": [URL]})),
    ("openai_chat", in_chat, COMMENT),
    ("openai_completions", in_completions, bare("")),
    ("openai_completions", in_completions, b"id: 7\n\n"),
    ("openai_completions", in_completions, COMMENT),
    ("anthropic_messages", in_messages, block_delta(type="citations_delta", citation=CITED)),
    ("anthropic_messages", in_messages, block_delta(type="of_tomorrow_delta", said=MARK)),
    ("anthropic_messages", in_messages, block_delta(type="text_delta", text="")),
    ("anthropic_messages", in_messages, event("of_tomorrow", said=MARK)),
    ("anthropic_messages", in_messages, b"id: 7\n\n"),
    ("anthropic_messages", in_messages, PING),
    ("openai_responses", in_responses, event(ANNOTATION, annotation_index=0, annotation=URL)),
    ("openai_responses", in_responses, event(ANNOTATION, delta={}, annotation=URL)),
    ("openai_responses", in_responses, event("response.output_text.delta", delta="")),
    ("openai_responses", in_responses, event("keepalive", sequence_number=7)),
    ("openai_responses", in_responses, b"id: 7\n\n"),
]
asides = pytest.mark.parametrize(("dialect", "made", "aside"), CASES)


def lifted(dialect: DialectName, lift: Lift, raw: list[bytes]) -> list[StreamEvent]:
    decoder = DIALECTS[dialect].stream_decoder()
    return [out for each in raw for found in decoder.feed(each) for out in lift.events([found])]


def read_again(dialect: DialectName, events: list[StreamEvent]) -> str:
    """What a caller reads in the bytes."""
    decoder = DIALECTS[dialect].stream_decoder()
    again = decoder.feed(b"".join(each.raw for each in events))
    assert again[-1].is_terminal
    return "".join(d.text for each in again for d in each.deltas if d.kind == "text")


@asides
@pytest.mark.parametrize("size", [1, 4, 30])
def test_a_value_in_pieces_around_an_aside_is_masked(
    dialect: DialectName, made: Said, aside: bytes, size: int
) -> None:
    text = f"It is {CARD} , he said."
    raw = made([text[at : at + size] for at in range(0, len(text), size)], aside)
    output = output_scan()
    events = lifted(dialect, output.lifted(), raw)

    assert read_again(dialect, events) == "It is [REDACTED:CREDIT_CARD] , he said."
    assert output.found == {"CREDIT_CARD": 1}
    # Nothing that stands beside the text is lost, or said twice.
    assert sum(MARK.encode() in each.raw for each in events) == sum(MARK.encode() in r for r in raw)


@asides
def test_a_name_in_pieces_around_an_aside_is_put_back(
    dialect: DialectName, made: Said, aside: bytes
) -> None:
    veil = veil_of("openai_chat")
    text = f"Dear {veil.names.replacements['Ingrid Halvorsen']}, hello."
    events = lifted(dialect, veil.lifted(), made(list(text), aside))

    assert read_again(dialect, events) == "Dear Ingrid Halvorsen, hello."


def test_the_words_of_a_text_come_before_its_end_also_behind_a_citation() -> None:
    aside = block_delta(type="citations_delta", citation=CITED)
    events = lifted("anthropic_messages", output_scan().lifted(), in_messages([CARD], aside))

    kinds = [each.raw.partition(b"\n")[0] for each in events if b"_delta" not in each.raw]
    ends = next(i for i, each in enumerate(events) if b"content_block_stop" in each.raw)
    assert b"[REDACTED:CREDIT_CARD]" in events[ends - 1].raw
    assert kinds[-2:] == [b"event: content_block_stop", b"event: message_stop"]


def test_annotations_that_come_with_words_are_said_once() -> None:
    both = chunk({"content": CARD, "annotations": [URL]})
    raw = [chunk({"role": "assistant"}), both, chunk({}, finish_reason="stop"), DONE]
    events = lifted("openai_chat", output_scan().lifted(), raw)

    assert read_again("openai_chat", events) == "[REDACTED:CREDIT_CARD]"
    assert sum(MARK.encode() in each.raw for each in events) == 1


def test_arguments_of_a_call_that_was_never_begun_are_masked_too() -> None:
    kind = "response.function_call_arguments.delta"
    raw = [event(kind, output_index=3, delta=each) for each in f'{{"card": "{CARD}"}}']
    output = output_scan()
    events = lifted("openai_responses", output.lifted(), [*raw, *in_responses(["Done."], COMMENT)])

    said = "".join(d.text for each in events for d in each.deltas if d.kind == "opaque")
    assert said == '{"card": "[REDACTED:CREDIT_CARD]"}'
    assert output.found == {"CREDIT_CARD": 1}


@pytest.mark.parametrize(
    ("last", "behind"),
    [
        ("reasoning_content", {"content": "Hello."}),
        ("content", {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]}),
        ("content", {"refusal": "No."}),
    ],
)
def test_last_words_come_before_what_the_same_piece_goes_over_to(last: str, behind: Any) -> None:
    """Held back, they came behind it: a thought behind the answer, words behind the call."""
    veil = veil_of("openai_chat")
    name = veil.names.replacements["Ingrid Halvorsen"]
    raw = [chunk({last: f"It is {name[:5]}"}), chunk({last: name[5:], **behind}), DONE]
    decoder, lift = DIALECTS["openai_chat"].stream_decoder(), veil.lifted()
    seen = [made for each in raw for made in lift.events(decoder.feed(each))]
    deltas = [delta for each in seen for delta in each.deltas if delta.text or delta.name]
    kinds = [delta.kind for delta in deltas]
    assert "".join(d.text for d in deltas if d.kind == kinds[0]) == "It is Ingrid Halvorsen"
    assert kinds[-1] not in kinds[:-1]
    assert last.encode() in b"".join(each.raw for each in seen)


def test_of_several_answers_in_one_piece_a_thought_goes_on_in_the_next() -> None:
    said = {"index": 0, "delta": {"reasoning_content": CARD[:9]}}
    other = {"index": 1, "delta": {"content": "Hello."}}
    both = b"data: " + msgspec.json.encode({"id": "c", "choices": [said, other]}) + b"\n\n"
    raw = [both, chunk({"reasoning_content": f"{CARD[9:]} ."}), DONE]
    decoder, lift = DIALECTS["openai_chat"].stream_decoder(2), output_scan().lifted()
    seen = [made for each in raw for made in lift.events(decoder.feed(each))]
    thought = "".join(d.text for each in seen for d in each.deltas if d.kind == "thinking")
    assert thought == "[REDACTED:CREDIT_CARD] ."


def test_two_pieces_of_a_call_in_the_event_that_ends_it_are_one_text() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": f'{{"a": "{CARD[:9]}'}}
    more = {"index": 0, "function": {"arguments": f'{CARD[9:]}"}}'}}
    raw = [chunk({"tool_calls": [call, more]}, finish_reason="tool_calls"), DONE]
    decoder, lift = DIALECTS["openai_chat"].stream_decoder(), output_scan().lifted()
    seen = [made for each in raw for made in lift.events(decoder.feed(each))]
    said = "".join(d.text for each in seen for d in each.deltas if d.kind == "tool_arguments")
    assert msgspec.json.decode(said) == {"a": "[REDACTED:CREDIT_CARD]"}
    assert CARD[:9].encode() not in b"".join(each.raw for each in seen)


@pytest.mark.parametrize("last", [{}, {"content": " who"}])
def test_the_words_at_which_an_answer_stopped_come_back_with_their_value(last: Any) -> None:
    """Hurried servers say its last words with them."""
    veil = veil_of("openai_chat")
    stop = veil.names.replacements["Ingrid Halvorsen"]
    raw = [chunk({"content": "It is"}), chunk(last, finish_reason="stop", stop_reason=stop), DONE]
    decoder, lift = DIALECTS["openai_chat"].stream_decoder(), veil.lifted()
    seen = [made for each in raw for made in lift.events(decoder.feed(each))]
    stops = [delta.stop_sequence for each in seen for delta in each.deltas if delta.stop_sequence]
    assert stops == ["Ingrid Halvorsen"]
    assert stop.encode() not in b"".join(each.raw for each in seen)
