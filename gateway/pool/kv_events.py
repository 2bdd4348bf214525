"""Decodes what engines publish about their prefix caches, in the format of vLLM's KV events.

A batch is msgpack: time, events and rank. Each event is either a map with its `type` (newer vLLM)
or a list that begins with it (older vLLM, SGLang). Only the engine's main memory and its first
cache group count. A batch holds token ids, hence prompts: only hashes of it are kept, and nothing
is logged.
"""

from array import array
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct


Hash: TypeAlias = int | bytes
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
_FIELDS: Final = {
    "BlockStored": (
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
        "extra_keys",
        "group_idx",
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}


class Stored(Struct, frozen=True):
    """Consecutive blocks, after a parent or at a prompt's beginning."""

    hashes: tuple[Hash, ...]
    parent: Hash | None
    token_ids: tuple[int, ...]
    block_tokens: int
    salt: str
    """The salt of a prompt's first block; empty if the engine does not report it."""


class Removed(Struct, frozen=True):
    hashes: tuple[Hash, ...]


class Cleared(Struct, frozen=True):
    """Everything that was cached before this is gone."""


Event: TypeAlias = Stored | Removed | Cleared


class KvEventsMalformed(Exception):
    """A batch cannot be understood: from now on the cache's contents are unknown."""


_UNREADABLE: Final = (
    *(msgspec.DecodeError, RecursionError),
    *(LookupError, TypeError, ValueError, OverflowError),
)


def decode_batch(payload: bytes) -> list[Event]:
    """The relevant events of a batch; raises KvEventsMalformed."""
    if len(payload) > BATCH_BYTES_MAX:
        raise KvEventsMalformed("the batch is too large")
    try:
        batch = msgspec.msgpack.decode(payload)
        events = batch["events"] if isinstance(batch, dict) else batch[1]
        found = [_event(_named(event)) for event in events]
    except _UNREADABLE as error:
        raise KvEventsMalformed("the batch has another form") from error
    return [event for event in found if event is not None]


def _named(event: Any) -> dict[str, Any]:
    if isinstance(event, dict):
        return event
    return {"type": event[0], **dict(zip(_FIELDS[event[0]], event[1:], strict=False))}


def _event(event: dict[str, Any]) -> Event | None:
    kind = event["type"]
    if kind == "AllBlocksCleared":
        return Cleared()
    if kind not in _FIELDS:
        raise ValueError(kind)
    if (event.get("medium") or "GPU") != "GPU" or event.get("group_idx"):
        return None
    hashes = tuple(_hash(each) for each in event["block_hashes"])
    if kind == "BlockRemoved":
        return Removed(hashes)
    parent = event.get("parent_block_hash")
    # The array refuses numbers that cannot be tokens, which hashing could not handle.
    token_ids = tuple(array("q", [int(token) for token in event["token_ids"]]))
    size = int(event["block_size"])
    if size <= 0 or len(token_ids) < size * len(hashes):
        raise ValueError("blocks are not full")
    return Stored(
        hashes,
        None if parent is None else _hash(parent),
        token_ids,
        size,
        _salt(event.get("extra_keys")),
    )


def _hash(value: object) -> Hash:
    if isinstance(value, int | bytes):
        return value
    raise TypeError("a block's hash is a number or bytes")


def _salt(extra_keys: Sequence[Any] | None) -> str:
    """The extra keys of the first block, among them a request's cache salt."""
    first = extra_keys[0] if extra_keys else None
    return "".join(part for part in first or () if isinstance(part, str))
