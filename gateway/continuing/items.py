"""Items of responses as their callers send them, get them, and send them again. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.errors import FeatureUnsupported


ITEMS_NAMED_MAX = 256
"""Of one answer; what a broken upstream lists beyond that is kept and cannot be named."""

Fields = dict[str, msgspec.Raw]
FIELDS = msgspec.json.Decoder(Fields)
LIST = msgspec.json.Decoder(list[msgspec.Raw])
TEXT = msgspec.json.Decoder(str)
_ITEMS = msgspec.json.Decoder(list[Fields])
_OF_OUTPUT_ONLY = ("id", "status", "logprobs")
_REFERENCE = msgspec.Raw(b'"item_reference"')
_NAME = re.compile(r"[\w.:-]{1,128}", re.ASCII)
"""What can be an item's id; the index holds nothing else that an upstream may have written."""


def with_before(raw: bytes, items: Sequence[msgspec.Raw]) -> bytes:
    """A body whose input begins with these items."""
    fields = FIELDS.decode(raw)
    fields["input"] = msgspec.Raw(msgspec.json.encode([*items, *input_items(fields)]))
    return msgspec.json.encode(fields)


def input_items(fields: Fields) -> list[msgspec.Raw]:
    """The input as items; a plain text is the user's. A count may have none."""
    given = bytes(fields.get("input", b"null"))
    if given == b"null":
        return []
    if given.startswith(b"["):
        return LIST.decode(given)
    item = {"type": "message", "role": "user", "content": TEXT.decode(given)}
    return [msgspec.Raw(msgspec.json.encode(item))]


def output_items(response: bytes) -> list[msgspec.Raw]:
    """What an answer says, as its caller got it."""
    return LIST.decode(bytes(FIELDS.decode(response).get("output", b"[]")))


def as_input(output: bytes) -> list[msgspec.Raw]:
    """What was answered, as the next request says it."""
    return [item for fields in _ITEMS.decode(output) for item in said_again(fields)]


def said_again(item: Fields) -> list[msgspec.Raw]:
    """An item of an answer as input, without names that nobody holds.

    Reasoning is left out unless it is sealed: an upstream that holds nothing needs it whole.
    """
    is_reasoning = bytes(item.get("type", b"")) == b'"reasoning"'
    if is_reasoning and bytes(item.get("encrypted_content", b"null")) == b"null":
        return []
    for name in _OF_OUTPUT_ONLY:
        if not (is_reasoning and name == "id"):
            item.pop(name, None)
    return [msgspec.Raw(msgspec.json.encode(item))]


def as_stream(raw: bytes) -> bytes:
    """A body that asks for its answer as a stream."""
    return msgspec.json.encode({**FIELDS.decode(raw), "stream": True})


def is_unfinished(response: bytes) -> bool:
    """Whether an answer that was made in the background has no end that can be continued."""
    fields = FIELDS.decode(response)
    is_apart = bytes(fields.get("background", b"")) == b"true"
    return is_apart and TEXT.decode(fields["status"]) not in {"completed", "incomplete"}


def name_of(item: Fields) -> str:
    """The id that an item came with; empty where it has none that can be one."""
    name = msgspec.json.decode(item.get("id", b"null"))
    return name if isinstance(name, str) and _NAME.fullmatch(name) else ""


def named_items(response: bytes) -> list[tuple[str, Fields]]:
    """The items of an answer that have an id, by it."""
    output = bytes(FIELDS.decode(response).get("output", b"[]"))
    return [
        (name, item) for item in _ITEMS.decode(output)[:ITEMS_NAMED_MAX] if (name := name_of(item))
    ]


def with_items(raw: bytes, found: Mapping[str, Fields | None]) -> bytes:
    """A body with items in the place of their names."""
    fields = FIELDS.decode(raw)
    items: list[msgspec.Raw] = []
    for index, given in enumerate(LIST.decode(fields["input"])):
        item = FIELDS.decode(given)
        if item.get("type") != _REFERENCE:
            items.append(given)
            continue
        meant = found.get(TEXT.decode(item["id"]))
        if meant is None:
            reason = "No such item is kept for this project; send the item itself"
            raise refused(f"input[{index}]", reason)
        items += said_again({**meant})
    fields["input"] = msgspec.Raw(msgspec.json.encode(items))
    return msgspec.json.encode(fields)


def refused(place: str, reason: str) -> FeatureUnsupported:
    return FeatureUnsupported(f"{place}: {reason} (rule 56).", parameter=place)


def in_parts(item: dict[str, Any]) -> dict[str, Any]:
    """A message whose text was sent bare, with its text in a part: clients read it there."""
    text = item.get("content")
    if item.get("type", "message") != "message" or not isinstance(text, str):
        return item
    part: dict[str, Any] = {"type": "input_text", "text": text}
    if item.get("role") == "assistant":
        part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "status": "completed", **item, "content": [part]}
