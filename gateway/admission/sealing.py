"""Sealed reasoning in a conversation: which vendor signed or encrypted it, and alone can read it.

For any other vendor it is dropped when the request is written, and reported. So a conversation that
carries some stays with its vendor as long as policy permits.
"""

from collections.abc import Iterator

from gateway.conversation import BLOCK_MARK, CALL_MARK, ITEM_MARK
from gateway.types import ChatRequest


ANTHROPIC, OPENAI = "anthropic_messages", "openai_responses"
_MARKED = ((ITEM_MARK, OPENAI), (BLOCK_MARK, ANTHROPIC), (CALL_MARK, ""))


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
                yield _sealed_by(str(block.get("data")), ANTHROPIC)


def _of_items(request: ChatRequest) -> Iterator[str]:
    for item in _newest_first(request.tree.get("input")):
        if item.get("type") == "reasoning" and (sealed := item.get("encrypted_content")):
            yield _sealed_by(str(sealed), OPENAI)


def _sealed_by(data: str, own: str) -> str:
    """Whose it is; of Google's seals nobody's, for which of many servers made it is not said."""
    return next((dialect for mark, dialect in _MARKED if data.startswith(mark)), own)


def _newest_first(listed: object) -> Iterator[dict[str, object]]:
    if isinstance(listed, list):
        yield from (each for each in reversed(listed) if isinstance(each, dict))
