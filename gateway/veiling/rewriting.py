"""Rewrites streamed answers: each channel's text piece by piece, with events kept in order.

It knows no dialect: the new text is put where an event's deltas are in its JSON. The rewriter is
passed in: the veil restores values, an output scan masks them.
"""

from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Final, Protocol

import msgspec

from gateway.errors import UpstreamMalformed
from gateway.types import Delta, StreamEvent
from gateway.veiling.blocks import PROSE, Piecewise, joined
from gateway.veiling.retelling import (
    gone_on,
    retold,
    says_more,
    told_beside,
    with_texts,
    with_texts_in,
)
from gateway.veiling.speaking import (
    CONTENT,
    brings_all,
    brings_input,
    channel_of,
    goes_aside,
    goes_between,
    goes_on,
    goes_on_with,
    goes_over,
    is_edge,
    is_ping,
)
from gateway.veiling.wraps import beside_words


MAX_DEPTH = 64
CHANNELS_MAX: Final = 1024
"""Texts and calls in one stream: as many as the answers that a request may ask for. All of them are
looked at with every event."""


class Lift(Protocol):
    """Rewrites the events of one stream."""

    def events(self, events: list[StreamEvent]) -> list[StreamEvent]: ...


class AnswerRewriter(Protocol):
    """Rewrites answers to one request: complete ones, and any number of streams."""

    def unveiled(self, raw: bytes) -> bytes:
        """A complete answer's body, rewritten; anything but JSON stays as it is."""
        ...

    def lifted(self) -> Lift: ...


class _InTurn(msgspec.Struct, frozen=True):
    """Two rewriters, one after the other."""

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
    """Both rewriters in this order; None if there is neither."""
    if first is None or then is None:
        return then if first is None else first
    return _InTurn(first, then)


class _Block:
    """One block of a channel: its latest event, its words, and how much was shown."""

    __slots__ = ("event", "said", "shown")

    def __init__(self) -> None:
        self.event: StreamEvent | None = None
        self.said: list[str] = []
        self.shown: list[str] = []


class _Channel:
    """One text of a stream, in blocks that may each continue in the next.

    Text can be added to the first block that is not fully shown.
    """

    __slots__ = ("blocks", "is_open", "is_torn", "last", "name", "rewriter")

    def __init__(self, name: tuple[str, int], rewriter: Piecewise, last: StreamEvent) -> None:
        self.name = name
        self.rewriter = rewriter
        self.last = last
        self.blocks = [_Block()]
        self.is_open = False
        """Whether the last of its blocks contained anything."""
        self.is_torn = False
        """Whether its latest text cannot be the end of a call's arguments."""

    @property
    def waits(self) -> bool:
        return len(self.blocks) > 1

    def goes_on_behind(self, event: StreamEvent) -> bool:
        """Whether its latest text may continue after an event about something else."""
        if self.name[0] in PROSE:
            return goes_aside(event) and self.rewriter.is_torn
        return self.is_torn and goes_between(event, self.last)


class _Waiting(msgspec.Struct, frozen=True):
    """An event that must wait until everything before its block was shown."""

    event: StreamEvent
    block: _Block
    delta: Delta | None
    """Its text in that block; None if it has none."""


