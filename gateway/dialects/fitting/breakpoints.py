"""Prompt-cache breakpoints in OpenAI's format, if the target takes them; otherwise reported."""

from collections.abc import Iterable

from msgspec import structs

from gateway.conversation import Conversation, Part, TextPart, ToolResultPart, Turn
from gateway.dialects.loss import Losses
from gateway.types import Target


FIELD = "prompt_cache_breakpoint"
EXPLICIT = {"mode": "explicit"}
"""Lives as long as the vendor's default: half an hour, at the price of a short write."""


def settled(talk: Conversation, target: Target, losses: Losses) -> Conversation:
    """The conversation with the breakpoints that this target takes; others are reported."""
    if any(tool.cached for tool in talk.tools):
        losses.add("cache_control")
    lives = {life for turn in talk.turns for life in _lives(turn.parts)} | {*_lives(talk.system)}
    if not lives:
        return talk
    if "cache_breakpoints" in target.capabilities:
        if "1h" in lives:
            losses.add("cache_control.ttl")
        return talk
    losses.add("cache_control")
    turns = tuple(
        Turn(turn.role, tuple(_plain(part) for part in turn.parts)) for turn in talk.turns
    )
    system = tuple(TextPart(part.text) for part in talk.system)
    return structs.replace(talk, system=system, turns=turns)


def marked(piece: dict[str, object], part: TextPart) -> dict[str, object]:
    """A text part of OpenAI's with its breakpoint, if it has one."""
    if part.cached:
        piece[FIELD] = EXPLICIT
    return piece


def _lives(parts: Iterable[Part]) -> list[str]:
    lives = []
    for part in parts:
        if isinstance(part, TextPart) and part.cached:
            lives.append(part.cached)
        elif isinstance(part, ToolResultPart):
            lives += _lives(part.parts)
    return lives


def _plain(part: Part) -> Part:
    if isinstance(part, TextPart):
        return TextPart(part.text)
    if isinstance(part, ToolResultPart):
        parts = tuple(
            TextPart(each.text) if isinstance(each, TextPart) else each for each in part.parts
        )
        return structs.replace(part, parts=parts)
    return part
