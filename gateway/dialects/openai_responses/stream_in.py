"""Reads an upstream's stream of response events."""

from typing import Literal

import msgspec

from gateway.dialects import sse
from gateway.dialects.openai_responses.foreign import is_text_call, is_unread, item_of, searches_in
from gateway.dialects.openai_responses.marks import wrapped_item
from gateway.dialects.openai_responses.reply import UNANSWERED, is_repeatable, stop_reason, usage_of
from gateway.dialects.openai_responses.wire import Item, Reply, StreamWire
from gateway.dialects.plain_pieces import PlainPieces
from gateway.errors import UpstreamMalformed
from gateway.types import Delta, StreamEvent


_EVENT = msgspec.json.Decoder(StreamWire)
_NOT_AN_EVENT = "The upstream sent something that is not an event of a response."
_THINKING = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_ENDS = frozenset({"response.completed", "response.incomplete"})
_FAILURES = frozenset({"error", "response.failed", "response.cancelled"})
_OPAQUE = (Delta("opaque"),)
_NEXT_PART = (Delta("part"),)
_SUMMARY_PART = "response.reasoning_summary_part.added"
_ANNOTATED = "response.output_text.annotation.added"
_EDGES = (".added", ".done")
"""Endings of events that begin or end something; other events accompany a text."""
_READ = frozenset(
    {
        *("response.output_text.delta", "response.function_call_arguments.delta"),
        *("response.refusal.delta", "response.output_item.added", "response.output_item.done"),
        *("response.created", "response.in_progress", "response.queued"),
        *_THINKING,
        *_ENDS,
        *_FAILURES,
    }
)
"""Kinds of events that are read; events of other kinds may have any shape."""


