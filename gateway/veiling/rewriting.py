"""Rewrites streams on their way back: each channel's text piece by piece, events kept in order.

It knows no dialect: an event's JSON says other texts where its deltas do. What rewrites is given:
the veil puts values back, an output scan blackens them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from gateway.types import Delta, StreamEvent


CONTENT = frozenset({"text", "thinking", "refusal", "tool_arguments", "opaque"})
_DATA = b"data:"
MAX_DEPTH = 64
TEXT_KEYS = frozenset({"content", "text", "arguments", "partial_json", "refusal", "thinking"})
TEXT_KEYS |= {"delta", "reasoning_content", "reasoning", "input"}
"""Keys of the wire formats under which a model's words stand."""


_CALLS = frozenset({"tool_calls", "function"})
_ONCE = frozenset({"id", "type", "name"})
"""What only the first piece of a call in chat completions says."""
_PIECE, _BESIDE = "delta", frozenset({"annotations"})
"""What a piece in chat completions says beside its words, and says once."""
_INPUT = b'"input"'


class Piecewise(Protocol):
    """Rewrites a text that comes in pieces, and may hold some of it back."""

    def feed(self, piece: str) -> str:
        """What can be shown now."""
        ...

    def flush(self) -> str:
        """What was held back; nothing comes after it."""
        ...


class Lift(Protocol):
    """Rewrites the events of one stream."""

    def events(self, events: list[StreamEvent]) -> list[StreamEvent]: ...


class AnswerRewriter(Protocol):
    """Rewrites answers to one request: whole ones, and any number of streams."""

    def unveiled(self, raw: bytes) -> bytes:
        """A whole answer's body, rewritten; anything but JSON stays as it is."""
        ...

    def lifted(self) -> Lift: ...


class _InTurn(msgspec.Struct, frozen=True):
    """One rewriter behind the other."""

    first: AnswerRewriter
    then: AnswerRewriter

    def unveiled(self, raw: bytes) -> bytes:
        return self.then.unveiled(self.first.unveiled(raw))

    def lifted(self) -> Lift:
        return _LiftsInTurn(self.first.lifted(), self.then.lifted())


class _LiftsInTurn(msgspec.Struct, frozen=True):
    first: Lift
    then: Lift

    def events(self, events: list[StreamEvent]) -> list[StreamEvent]:
        return self.then.events(self.first.events(events))


def in_turn(first: AnswerRewriter | None, then: AnswerRewriter | None) -> AnswerRewriter | None:
    """Both, in this order; None where there is neither."""
    if first is None or then is None:
        return then if first is None else first
    return _InTurn(first, then)


