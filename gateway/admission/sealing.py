"""Whose sealed reasoning a conversation carries: signed or encrypted, its vendor alone can read it.

To anybody else it is dropped when the request is written, and reported. So a conversation that
carries some stays with its vendor as long as policy permits.
"""

from collections.abc import Iterator

from gateway.conversation import BLOCK_MARK, ITEM_MARK
from gateway.types import ChatRequest


ANTHROPIC, OPENAI = "anthropic_messages", "openai_responses"


def sealed_in(request: ChatRequest) -> str:
    """In which dialect the newest sealed reasoning of a request was sealed; empty for none."""
    if request.dialect == ANTHROPIC:
        return next(_of_blocks(request), "")
    return next(_of_items(request), "") if request.dialect == OPENAI else ""


def _of_blocks(request: ChatRequest) -> Iterator[str]:
    for message in _newest_first(request.tree.get("messages")):
        for block in _newest_first(message.get("content")):
            if block.get("type") == "thinking" and block.get("signature"):
                yield ANTHROPIC
            elif block.get("type") == "redacted_thinking":
                yield OPENAI if str(block.get("data")).startswith(ITEM_MARK) else ANTHROPIC


def _of_items(request: ChatRequest) -> Iterator[str]:
    for item in _newest_first(request.tree.get("input")):
        if item.get("type") == "reasoning" and (sealed := item.get("encrypted_content")):
            yield ANTHROPIC if str(sealed).startswith(BLOCK_MARK) else OPENAI


def _newest_first(listed: object) -> Iterator[dict[str, object]]:
    if isinstance(listed, list):
        yield from (each for each in reversed(listed) if isinstance(each, dict))