class StreamRewriter:
    """One stream: a rewriter for its text, and one for each tool call.

    `opened` makes the rewriter for a channel of this kind. `repeated` rewrites the JSON of an event
    that only repeats, as the last ones of some dialects do; None leaves those as they are.
    """

    def __init__(
        self,
        opened: Callable[[str], Piecewise],
        repeated: Callable[[object], object] | None,
    ) -> None:
        self._opened = opened
        self._repeated = repeated
        self._channels: dict[tuple[str, int], _Channel] = {}
        self._waiting: list[_Waiting] = []
        self._retold: dict[str, list[str]] = {}
        """Changed texts of blocks, by what they last said: the events that end blocks repeat it."""

    def events(self, events: Iterable[StreamEvent]) -> list[StreamEvent]:
        """The events rewritten; one that ends something follows all that was held back of it.

        An event that ends nothing, such as a citation, goes first: the text continues around it,
        and otherwise a value in pieces would be shown. The end of a block waits for what follows:
        if that is a block of the same kind, the text continues in it.

        Each of several answers is held back separately: their pieces alternate, and a text that was
        cut at each change could be neither recognised nor put back.
        """
        out: list[StreamEvent] = []
        for event in events:
            channels = {channel_of(d) for d in event.deltas if d.kind in CONTENT and d.text}
            if is_ping(event):
                out.append(self._again(event))
            elif is_edge(event):
                out += self._flushed(event, keep={c for c in self._channels if c[0] in PROSE})
                self._end_blocks()
                out += self._in_order(event)
            else:
                out += self._flushed(event, keep=channels)
                out += self._lifted(event) if channels else self._in_order(event)
        return out

    def _in_order(self, event: StreamEvent) -> list[StreamEvent]:
        """An event without words, after everything that precedes it."""
        for channel in self._channels.values():
            if channel.waits:
                self._waiting.append(_Waiting(event, channel.blocks[-1], None))
                return []
        return [self._again(event)]

    def _end_blocks(self) -> None:
        for channel in self._channels.values():
            if channel.name[0] in PROSE:
                self._end_block(channel)

    def _end_block(self, channel: _Channel) -> None:
        if not channel.is_open:
            return
        channel.is_open = False
        is_shown = channel.rewriter.edge()
        channel.blocks.append(_Block())
        if is_shown:
            self._pass(channel)

    def _pass(self, channel: _Channel) -> None:
        """Drop a channel's first block, since all of it was shown."""
        block = channel.blocks.pop(0)
        said, shown = "".join(block.said), "".join(block.shown)
        if said == shown:
            self._retold.pop(said, None)
        else:
            self._retold[said] = [shown]

    def _lifted(self, event: StreamEvent) -> list[StreamEvent]:
        """An event with words, preceded by what can now be shown of earlier ones."""
        event = self._beside(event)
        out: list[StreamEvent] = []
        changes: dict[str, list[str]] = {}
        deltas: list[Delta] = []
        waiting: _Waiting | None = None
        ends = event.is_closing or event.is_terminal or brings_all(event)
        for delta in event.deltas:
            if delta.kind not in CONTENT or not delta.text:
                deltas.append(delta)
                continue
            channel = self._spoken(delta, event)
            blocks = channel.rewriter.shown(delta.text)
            behind = event.deltas[len(deltas) + 1 :]
            is_over = goes_over(delta, behind) and not channel.goes_on_behind(event)
            if (ends or is_over) and not goes_on(delta, behind):
                joined(blocks, channel.rewriter.rest())
            text = blocks.pop()
            out += self._shown(channel, blocks)
            if channel.waits:
                out += self._put(channel, text)
                waiting = _Waiting(event, channel.blocks[-1], delta)
                deltas.append(delta)
                continue
            out += self._put(channel, "")
            channel.blocks[0].shown.append(text)
            changes.setdefault(delta.text, []).append(text)
            deltas.append(msgspec.structs.replace(delta, text=text))
        made = self._made(event, tuple(deltas), changes)
        if waiting is None:
            return [*out, made]
        self._waiting.append(msgspec.structs.replace(waiting, event=made))
        return out

    def _beside(self, event: StreamEvent) -> StreamEvent:
        """An event with words, and the parts beside them rewritten, such as a citation's title."""
        if self._repeated is None or brings_input(event):
            return event
        words = [d.text for d in event.deltas if d.kind in CONTENT and d.text]
        is_beside = any(delta.redacted or delta.stop_sequence for delta in event.deltas)
        if not is_beside and not says_more(event.raw, words):
            return event
        raw = told_beside(event.raw, words, self._repeated)
        deltas = tuple([beside_words(delta, self._repeated) for delta in event.deltas])
        return msgspec.structs.replace(event, raw=raw, deltas=deltas)

    def _spoken(self, delta: Delta, event: StreamEvent) -> _Channel:
        name = channel_of(delta)
        channel = self._channels.get(name)
        if channel is None:
            check_room(self._channels)
            channel = self._channels[name] = _Channel(name, self._opened(delta.kind), event)
        channel.last = event
        channel.is_open = True
        channel.is_torn = delta.kind == "tool_arguments" and not delta.text.rstrip().endswith("}")
        channel.blocks[-1].event = event
        channel.blocks[-1].said.append(delta.text)
        return channel

    def _made(
        self, event: StreamEvent, deltas: tuple[Delta, ...], changes: Mapping[str, list[str]]
    ) -> StreamEvent:
        if self._repeated is not None and brings_input(event):
            return msgspec.structs.replace(self._again(event), deltas=deltas)
        if all(before == after for before, texts in changes.items() for after in texts):
            return event
        return msgspec.structs.replace(event, raw=with_texts(event.raw, changes), deltas=deltas)

    def _again(self, event: StreamEvent) -> StreamEvent:
        repeated = self._repeated
        if repeated is None:
            return event
        # The last event of some dialects holds the complete answer, which can be read by itself.
        texts = {} if event.is_terminal else self._retold
        raw = retold(
            event.raw,
            lambda tree: repeated(with_texts_in(tree, texts) if texts else tree),
        )
        deltas = tuple([beside_words(delta, repeated) for delta in event.deltas])
        return msgspec.structs.replace(event, raw=raw, deltas=deltas)

    def _flushed(self, before: StreamEvent, keep: set[tuple[str, int]]) -> list[StreamEvent]:
        """What other channels held back of the answers that an event settles, such as their last.

        What follows does not belong to it, but is read together with it, so that the rest of a
        value that was torn there is recognised. An unfinished call continues after the other event,
        and so does a part of a value in chunks, because their pieces may alternate.
        """
        out: list[StreamEvent] = []
        for channel in [c for name, c in self._channels.items() if name not in keep]:
            if not goes_on_with(before, channel.last):
                continue
            if channel.goes_on_behind(before):
                continue
            *blocks, text = channel.rewriter.rest()
            out += self._shown(channel, blocks)
            out += self._put(channel, text)
            if channel.name[0] in PROSE:
                self._end_block(channel)
            else:
                del self._channels[channel.name]
        return out

    def _shown(self, channel: _Channel, blocks: Iterable[str]) -> list[StreamEvent]:
        """The ends of blocks, each followed by what waited for it."""
        out: list[StreamEvent] = []
        for text in blocks:
            out += self._put(channel, text)
            self._pass(channel)
        return out

    def _put(self, channel: _Channel, text: str) -> list[StreamEvent]:
        """Put out words of the first block, in its last waiting event or in a copy of it."""
        block = channel.blocks[0]
        block.shown.append(text)
        out: list[StreamEvent] = []
        while self._waiting and self._waiting[0].block is block:
            each = self._waiting.pop(0)
            if each.delta is None:
                out.append(self._again(each.event))
                continue
            is_last = not any(e.block is block and e.delta is not None for e in self._waiting)
            out.append(_saying(each.event, each.delta, text if is_last else ""))
            text = "" if is_last else text
        if text and block.event is not None:
            old = next(d for d in block.event.deltas if channel_of(d) == channel.name and d.text)
            out.append(_one_more(block.event, old, text))
        return out


def _saying(event: StreamEvent, old: Delta, text: str) -> StreamEvent:
    """An event with other words in one of its deltas."""
    deltas = [msgspec.structs.replace(d, text=text) if d is old else d for d in event.deltas]
    raw = with_texts(event.raw, {old.text: [text]})
    return msgspec.structs.replace(event, raw=raw, deltas=tuple(deltas))


def _one_more(event: StreamEvent, old: Delta, text: str) -> StreamEvent:
    """A copy of an event, with words that continue it."""
    delta = msgspec.structs.replace(old, text=text)
    changes: dict[str, list[str]] = {}
    for each in event.deltas:
        if each.kind in CONTENT and each.text:
            changes.setdefault(each.text, []).append(text if each is old else "")
    raw = gone_on(event.raw, text, changes)
    return msgspec.structs.replace(event, raw=raw, deltas=(delta,))


def check_room(channels: Sized) -> None:
    """Refuse a stream that begins more than `CHANNELS_MAX` texts and calls.

    Raises:
        UpstreamMalformed
    """
    if len(channels) >= CHANNELS_MAX:
        raise UpstreamMalformed("The upstream's answer has too many parts to be looked at.")