class StreamRewriter:
    """One stream: a rewriter for its text, and one for each tool call.

    `opened` makes the rewriter of a channel of this kind. `repeated` rewrites the JSON of an event
    that says nothing new, as the last ones of some dialects do; None leaves those as they are.
    """

    def __init__(
        self,
        opened: Callable[[str], Piecewise],
        repeated: Callable[[object], object] | None,
    ) -> None:
        self._opened = opened
        self._repeated = repeated
        self._channels: dict[tuple[str, int], Piecewise] = {}
        self._last: dict[tuple[str, int], StreamEvent] = {}

    def events(self, events: Iterable[StreamEvent]) -> list[StreamEvent]:
        """The events rewritten; one that ends something comes after all that was held back of it.

        What ends nothing, such as a citation, goes ahead of that: around it a text goes on, and a
        value that came in pieces would be shown.

        Of several answers each is held back by itself: their pieces take turns, and what is cut
        short at each turn is neither recognised nor put back.
        """
        out: list[StreamEvent] = []
        for event in events:
            channels = {channel_of(d) for d in event.deltas if d.kind in CONTENT and d.text}
            if not _is_ping(event):
                out += self._flushed(event, keep=channels)
            out.append(self._lifted(event))
        return out

    def _lifted(self, event: StreamEvent) -> StreamEvent:
        changes: dict[str, str] = {}
        deltas: list[Delta] = []
        brings_input = _brings_input(event)
        for delta in event.deltas:
            if delta.kind not in CONTENT or not delta.text:
                deltas.append(delta)
                continue
            channel = channel_of(delta)
            rewriter = self._channels.get(channel)
            if rewriter is None:
                rewriter = self._channels[channel] = self._opened(delta.kind)
            text = rewriter.feed(delta.text)
            if event.is_closing or event.is_terminal or brings_input:
                text += rewriter.flush()
            self._last[channel] = event
            changes[delta.text] = text
            deltas.append(msgspec.structs.replace(delta, text=text))
        if brings_input and self._repeated is not None:
            again = self._again(event, self._repeated)
            return msgspec.structs.replace(again, deltas=tuple(deltas))
        if not changes and self._repeated is not None:
            return self._again(event, self._repeated)
        if all(before == after for before, after in changes.items()):
            return event
        return msgspec.structs.replace(
            event, raw=_with_texts(event.raw, changes), deltas=tuple(deltas)
        )

    @staticmethod
    def _again(event: StreamEvent, repeated: Callable[[object], object]) -> StreamEvent:
        return msgspec.structs.replace(event, raw=retold(event.raw, repeated))

    def _flushed(self, before: StreamEvent, keep: set[tuple[str, int]]) -> list[StreamEvent]:
        """What other channels held back of the answers that an event settles, like their last."""
        out = []
        for channel in [c for c in self._channels if c not in keep]:
            event = self._last[channel]
            if not _goes_on_with(before, event):
                continue
            text = self._channels.pop(channel).flush()
            del self._last[channel]
            if not text:
                continue
            old = next(d for d in event.deltas if channel_of(d) == channel and d.text)
            delta = msgspec.structs.replace(old, text=text)
            raw = _with_texts(event.raw, {old.text: text}, goes_on=True)
            out.append(msgspec.structs.replace(event, raw=raw, deltas=(delta,)))
        return out


def _brings_input(event: StreamEvent) -> bool:
    """Whether a call comes with all its arguments, as a tree: no text of the event is theirs."""
    kinds = {delta.kind for delta in event.deltas}
    return {"tool_start", "tool_arguments"} <= kinds and _INPUT in event.raw


def _goes_on_with(event: StreamEvent, earlier: StreamEvent) -> bool:
    """Whether an event says more of an answer that the earlier one spoke of, or ends it."""
    if event.settles is None:
        return True
    if earlier.settles is None:
        return bool(event.settles)
    return not set(event.settles).isdisjoint(earlier.settles)


def _is_ping(event: StreamEvent) -> bool:
    """Something that says nothing and may come in the middle of a word."""
    return not event.deltas and (b"ping" in event.raw[:32] or event.raw[:1] == b":")


def channel_of(delta: Delta) -> tuple[str, int]:
    return delta.kind, delta.index


def retold(raw: bytes, change: Callable[[object], object]) -> bytes:
    """A server-sent event whose JSON is changed; byte for byte as it was where it is not."""
    lines = raw.split(b"\n")
    for at, line in enumerate(lines):
        if line.startswith(_DATA):
            try:
                tree = msgspec.json.decode(line[len(_DATA) :])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
            changed = change(tree)
            if changed != tree:
                lines[at] = _DATA + b" " + msgspec.json.encode(changed)
    return b"\n".join(lines)


def _with_texts(raw: bytes, changes: Mapping[str, str], *, goes_on: bool = False) -> bytes:
    """An event that says other texts; `goes_on` where it began a call before."""
    return retold(raw, lambda tree: _changed(tree, changes, "", goes_on=goes_on))


def _said_once(key: str) -> frozenset[str]:
    """What must not come again where an event goes on with an earlier one."""
    if key in _CALLS:
        return _ONCE
    return _BESIDE if key == _PIECE else frozenset()


def _changed(node: object, changes: Mapping[str, str], key: str, *, goes_on: bool) -> object:
    if isinstance(node, str):
        return changes.get(node, node) if key in TEXT_KEYS else node
    if isinstance(node, dict):
        # Clients join the pieces of a call: a name that comes again would become part of it.
        left_out = _said_once(key) if goes_on else frozenset()
        return {
            name: _changed(value, changes, str(name), goes_on=goes_on)
            for name, value in node.items()
            if name not in left_out
        }
    if isinstance(node, list):
        return [_changed(item, changes, key, goes_on=goes_on) for item in node]
    return node
