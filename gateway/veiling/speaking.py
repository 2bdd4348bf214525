"""Classifies what a stream event says and in which channel: text, calls, ends, or nothing."""

from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.types import Delta, StreamEvent
from gateway.veiling.blocks import PROSE


CONTENT: Final = frozenset({"text", "thinking", "refusal", "tool_arguments", "opaque"})
_CALLED: Final = frozenset({"tool_start", "text_tool_start"})
_SAYING: Final = CONTENT | _CALLED
_FRAME: Final = frozenset({"start", "usage"})
_INPUT, _ITEM, _CALLS = b'"input"', b'"item"', b'"tool_calls"'
_DATA: Final = b"data:"


class _Call(msgspec.Struct):
    index: int = 0


class _Piece(msgspec.Struct):
    tool_calls: list[_Call] = []


class _Choice(msgspec.Struct):
    delta: _Piece
    index: int = 0


class _Chunk(msgspec.Struct):
    """The part of a chat completions chunk that tells the numbers of calls."""

    choices: list[_Choice]


def channel_of(delta: Delta) -> tuple[str, int]:
    return delta.kind, delta.index


def is_edge(event: StreamEvent) -> bool:
    """Whether it only ends or begins a block: a text may continue after it."""
    ends = event.is_closing or event.is_terminal
    return event.settles is None and not ends and all(d.kind == "part" for d in event.deltas)


def brings_input(event: StreamEvent) -> bool:
    """Whether a call comes with all its arguments as a tree, so no text of the event is theirs."""
    kinds = {delta.kind for delta in event.deltas}
    return {"tool_start", "tool_arguments"} <= kinds and _INPUT in event.raw


def brings_all(event: StreamEvent) -> bool:
    """Whether a call comes with all its arguments, so that nothing more is awaited."""
    says = any(delta.kind == "tool_arguments" for delta in event.deltas)
    return says and (_ITEM in event.raw or brings_input(event))


def goes_over(delta: Delta, behind: Sequence[Delta]) -> bool:
    """Whether a text ends here: some servers send its last words with the first of what follows.

    An event belongs to one answer: chunks with several are split.
    """
    return delta.kind in PROSE and any(
        each.kind != delta.kind and (each.kind in _CALLED or (each.kind in CONTENT and each.text))
        for each in behind
    )


def goes_on(delta: Delta, behind: Sequence[Delta]) -> bool:
    """Whether the same event continues the same text."""
    return any(channel_of(each) == channel_of(delta) and each.text for each in behind)


def goes_between(event: StreamEvent, earlier: StreamEvent) -> bool:
    """Whether a call whose last piece came earlier may continue after another event.

    It may if the event only has words and begins no call under this one's number: some upstreams
    give all their calls the same number.
    """
    kinds = _said_in(event)
    if not kinds or not kinds <= _SAYING:
        return False
    return kinds.isdisjoint(_CALLED) or _numbers(event).isdisjoint(_numbers(earlier))


def goes_aside(event: StreamEvent) -> bool:
    """Whether an event only has words of another kind, and so ends nothing.

    In chunks, words and thoughts are two texts that may grow in turns. In blocks, the next one
    begins after the end of the previous one.
    """
    kinds = _said_in(event)
    return bool(event.settles and kinds) and kinds <= PROSE


def _said_in(event: StreamEvent) -> frozenset[str]:
    """Kinds of an event's deltas that end nothing; some servers count with every piece."""
    if event.is_closing or event.is_terminal:
        return frozenset()
    return frozenset([delta.kind for delta in event.deltas]) - _FRAME


def _numbers(event: StreamEvent) -> frozenset[tuple[int, int]]:
    """The numbers of calls that a chunk mentions, by answer; empty for other dialects."""
    line = event.raw.partition(_DATA)[2]
    if _CALLS not in line:
        return frozenset()
    try:
        chunk = msgspec.json.decode(line, type=_Chunk)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return frozenset()
    return frozenset(
        (choice.index, call.index) for choice in chunk.choices for call in choice.delta.tool_calls
    )


def goes_on_with(event: StreamEvent, earlier: StreamEvent) -> bool:
    """Whether an event continues or ends an answer that the earlier one was about."""
    if event.settles is None:
        return True
    if earlier.settles is None:
        return bool(event.settles)
    return not set(event.settles).isdisjoint(earlier.settles)


def is_ping(event: StreamEvent) -> bool:
    """Whether it says nothing and may come in the middle of a word."""
    return not event.deltas and (b"ping" in event.raw[:32] or event.raw[:1] == b":")
