"""An upstream's stream of response events → events."""

import msgspec

from gateway.dialects import sse
from gateway.dialects.openai_responses.foreign import is_unread, item_of, searches_in
from gateway.dialects.openai_responses.marks import wrapped_item
from gateway.dialects.openai_responses.reply import stop_reason, usage_of
from gateway.dialects.openai_responses.wire import Item, Reply, StreamWire
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
"""How kinds of events end that begin or end something; the others stand beside a text."""
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
"""Kinds of events that say something to us; any other may have a shape of its own."""


class ResponseStreamDecoder:
    """See `ports.StreamDecoder`. Nothing is reported after the terminal event."""

    __slots__ = ("_begun", "_calls", "_ended", "_refused", "_splitter", "_started", "_summed")

    def __init__(self) -> None:
        self._splitter = sse.Splitter()
        self._started = False
        self._ended = False
        self._refused = False
        self._calls: dict[int, int] = {}
        """Place in the output → ordinal of the tool call there."""
        self._begun: set[int] = set()
        """Calls whose arguments have begun to arrive."""
        self._summed = -1
        """Place in the output of the reasoning whose summary began last."""

    def feed(self, data: bytes) -> list[StreamEvent]:
        return [self._read(event) for event in self._splitter.feed(data) if not self._ended]

    def close(self) -> list[StreamEvent]:
        return sse.last_read(self._splitter, self._read_all)

    def _read_all(self, events: list[sse.Event]) -> list[StreamEvent]:
        return [self._read(event) for event in events if not self._ended]

    def _read(self, event: sse.Event) -> StreamEvent:
        raw = event.raw
        if event.data is None or event.data == b"[DONE]":
            return StreamEvent(raw if event.data is None else b"", (), settles=())
        try:
            wire = _EVENT.decode(event.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if isinstance(error, msgspec.ValidationError) and is_unread(event.data, _READ):
                return StreamEvent(raw, _OPAQUE, has_content=True, settles=())
            raise UpstreamMalformed(_NOT_AN_EVENT) from error
        kind = wire.type
        if kind == "response.output_text.delta":
            return _said(raw, Delta("text", wire.delta or ""))
        if kind == "response.function_call_arguments.delta":
            return self._arguments(raw, wire)
        if kind in _THINKING:
            return _said(raw, Delta("thinking", wire.delta or ""))
        if kind == "response.refusal.delta":
            self._refused = True
            return _said(raw, Delta("refusal", wire.delta or ""))
        return self._lifecycle(raw, wire)

    def _lifecycle(self, raw: bytes, wire: StreamWire) -> StreamEvent:
        kind = wire.type
        if kind in _FAILURES:
            word = wire.code or "error"
            return StreamEvent(b"", (Delta("error", word[:64]),))
        if kind == "response.output_item.added":
            return self._added(raw, wire)
        if kind == "response.output_item.done":
            return self._done(raw, wire)
        if wire.response is not None and kind in _ENDS:
            return self._end(raw, wire.response)
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
            # Of a tool that only this dialect knows: its caller reads it all the same.
            opaque = Delta("opaque", wire.delta, wire.output_index)
            return StreamEvent(raw, (opaque,), has_content=True)
        is_aside = kind == _ANNOTATED or not kind.endswith(_EDGES)
        return StreamEvent(raw, (), settles=() if is_aside else None)

    def _added(self, raw: bytes, wire: StreamWire) -> StreamEvent:
        item = _item(wire)
        if item.type in {"message", "reasoning"}:
            return StreamEvent(raw, ())
        if item.type != "function_call":
            return StreamEvent(raw, _OPAQUE, has_content=True)
        if not item.call_id or not item.name:
            raise UpstreamMalformed("The upstream called a tool without a name or an id.")
        ordinal = len(self._calls)
        self._calls[wire.output_index] = ordinal
        deltas = [Delta("tool_start", index=ordinal, tool_id=item.call_id, name=item.name)]
        if item.arguments:
            self._begun.add(ordinal)
            deltas.append(Delta("tool_arguments", item.arguments, ordinal))
        return StreamEvent(raw, tuple(deltas), has_content=True)

    def _arguments(self, raw: bytes, wire: StreamWire) -> StreamEvent:
        ordinal = self._calls.get(wire.output_index)
        if ordinal is None:
            # Nobody said whose, yet the caller reads them.
            return _said(raw, Delta("opaque", wire.delta or "", wire.output_index))
        self._begun.add(ordinal)
        return _said(raw, Delta("tool_arguments", wire.delta or "", ordinal))

    def _done(self, raw: bytes, wire: StreamWire) -> StreamEvent:
        """The whole item: only here is a reasoning item complete."""
        item = _item(wire)
        if item.type == "reasoning" and (wrapped := wrapped_item(item)):
            return StreamEvent(raw, (Delta("thinking", redacted=wrapped),))
        if item.type == "function_call":
            return self._call_done(raw, wire, item)
        return StreamEvent(raw, (), searches=searches_in(wire.item))

    def _call_done(self, raw: bytes, wire: StreamWire, item: Item) -> StreamEvent:
        """What nobody said of it until now is told here, or lost."""
        ordinal = self._calls.get(wire.output_index)
        if ordinal is None:
            return self._added(raw, wire)
        if ordinal in self._begun:
            return StreamEvent(raw, ())
        self._begun.add(ordinal)
        delta = Delta("tool_arguments", item.arguments or "", ordinal)
        return StreamEvent(raw, (delta,) if delta.text else (), has_content=True)

    def _end(self, raw: bytes, reply: Reply) -> StreamEvent:
        self._ended = True
        reason = stop_reason(reply, has_calls=bool(self._calls), is_refused=self._refused)
        deltas = [Delta("stop", stop_reason=reason)]
        usage = usage_of(reply)
        if usage is not None:
            deltas.append(Delta("usage", usage=usage))
        return StreamEvent(raw, tuple(deltas), is_terminal=True)


def _said(raw: bytes, delta: Delta) -> StreamEvent:
    """A piece of something; an empty one ends nothing."""
    return StreamEvent(raw, (delta,), has_content=True, settles=None if delta.text else ())


def _item(wire: StreamWire) -> Item:
    try:
        return item_of(wire.item)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamMalformed(_NOT_AN_EVENT) from error
