"""Gives each tool call, with its results, its own id if a history repeats ids.

Some servers start counting anew in every answer (`call_0`), and some give all calls the same id.
Anthropic's Messages API refuses a history in which two calls have one id.
"""

from collections import deque

from msgspec import structs

from gateway.conversation import Part, ToolCallPart, ToolResultPart, Turn
from gateway.dialects.fitting.naming import tool_id


def told_apart(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """The same turns with no id twice; the identical object if there was none.

    Results answer the calls of an id in their order. A new id follows from the old one and from how
    often it came before, so that it stays the same when the conversation goes on.
    """
    given = [
        part.tool_id for turn in turns for part in turn.parts if isinstance(part, ToolCallPart)
    ]
    if len(set(given)) == len(given):
        return turns
    ids = _Ids()
    return tuple(structs.replace(turn, parts=tuple(map(ids.own, turn.parts))) for turn in turns)


class _Ids:
    """Gives calls their ids, and results those of the calls that they answer."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._open: dict[str, deque[str]] = {}
        """By the id in the history: its calls that have no result yet."""

    def own(self, part: Part) -> Part:
        if isinstance(part, ToolCallPart):
            count = self._counts[part.tool_id] = self._counts.get(part.tool_id, 0) + 1
            own = part.tool_id if count == 1 else tool_id(part.tool_id, count)
            self._open.setdefault(part.tool_id, deque()).append(own)
            return structs.replace(part, tool_id=own)
        waiting = self._open.get(part.tool_id) if isinstance(part, ToolResultPart) else None
        if waiting and isinstance(part, ToolResultPart):
            return structs.replace(part, tool_id=waiting.popleft())
        return part
