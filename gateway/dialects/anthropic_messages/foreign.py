"""Blocks and events of unknown types: passed on unchanged, whatever their shape.

The results of a search, a sandbox or something newer have shapes of their own, and do not make an
answer invalid. Only the other dialects cannot express them.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from gateway.dialects.anthropic_messages.wire import ReplyBlock


EVENTS = frozenset(
    {
        *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop", "error"),
    }
)
"""Kinds of events that say something to us."""
_BLOCKS = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})


class Loose(Struct):
    """An event of any shape."""

    type: str
    index: object = 0
    delta: object = None
    content_block: object = None


class _Kind(Struct):
    type: str


LOOSE = msgspec.json.Decoder(Loose)
_KIND = msgspec.json.Decoder(_Kind)
_BLOCK = msgspec.json.Decoder(ReplyBlock)


def kind_of(node: object) -> str | None:
    """What a block or a piece says that it is."""
    kind = node.get("type") if isinstance(node, dict) else None
    return kind if isinstance(kind, str) else None


def is_unread(block: object) -> bool:
    """Whether a block is of a kind that nobody here reads."""
    kind = kind_of(block)
    return kind is not None and kind not in _BLOCKS


def asks_for_search(block: ReplyBlock) -> bool:
    """Whether it asks the vendor's own tool for a search, which is paid for once it is done."""
    return block.type == "server_tool_use" and block.name == "web_search"


def tells_failed_search(block: ReplyBlock) -> bool:
    """Whether it is what a search gave back that failed, and so costs nothing."""
    # Results are a list, an error is an object.
    return block.type == "web_search_tool_result" and bytes(block.content)[:1] == b"{"


def searches_in(blocks: Iterable[ReplyBlock]) -> int:
    """How many searches the blocks of an answer were paid for."""
    return max(sum(asks_for_search(each) - tells_failed_search(each) for each in blocks), 0)


def block_of(raw: msgspec.Raw) -> ReplyBlock:
    """A block of an answer; of a kind that we do not read, as much of it as has our shape.

    Raises:
        msgspec.DecodeError: it is none.
    """
    try:
        return _BLOCK.decode(raw)
    except msgspec.ValidationError:
        kind = _KIND.decode(raw).type
        if kind in _BLOCKS:
            raise
        return ReplyBlock(type=kind)
