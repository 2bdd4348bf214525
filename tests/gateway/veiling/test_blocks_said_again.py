"""Blocks that are said once more, or come after something else, show what they showed."""

import msgspec
import pytest

from gateway.dialects.registry import DIALECTS
from tests.gateway.veiling.answers_in_blocks import (
    in_messages,
    item,
    lifted,
    repeated,
    response,
    texts_of,
    through,
    told,
    trees,
)
from tests.gateway.veiling.test_blocks import CALLED, CARD, MASK, THOUGHT
from tests.gateway.veiling.test_output_scan import event, output_scan


@pytest.mark.parametrize("shape", ["parts", "items"])
def test_equal_blocks_are_each_said_again_as_they_were_shown(shape: str) -> None:
    half = CARD[10:]
    blocks = [[f"It is {CARD[:10]}"], [half], [" , he said. Then "], [half], [" books."]]
    events = lifted(shape, output_scan().lifted(), blocks)
    said = told(events, 5)
    assert said == [f"It is {MASK[:-1]}", MASK[-1], " , he said. Then ", half, " books."]
    assert repeated(events) == said


@pytest.mark.parametrize("between", [THOUGHT, CALLED])
@pytest.mark.parametrize(
    ("first", "then"),
    [(CARD, "Thanks, that was all."), ("Point 2", f"{CARD.replace(' ', '')} it is.")],
)
def test_what_parts_two_texts_ends_the_one_and_begins_the_other(
    between: list[bytes], first: str, then: str
) -> None:
    raw = in_messages([[first], [then]], between)
    events = through("anthropic_messages", output_scan().lifted(), raw)
    said = "".join(tree.get("delta", {}).get("text", "") for tree in trees(events))
    assert said == (first + then).replace(CARD, MASK).replace(CARD.replace(" ", ""), MASK)


def test_parts_of_a_thought_are_one_text_too() -> None:
    parts = [{"type": "summary_text", "text": text} for text in (CARD[:9], CARD[9:])]
    tree = response([{"type": "reasoning", "id": "rs_1", "summary": parts}])
    made = msgspec.json.decode(output_scan().unveiled(msgspec.json.encode(tree)))
    shown = [part["text"] for part in made["output"][0]["summary"]]
    assert shown == [MASK[:-1], MASK[-1]]
    assert texts_of(made) == []


def test_parts_of_a_summary_stay_apart_where_a_number_is_masked_over_them() -> None:
    texts = (f"It is {CARD[:9]}", f"{CARD[9:]}, he said.", "Done.")
    raw = [event("response.created", response=response([]) | {"status": "in_progress"})]
    for index, text in enumerate(texts):
        place = {"output_index": 0, "item_id": "rs_1", "summary_index": index}
        empty = {"type": "summary_text", "text": ""}
        raw += [
            event("response.reasoning_summary_part.added", **place, part=empty),
            event("response.reasoning_summary_text.delta", **place, delta=text),
            event("response.reasoning_summary_part.done", **place, part={**empty, "text": text}),
        ]
    raw.append(event("response.completed", response=response([])))
    decoder = DIALECTS["openai_responses"].stream_decoder()
    lift = output_scan().lifted()
    events = [each for piece in raw for each in lift.events(decoder.feed(piece))]

    said = [(d.kind, d.text) for each in events for d in each.deltas if d.text or d.kind == "part"]
    together = "".join("\n" if kind == "part" else text for kind, text in said)
    assert together == "It is [REDACTED:CREDIT_CARD]\n, he said.\nDone."
    assert CARD[9:].encode() not in b"".join(each.raw for each in events)


@pytest.mark.parametrize("has_items", [True, False])
@pytest.mark.parametrize("texts", [(f"It is {CARD}",), (f"It is {CARD[:10]}", f"{CARD[10:]} .")])
def test_words_that_only_an_end_has_are_masked_and_no_event_comes_twice(
    texts: tuple[str, ...], *, has_items: bool
) -> None:
    items = [item([text]) for text in texts]
    done = [
        event("response.output_item.done", output_index=place, item=each)
        for place, each in enumerate(items)
    ]
    raw = [*(done if has_items else ()), event("response.completed", response=response(items))]
    events = through("openai_responses", output_scan().lifted(), raw)

    said = "".join(d.text for each in events for d in each.deltas if d.kind == "text")
    assert said == "".join(texts).replace(CARD, MASK)
    sent = b"".join(each.raw for each in events)
    assert sent.count(b"event: ") == len(raw)
    assert [half.encode() in sent for half in (CARD[:10], CARD[10:])] == [False, False]
    assert sent.count(b"REDACTED:CREDIT_CARD") == 1 + has_items
