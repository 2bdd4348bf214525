"""Reasoning that another dialect's client carries: what it says leaves and comes back like all."""

import base64
import json
import secrets
from typing import Any

from gateway.conversation import BLOCK_MARK, CALL_MARK, ITEM_MARK
from gateway.dialects.openai_chat.seals import seal_of
from gateway.dialects.openai_responses.marks import thinking_of, unwrapped_item
from gateway.dialects.openai_responses.wire import Item
from gateway.dialects.registry import DIALECTS
from gateway.types import Delta, StreamEvent
from gateway.veiling.veil import Veil, veiled
from tests.conformance.told_answers import event
from tests.gateway.veiling.test_output_scan import VALUES, output_scan


NAME = "Ingrid Halvorsen"
SEAL = base64.b64encode(secrets.token_bytes(300)).decode()


def item_saying(words: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": words}]
    return {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": SEAL}


def wrap(mark: str, inside: object) -> str:
    return mark + base64.urlsafe_b64encode(json.dumps(inside).encode()).decode()


def asked(*blocks: dict[str, Any]) -> bytes:
    turns = [
        {"role": "user", "content": f"Write to {NAME}."},
        {"role": "assistant", "content": [*blocks, {"type": "text", "text": "Done."}]},
        {"role": "user", "content": "Again."},
    ]
    return json.dumps({"model": "m", "max_tokens": 9, "messages": turns}).encode()


def veil_of(body: bytes) -> Veil:
    adapter = DIALECTS["anthropic_messages"]
    request = adapter.decode_request(body, "req_1")
    return veiled(request, [], adapter, [("PERSON", NAME)], b"k" * 32, one_way=False)


def test_a_thought_in_a_wrap_leaves_with_surrogates_and_its_seal_as_it_was() -> None:
    wrapped = wrap(ITEM_MARK, item_saying(f"{NAME} is who I write to."))
    veil = veil_of(asked({"type": "redacted_thinking", "data": wrapped}))
    sent = json.loads(veil.request.raw)["messages"][1]["content"][0]["data"]
    assert unwrapped_item(sent) == item_saying(
        f"{veil.names.replacements[NAME]} is who I write to."
    )


def test_a_thought_of_the_other_vendors_does_too() -> None:
    adapter = DIALECTS["openai_responses"]
    sealed = wrap(BLOCK_MARK, [f"To {NAME}.", SEAL, ""])
    thought = {"type": "reasoning", "summary": [], "encrypted_content": sealed}
    body = {"model": "m", "input": [{"role": "user", "content": f"Write to {NAME}."}, thought]}
    request = adapter.decode_request(json.dumps(body).encode(), "req_1")
    veil = veiled(request, [], adapter, [("PERSON", NAME)], b"k" * 32, one_way=False)
    item = json.loads(veil.request.raw)["input"][1]
    part = thinking_of(Item("reasoning", encrypted_content=item["encrypted_content"]))
    assert (part.text, part.signature) == (f"To {veil.names.replacements[NAME]}.", SEAL)


def test_a_wrap_that_says_nothing_of_it_is_the_same_text() -> None:
    wrapped = wrap(ITEM_MARK, item_saying("Whom?"))
    veil = veil_of(asked({"type": "redacted_thinking", "data": wrapped}))
    assert json.loads(veil.request.raw)["messages"][1]["content"][0]["data"] == wrapped


def test_a_streamed_thought_comes_back_with_the_value_as_a_whole_one_does() -> None:
    """Or the next turn says the surrogate where nothing has said it, and draws another one."""
    veil = veil_of(asked())
    item = item_saying(f"To {veil.names.replacements[NAME]}.")
    response: dict[str, Any] = {"id": "resp_1", "object": "response", "created_at": 5, "model": "m"}
    response |= {"status": "in_progress", "output": []}
    raw = [
        event("response.created", response=response, sequence_number=0),
        event("response.output_item.done", output_index=0, item=item, sequence_number=1),
    ]
    decoder, lift = DIALECTS["openai_responses"].stream_decoder(), veil.lifted()
    seen = [made for each in raw for made in lift.events(decoder.feed(each))]
    (wrapped,) = [delta.redacted for each in seen for delta in each.deltas if delta.redacted]
    assert unwrapped_item(wrapped) == item_saying(f"To {NAME}.")


def shown_of(redacted: str) -> str:
    """What a caller of another dialect is told of a sealed thought where answers are masked."""
    event_ = StreamEvent(b"", (Delta("thinking", redacted=redacted),))
    (delta,) = [d for each in output_scan().lifted().events([event_]) for d in each.deltas]
    return delta.redacted


def test_what_masks_answers_opens_a_wrap_and_leaves_a_seal_as_it_is() -> None:
    """A seal that lost a letter is refused by its vendor in the next turn."""
    sealed = [base64.b64encode(secrets.token_bytes(length)).decode() for length in (120, 300, 900)]
    for seal in sealed:
        of_call = seal_of({"google": {"thought_signature": seal}}, "function-call-7")
        assert of_call is not None
        item = wrap(ITEM_MARK, item_saying("Whom?") | {"encrypted_content": seal})
        for redacted in (seal, of_call.redacted, item):
            assert shown_of(redacted) == redacted


def test_what_masks_answers_masks_within_a_wrap_and_what_only_begins_like_one() -> None:
    card = VALUES["CREDIT_CARD"]
    item = unwrapped_item(shown_of(wrap(ITEM_MARK, item_saying(f"It is {card}."))))
    assert item == item_saying("It is [REDACTED:CREDIT_CARD].")
    for mark in (ITEM_MARK, CALL_MARK):
        assert card not in shown_of(f"{mark} {card} ")
