"""What inspection reads of wrapped reasoning is all that its vendor is ever told of it."""

import base64
import json
import secrets

import pytest

from classifiers.extraction import extract
from gateway.conversation import BLOCK_MARK, CALL_MARK, ITEM_MARK, ThinkingPart, Turn
from gateway.dialects.openai_chat.seals import seal_of, seals_in
from gateway.dialects.openai_responses.marks import thinking_of, unwrapped_item
from gateway.dialects.openai_responses.wire import Item


WORDS = "Her card is 4111 1111 1111 1111."
SEAL = base64.b64encode(secrets.token_bytes(300)).decode()


def data_of(inside: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(inside).encode()).decode()


def is_read(part: dict[str, str]) -> bool:
    turn = {"role": "assistant", "content": [part]}
    return WORDS in [segment.text for segment in extract({"messages": [turn]}).segments]


@pytest.mark.parametrize("junk", ["\n", " ", "!", "====", ""])
def test_what_inspection_does_not_open_is_not_opened_for_a_target(junk: str) -> None:
    """A lenient reader of base64 passes over what is no letter of it."""
    summary = [{"type": "summary_text", "text": WORDS}]
    data = data_of({"type": "reasoning", "summary": summary, "encrypted_content": SEAL})
    item = ITEM_MARK + data[:41] + junk + data[41:]
    assert is_read({"type": "redacted_thinking", "data": item}) is not bool(junk)
    assert (unwrapped_item(item) is None) is bool(junk)

    data = data_of([WORDS, SEAL, ""])
    block = BLOCK_MARK + data[:41] + junk + data[41:]
    told = thinking_of(Item("reasoning", encrypted_content=block)).text
    assert is_read({"type": "reasoning", "encrypted_content": block}) is not bool(junk)
    assert told == ("" if junk else WORDS)


def test_a_seal_of_a_call_is_read_before_it_is_told_to_anybody() -> None:
    data = data_of({"type": "reasoning", "id": "c", "encrypted_content": WORDS})
    for kind, field in (("redacted_thinking", "data"), ("reasoning", "encrypted_content")):
        for junk in ("", "\n", "="):
            wrap = CALL_MARK + data[:41] + junk + data[41:]
            turn = Turn("assistant", (ThinkingPart("", redacted=wrap),))
            assert is_read({"type": kind, field: wrap}) is not bool(junk)
            assert bool(seals_in([turn])) is not bool(junk)


@pytest.mark.parametrize("extra", [None, 7, {"google": []}, {"google": {"thought_signature": 5}}])
def test_what_is_no_seal_of_a_call_is_none(extra: object) -> None:
    assert seal_of(extra, "c") is None
    shapes: tuple[object, ...] = ([], {"type": "reasoning", "id": "c"})
    broken = (f"{CALL_MARK}{data_of(each)}" for each in shapes)
    parts = tuple(ThinkingPart("", redacted=each) for each in (*broken, CALL_MARK))
    assert seals_in([Turn("assistant", parts)]) == {}