class ResponseStreamDecoder:
    """See `ports.StreamDecoder`. Nothing is reported after the terminal event."""

    __slots__ = (
        *(
            "_begun",
            "_calls",
            "_calls_count",
            "_ended",
            "_is_saying",
            "_pieces",
            "_refused",
            "_texts",
        ),
        *("_said_at", "_splitter", "_started", "_summed", "_untold", "plain_words"),
    )

    def __init__(self) -> None:
        self._splitter = sse.Splitter()
        self._pieces = PlainPieces(self._splitter)
        self.plain_words = self._pieces.words_of
        self._started = False
        self._ended = False
        self._refused = False
        self._calls: dict[int, int] = {}
        """Place in the output → number of the tool call there, the last of several."""
        self._calls_count = 0
        self._begun: set[int] = set()
        """Calls whose arguments have begun to arrive."""
        self._texts: dict[int, bool] = {}
        """Place in the output of each call with plain text → whether any of the text has come."""
        self._summed = -1
        """Place in the output of the reasoning whose summary began last."""
        self._said_at: set[int] = set()
        """Places in the output whose words came piece by piece."""
        self._is_saying = False
        """Whether such words came since the last message was done: not all events name their place
        alike."""
        self._untold: list[Delta] = []
        """New content of the current event that is usually a repetition."""

    def feed(self, data: bytes) -> list[StreamEvent]:
        return self._read_all(self._splitter.feed(data))

    @property
    def is_told(self) -> bool:
        """Never: its terminal event tells why a response stopped, and its token counts."""
        return False

    def conclude(self) -> list[StreamEvent]:
        return []

    def close(self) -> list[StreamEvent]:
        return sse.last_read(self._splitter, self._read_all)

    def _read_all(self, events: list[sse.Event]) -> list[StreamEvent]:
        """Events; content that one only repeats but was never sent comes first, as its own event.

        It has no bytes: callers of this dialect read it in the original event.
        """
        found: list[StreamEvent] = []
        for event in events:
            if self._ended:
                break
            read = self._read(event)
            if self._untold:
                found.append(StreamEvent(b"", tuple(self._untold), has_content=True))
                self._untold = []
            found.append(read)
        return found

    def _read(self, event: sse.Event) -> StreamEvent:
        raw = event.raw
        if event.data is None or event.data == b"[DONE]":
            return StreamEvent(raw if event.data is None else b"", (), settles=())
        try:
            wire = _EVENT.decode(event.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._pieces.forget()
            if isinstance(error, msgspec.ValidationError) and is_unread(event.data, _READ):
                return StreamEvent(raw, _OPAQUE, has_content=True, settles=())
            raise UpstreamMalformed(_NOT_AN_EVENT) from error
        kind = wire.type
        if kind == "response.output_text.delta":
            self._pieces.learn(raw, wire.delta or "")
            return self._words(raw, wire, "text")
        self._pieces.forget()
        if kind == "response.function_call_arguments.delta":
            return self._arguments(raw, wire)
        if kind in _THINKING:
            return _said(raw, Delta("thinking", wire.delta or ""))
        if kind == "response.refusal.delta":
            self._refused = True
            return self._words(raw, wire, "refusal")
        return self._lifecycle(raw, wire, event.data)

    def _words(self, raw: bytes, wire: StreamWire, kind: Literal["text", "refusal"]) -> StreamEvent:
        if wire.delta:
            self._said_at.add(wire.output_index)
            self._is_saying = True
        return _said(raw, Delta(kind, wire.delta or ""))

    def _lifecycle(self, raw: bytes, wire: StreamWire, data: bytes) -> StreamEvent:
        kind = wire.type
        if kind in _FAILURES:
            return _failed(wire, data)
        if kind == "response.output_item.added":
            return self._added(raw, wire)
        if kind == "response.output_item.done":
            return self._done(raw, wire)
        if wire.response is not None and kind in _ENDS:
            return self._end(raw, wire.response, kind)
        if wire.response is not None and not self._started:
            self._started = True
            reply = wire.response
            start = Delta("start", message_id=reply.id or "", model=reply.model or "")
            return StreamEvent(raw, (start,))
        if kind == _SUMMARY_PART and self._summed == wire.output_index:
            return StreamEvent(raw, _NEXT_PART)
        if kind == _SUMMARY_PART:
            self._summed = wire.output_index
        if wire.delta:
            # Of a tool that takes text, or that only this dialect knows.
            if wire.output_index in self._texts:
                self._texts[wire.output_index] = True
            opaque = Delta("opaque", wire.delta, wire.output_index)
            return StreamEvent(raw, (opaque,), has_content=True)
        is_aside = kind == _ANNOTATED or not kind.endswith(_EDGES)
        return StreamEvent(raw, (), settles=() if is_aside else None)

    def _added(self, raw: bytes, wire: StreamWire) -> StreamEvent:
        item = _item(wire.item)
        if item.type in {"message", "reasoning"}:
            return StreamEvent(raw, ())
        if is_text_call(item):
            return StreamEvent(raw, self._text_begun(wire.output_index, item), has_content=True)
        if item.type != "function_call":
            return StreamEvent(raw, _OPAQUE, has_content=True)
        return StreamEvent(raw, self._call_begun(wire.output_index, item), has_content=True)

    def _call_begun(self, place: int, item: Item) -> tuple[Delta, ...]:
        if not item.call_id or not item.name:
            raise UpstreamMalformed("The upstream called a tool without a name or an id.")
        ordinal = self._calls_count
        self._calls_count += 1
        self._calls[place] = ordinal
        start = Delta("tool_start", index=ordinal, tool_id=item.call_id, name=item.name)
        if not item.arguments:
            return (start,)
        self._begun.add(ordinal)
        return start, Delta("tool_arguments", item.arguments, ordinal)

    def _text_begun(self, place: int, item: Item) -> tuple[Delta, ...]:
        """A call with plain text: its pieces are identified by its place in the output."""
        self._texts[place] = False
        tool_id, name = item.call_id or "", item.name or ""
        return (Delta("text_tool_start", index=place, tool_id=tool_id, name=name),)

    def _text_done(self, place: int, item: Item) -> list[Delta]:
        """Parts of it that were not sent before are sent here, or lost."""
        deltas = [] if place in self._texts else [*self._text_begun(place, item)]
        if item.input and not self._texts[place]:
            self._texts[place] = True
            deltas.append(Delta("opaque", item.input, place))
        return deltas

    def _arguments(self, raw: bytes, wire: StreamWire) -> StreamEvent:
        ordinal = self._calls.get(wire.output_index)
        if ordinal is None:
            # Its call is unknown, but the caller reads it.
            return _said(raw, Delta("opaque", wire.delta or "", wire.output_index))
        self._begun.add(ordinal)
        return _said(raw, Delta("tool_arguments", wire.delta or "", ordinal))

    def _done(self, raw: bytes, wire: StreamWire) -> StreamEvent:
        """The complete item: only here is a reasoning item complete."""
        item = _item(wire.item)
        if item.type == "reasoning" and (wrapped := wrapped_item(item)):
            return StreamEvent(raw, (Delta("thinking", redacted=wrapped),))
        if item.type == "function_call":
            return self._call_done(raw, wire, item)
        if item.type == "message":
            self._message_done(wire, item)
        if is_text_call(item):
            self._untold += self._text_done(wire.output_index, item)
        return StreamEvent(raw, (), searches=searches_in(wire.item))

    def _message_done(self, wire: StreamWire, item: Item) -> None:
        """Words that did not come piece by piece are sent here, or lost."""
        if not self._is_saying and wire.output_index not in self._said_at:
            self._untold += self._whole(item)
        if self._untold:
            self._said_at.add(wire.output_index)
        self._is_saying = False

    def _whole(self, item: Item) -> tuple[Delta, ...]:
        parts = item.content if isinstance(item.content, list) else []
        self._refused |= any(part.refusal for part in parts)
        return tuple(
            Delta("refusal", part.refusal) if part.refusal else Delta("text", part.text or "")
            for part in parts
            if part.refusal or part.text
        )

    def _call_done(self, raw: bytes, wire: StreamWire, item: Item) -> StreamEvent:
        """Parts of it that were not sent before are sent here, or lost."""
        ordinal = self._calls.get(wire.output_index)
        if ordinal is None:
            return self._added(raw, wire)
        if ordinal in self._begun:
            return StreamEvent(raw, ())
        self._begun.add(ordinal)
        delta = Delta("tool_arguments", item.arguments or "", ordinal)
        return StreamEvent(raw, (delta,) if delta.text else (), has_content=True)

    def _end(self, raw: bytes, reply: Reply, kind: str) -> StreamEvent:
        self._ended = True
        if reply.status in UNANSWERED:
            return _failure(reply, reply.status or "error")
        self._untold += self._never_told(reply)
        if kind == "response.incomplete":
            reply.status = "incomplete"
        reason = stop_reason(reply, has_calls=bool(self._calls), is_refused=self._refused)
        deltas = [Delta("stop", stop_reason=reason)]
        usage = usage_of(reply)
        if usage is not None:
            deltas.append(Delta("usage", usage=usage))
        return StreamEvent(
            raw,
            tuple(deltas),
            is_terminal=True,
            is_repeatable=is_repeatable(reply, is_refused=self._refused),
        )

    def _never_told(self, reply: Reply) -> list[Delta]:
        """For a stream without any word or call: those that only its last event contains."""
        deltas: list[Delta] = []
        if self._said_at or self._calls or self._texts:
            return deltas
        for place, raw in enumerate(reply.output):
            item = _item(raw)
            if item.type == "message":
                deltas += self._whole(item)
            elif item.type == "function_call":
                deltas += self._call_begun(place, item)
            elif is_text_call(item):
                deltas += self._text_done(place, item)
        return deltas


def _failed(wire: StreamWire, data: bytes) -> StreamEvent:
    word = (wire.code or "error")[:64]
    if wire.response is not None:
        return _failure(wire.response, word)
    return StreamEvent(b"", (Delta("error", word),), said=data)


def _failure(reply: Reply, word: str) -> StreamEvent:
    """A response that ends with an error: the upstream's message, and its token counts."""
    error: tuple[Delta, ...] = (Delta("error", word),)
    if (usage := usage_of(reply)) is not None:
        error += (Delta("usage", usage=usage),)
    said = bytes(reply.error)
    return StreamEvent(b"", error, said=b'{"error":%b}' % said if said else b"")


def _said(raw: bytes, delta: Delta) -> StreamEvent:
    """A piece of something; an empty one ends nothing."""
    return StreamEvent(raw, (delta,), has_content=True, settles=None if delta.text else ())


def _item(raw: bytes | msgspec.Raw) -> Item:
    try:
        return item_of(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamMalformed(_NOT_AN_EVENT) from error
