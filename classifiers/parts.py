"""Splits a decoded request into parts that are read one by one: messages, tools, and the rest.

A conversation repeats all but its newest part with every turn. Equal parts hold the same, so a
caller who remembers what a part holds need not walk it again.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Literal

from msgspec import Struct


_MESSAGE_KEYS: Final = frozenset({"messages", "input"})
_ASKING: Final = ("input", "prompt")
"""Members of a request that may be a question by themselves."""
_TOOLS: Final = "tools"
_USER: Final = "user"
_TOOL_BLOCKS: Final = frozenset(
    {"tool_result", "tool_use", "function_call_output", "function_call"}
)


class Part(Struct, frozen=True):
    """A message, members of the request in their order, or a document that is not an object.

    Members are `prompted` if the request has no messages: then a bare `prompt` is a question.
    """

    kind: Literal["message", "members", "prompted", "document"]
    value: Any

    def __repr__(self) -> str:
        return f"Part(kind={self.kind!r})"

    def asks(self) -> bool:
        """Whether it holds a user's question."""
        if self.kind == "message":
            return is_asking(self.value)
        if self.kind == "document":
            return False
        members, prompted = self.value, self.kind == "prompted"
        if members.keys().isdisjoint(_ASKING):
            return False
        return any(
            asked(key, members[key], prompted=prompted) is not None
            for key in _ASKING
            if key in members
        )


_MESSAGE: Final = partial(Part, "message")


def parts_of(document: object) -> list[Part]:
    """All parts of a document, in its order; total."""
    if not isinstance(document, dict):
        return [Part("document", document)]
    kind: Literal["members", "prompted"] = "members" if "messages" in document else "prompted"
    parts: list[Part] = []
    members: dict[str, object] = {}
    for key, value in document.items():
        if key != _TOOLS and not (key in _MESSAGE_KEYS and _is_talk(value)):
            members[key] = value
            continue
        if members:
            parts.append(Part(kind, members))
            members = {}
        if key == _TOOLS:
            parts.append(Part(kind, {key: value}))
        else:
            parts += map(_MESSAGE, value)
    if members:
        parts.append(Part(kind, members))
    return parts


def _is_talk(value: object) -> bool:
    """Whether a list consists of messages: a list of bare texts is one value, perhaps split."""
    return isinstance(value, list) and not (value and isinstance(value[0], str))


def newest_asking(parts: Sequence[Part]) -> int:
    """The index of the part with the newest question; -1 if there is none."""
    at = len(parts) - 1
    while at >= 0 and not parts[at].asks():
        at -= 1
    return at


def is_asking(message: object) -> bool:
    """Whether a message is a user's, and more than results of tools."""
    if not isinstance(message, dict):
        return True
    content = message.get("content")
    return message.get("role") == _USER and (
        content.__class__ is str or not _only_tool_blocks(content)
    )


def asked(key: object, value: object, *, prompted: bool) -> str | list[object] | None:
    """The question of a request that is one bare text, or several; None for anything else."""
    if key == "prompt" and prompted and isinstance(value, list):
        return value if all(isinstance(each, str) for each in value) else None
    is_bare = key == "input" or (key == "prompt" and prompted)
    return value if is_bare and isinstance(value, str) else None


def _only_tool_blocks(content: object) -> bool:
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(part, dict) and _is_tool_block(part.get("type")) for part in content)
    )


def _is_tool_block(kind: object) -> bool:
    return isinstance(kind, str) and kind in _TOOL_BLOCKS
