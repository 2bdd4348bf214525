"""Carries reasoning through clients of other dialects: wrapped, and unwrapped unchanged.

A reasoning item means something only to the vendor that encrypted it. Clients of other dialects
carry it as an opaque block, and its vendor gets back exactly what it sent.
"""

from base64 import b64decode, urlsafe_b64encode
from binascii import Error

import msgspec

from gateway.conversation import BLOCK_MARK, CALL_MARK, ITEM_MARK, PART_SEAM, ThinkingPart
from gateway.dialects.openai_responses.wire import Item
from gateway.types import Delta


_ITEM = msgspec.json.Decoder(Item)
_BLOCK = msgspec.json.Decoder(tuple[str, str, str])


def wrapped_item(item: Item) -> str:
    """A reasoning item as the data of a redacted thinking block; empty if it cannot be resent."""
    if not item.encrypted_content:
        return ""
    kept = Item("reasoning", id=item.id, summary=item.summary)
    kept.encrypted_content = item.encrypted_content
    return ITEM_MARK + urlsafe_b64encode(msgspec.json.encode(kept)).decode()


def unwrapped_item(redacted: str) -> dict[str, object] | None:
    """The reasoning item in a redacted block; None if it is another vendor's, or broken."""
    if not redacted.startswith(ITEM_MARK):
        return None
    try:
        item = _ITEM.decode(_opened(redacted.removeprefix(ITEM_MARK)))
    except (msgspec.DecodeError, Error, UnicodeError, ValueError, RecursionError):
        return None
    tree: dict[str, object] = {"type": "reasoning", "summary": summaries(item)}
    if item.id:
        tree["id"] = item.id
    tree["encrypted_content"] = item.encrypted_content
    return tree


def summaries(item: Item) -> list[dict[str, str]]:
    return [{"type": "summary_text", "text": each.text} for each in item.summary or ()]


def wrapped_block(thinking: Delta) -> str | None:
    """Another vendor's signed thinking as `encrypted_content`; None if nothing is signed."""
    if not thinking.signature and not thinking.redacted:
        return None
    if thinking.redacted.startswith(CALL_MARK):
        return thinking.redacted
    block = msgspec.json.encode((thinking.text, thinking.signature, thinking.redacted))
    return BLOCK_MARK + urlsafe_b64encode(block).decode()


def thinking_of(item: Item) -> ThinkingPart:
    """A reasoning item of the history: another vendor's block if it contains one."""
    sealed = item.encrypted_content or ""
    if sealed.startswith(CALL_MARK):
        return ThinkingPart("", redacted=sealed)
    if sealed.startswith(BLOCK_MARK):
        try:
            return ThinkingPart(*_BLOCK.decode(_opened(sealed.removeprefix(BLOCK_MARK))))
        except (msgspec.DecodeError, Error, UnicodeError, ValueError, RecursionError):
            return ThinkingPart("")
    text = PART_SEAM.join(each.text for each in item.summary or ())
    return ThinkingPart(text, redacted=wrapped_item(item))


def _opened(wrapped: str) -> bytes:
    """Only what inspection opens, too: lenient readers accept several base64 forms of a text."""
    return b64decode(wrapped, b"-_", validate=True)
