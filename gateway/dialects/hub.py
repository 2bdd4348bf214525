"""Readers by dialect: how a dialect's adapter gets at a request of another one."""

from collections.abc import Callable, Iterable, Mapping

from msgspec import structs

from gateway.conversation import Conversation, ToolCallPart, ToolResultPart, Turn
from gateway.dialects import schema_check
from gateway.dialects.anthropic_messages import reader as anthropic_messages
from gateway.dialects.loss import is_opaque, unsupported
from gateway.dialects.openai_chat import reader as openai_chat
from gateway.dialects.openai_completions import reader as openai_completions
from gateway.dialects.openai_responses import reader as openai_responses
from gateway.types import ChatRequest, DialectName


_READERS: Mapping[DialectName, Callable[[ChatRequest], Conversation]] = {
    "openai_chat": openai_chat.read_conversation,
    "anthropic_messages": anthropic_messages.read_conversation,
    "openai_responses": openai_responses.read_conversation,
    "openai_completions": openai_completions.read_conversation,
}


def read_conversation(request: ChatRequest) -> Conversation:
    """A request of any dialect as a conversation whose tool calls and results are in pairs.

    Raises:
        FeatureUnsupported: dropping what it asks would change its meaning.
    """
    reader = _READERS.get(request.dialect)
    if reader is None:
        raise unsupported("model", "This model does not do what is asked", 59)
    talk = reader(request)
    if talk.user and request.end_user and not is_opaque(talk.user):
        talk = structs.replace(talk, user=request.end_user)
    if talk.turns:
        _check_pairs(talk.turns)
    return talk


def unmet(request: ChatRequest, text: str) -> str:
    """See `ports.Dialect.unmet`."""
    asked = read_conversation(request).response_format
    return schema_check.unmet(asked, text) if asked is not None else ""


def _check_pairs(turns: Iterable[Turn]) -> None:
    """Upstreams refuse a call without a result and a result without a call, each in its words."""
    waiting: set[str] = set()
    for turn in turns:
        results = [part.tool_id for part in turn.parts if isinstance(part, ToolResultPart)]
        for tool_id in results:
            if tool_id not in waiting:
                raise unsupported("messages", f"There is no open tool call {tool_id[:64]!r}", 14)
            waiting.remove(tool_id)
        if waiting and not results and turn.role != "system":
            break
        waiting.update(part.tool_id for part in turn.parts if isinstance(part, ToolCallPart))
    if waiting:
        raise unsupported("messages", f"Tool call {min(waiting)[:64]!r} has no result", 14)
