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
    """What a chunk of chat completions says of calls: their numbers."""

    choices: list[_Choice]


def channel_of(delta: Delta) -> tuple[str, int]:
    return delta.kind, delta.index


def is_edge(event: StreamEvent) -> bool:
    """Something that ends or begins a block, and says nothing itself: a text may go on behind."""
    ends = event.is_closing or event.is_terminal
    return event.settles is None and not ends and all(d.kind == "part" for d in event.deltas)


def brings_input(event: StreamEvent) -> bool:
    """Whether a call comes with all its arguments, as a tree: no text of the event is theirs."""
    kinds = {delta.kind for delta in event.deltas}
    return {"tool_start", "tool_arguments"} <= kinds and _INPUT in event.raw


def brings_all(event: StreamEvent) -> bool:
    """Whether a call comes with all its arguments: there is nothing to wait for."""
    says = any(delta.kind == "tool_arguments" for delta in event.deltas)
    return says and (_ITEM in event.raw or brings_input(event))


def goes_over(delta: Delta, behind: Sequence[Delta]) -> bool:
    """Whether a text ends here: hurried servers say its last words with the first of what follows.

    An event is of one answer: chunks of several come one by one.
    """
    return delta.kind in PROSE and any(
        each.kind != delta.kind and (each.kind in _CALLED or (each.kind in CONTENT and each.text))
        for each in behind
    )


def goes_on(delta: Delta, behind: Sequence[Delta]) -> bool:
    """Whether the same event says more of the same text."""
    return any(channel_of(each) == channel_of(delta) and each.text for each in behind)


def goes_between(event: StreamEvent, earlier: StreamEvent) -> bool:
    """Whether a call whose last piece came earlier may go on behind another event.

    So it may where that only says something, and begins no call under the number of this one: some
    upstreams give all their calls one.
    """
    kinds = _said_in(event)
    if not kinds or not kinds <= _SAYING:
        return False
    return kinds.isdisjoint(_CALLED) or _numbers(event).isdisjoint(_numbers(earlier))


def goes_aside(event: StreamEvent) -> bool:
    """Whether an event only says words of another kind, and so ends none.

    So it is in chunks: there words and thoughts are two texts that may grow in turns. Where they
    are blocks, the next begins behind the end of the one before.
    """
    kinds = _said_in(event)
    return bool(event.settles and kinds) and kinds <= PROSE


def _said_in(event: StreamEvent) -> frozenset[str]:
    """Kinds of what an event says that ends nothing; some servers count with every piece."""
    if event.is_closing or event.is_terminal:
        return frozenset()
    return frozenset([delta.kind for delta in event.deltas]) - _FRAME


def _numbers(event: StreamEvent) -> frozenset[tuple[int, int]]:
    """Under which numbers a chunk speaks of calls, by answer; of other dialects none."""
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
    """Whether an event says more of an answer that the earlier one spoke of, or ends it."""
    if event.settles is None:
        return True
    if earlier.settles is None:
        return bool(event.settles)
    return not set(event.settles).isdisjoint(earlier.settles)


def is_ping(event: StreamEvent) -> bool:
    """Something that says nothing and may come in the middle of a word."""
    return not event.deltas and (b"ping" in event.raw[:32] or event.raw[:1] == b":")
