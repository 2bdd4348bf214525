"""Blocks that are said once more, or come after something else, show what they showed."""

import msgspec
import pytest

from tests.gateway.veiling.answers_in_blocks import (
    in_messages,
    lifted,
    repeated,
    response,
    texts_of,
    through,
    told,
    trees,
)
from tests.gateway.veiling.test_blocks import CALLED, CARD, MASK, THOUGHT
from tests.gateway.veiling.test_output_scan import output_scan


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
