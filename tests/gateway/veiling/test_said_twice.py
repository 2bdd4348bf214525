"""What a whole answer says in two places is one finding, and masked in both."""

from typing import Any

import msgspec
import pytest

from tests.gateway.veiling.test_output_scan import VALUES, output_scan


CARD, IBAN = VALUES["CREDIT_CARD"], VALUES["IBAN"]
MASK = b"[REDACTED:CREDIT_CARD]"


def response(*texts: str, **more: Any) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    message = {"type": "message", "role": "assistant", "content": parts}
    return {"id": "resp_1", "object": "response", "output": [thought, message], **more}


def chat(*messages: dict[str, Any]) -> dict[str, Any]:
    choices = [{"index": at, "message": each} for at, each in enumerate(messages)]
    return {"id": "c", "object": "chat.completion", "choices": choices}


SAID = f"My card is {CARD}."
TWICE = [
    response(SAID, output_text=SAID),
    {"output_text": SAID, **response(SAID)},
    response("Well. ", SAID, output_text=f"Well. {SAID}"),
    chat({"content": "Hm.", "reasoning": SAID, "reasoning_content": SAID}),
]


@pytest.mark.parametrize("tree", TWICE)
def test_a_text_that_is_said_twice_is_counted_once_and_masked_in_both(tree: dict[str, Any]) -> None:
    raw = msgspec.json.encode(tree)
    assert raw.count(CARD.encode()) == 2
    for masked in (output_scan(), output_scan(None)):
        made = masked.unveiled(raw)
        assert masked.found == {"CREDIT_CARD": 1}
        shown = (made.count(MASK), made.count(CARD.encode()))
        assert shown in ((2, 0), (0, 2))
    assert output_scan().unveiled(raw).count(MASK) == 2


@pytest.mark.parametrize(
    ("tree", "found"),
    [
        (response(SAID, output_text=f"{SAID} {IBAN}"), {"CREDIT_CARD": 2, "IBAN": 1}),
        (response("Well.", output_text=SAID), {"CREDIT_CARD": 1}),
        ({"output_text": SAID}, {"CREDIT_CARD": 1}),
        ({"output_text": SAID, "output": SAID}, {"CREDIT_CARD": 2}),
        (chat({"content": SAID}, {"content": SAID}), {"CREDIT_CARD": 2}),
        (chat({"reasoning": SAID, "reasoning_content": IBAN}), {"CREDIT_CARD": 1, "IBAN": 1}),
    ],
)
def test_another_text_is_counted_for_itself(tree: dict[str, Any], found: dict[str, int]) -> None:
    counted = output_scan(None)
    counted.unveiled(msgspec.json.encode(tree))
    assert counted.found == found
