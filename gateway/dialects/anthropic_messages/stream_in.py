"""Reads an upstream's stream of message events."""

import msgspec
from msgspec import structs

from gateway.dialects import sse
from gateway.dialects.anthropic_messages import foreign
from gateway.dialects.anthropic_messages.reply import (
    COMPACTION,
    REPEATABLE,
    STOP_REASONS,
    encode_usage,
    refusal_of,
    usage_of,
)
from gateway.dialects.anthropic_messages.wire import (
    Piece,
    ReplyBlock,
    StreamWire,
    UsageWire,
)
from gateway.dialects.bodies import body
from gateway.dialects.figures import read_figures
from gateway.dialects.fitting.answer_tool import ANSWER_TOOL
from gateway.dialects.plain_pieces import PlainPieces
from gateway.errors import UpstreamMalformed
from gateway.types import Delta, StreamEvent, Usage


_EVENT = msgspec.json.Decoder(StreamWire)
_NOT_AN_EVENT = "The upstream sent something that is not an event of a message."
_OPAQUE = (Delta("opaque"),)
_BLOCK_END = "content_block_stop"
_SILENT = frozenset({"ping", _BLOCK_END})
_PIECES = frozenset({None, "text_delta", "input_json_delta", "thinking_delta", "signature_delta"})
_USAGE_FIELDS = UsageWire.__struct_fields__


class MessageStreamDecoder:
    """See `ports.StreamDecoder`. Nothing is reported after the terminal event."""

    __slots__ = (
        *("_answer", "_calls", "_calls_count", "_ended", "_foreign", "_is_answered"),
        *("_is_sound", "_pieces", "_searching", "_splitter", "_stops"),
        *("_summaries", "_summing", "_usage", "is_told"),
        "plain_words",
    )

    def __init__(self) -> None:
        self._splitter = sse.Splitter()
        self._pieces = PlainPieces(self._splitter)
        self.plain_words = self._pieces.words_of
        self._ended = False
        self._stops: set[str] = set()
        """Why it stopped, as far as that was said."""
        self.is_told = False
        self._usage = UsageWire()
        self._is_sound = True
        """Whether every count so far was readable."""
        self._answer = -1
        """Index of the block in which the answer comes as a tool's arguments."""
        self._is_answered = False
        self._foreign: set[int] = set()
        """Indices of blocks of unknown types."""
        self._searching: set[int] = set()
        """Indices of blocks that ask for a search: it is paid for once the block has ended."""
        self._summing: set[int] = set()
        """Indices of blocks in which the conversation is summarised."""
        self._summaries = 0
        self._calls: dict[int, int] = {}
        self._calls_count = 0

    def feed(self, data: bytes) -> list[StreamEvent]:
        return [self._read(event) for event in self._splitter.feed(data) if not self._ended]

    def conclude(self) -> list[StreamEvent]:
        return self.feed(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')

    def close(self) -> list[StreamEvent]:
        return sse.last_read(self._splitter, self._read_all)

    def _read_all(self, events: list[sse.Event]) -> list[StreamEvent]:
        return [self._read(event) for event in events if not self._ended]

    def _read(self, event: sse.Event) -> StreamEvent:
        raw = event.raw
        if event.data is None:
            return StreamEvent(raw, (), settles=())
        try:
            wire = _EVENT.decode(event.data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._pieces.forget()
            if isinstance(error, msgspec.ValidationError) and self._is_foreign(event.data):
                return StreamEvent(raw, _OPAQUE, has_content=True, settles=())
            raise UpstreamMalformed(_NOT_AN_EVENT) from error
        kind = wire.type
        if kind == "content_block_delta":
            return self._piece(raw, wire.index, wire.delta)
        self._pieces.forget()
        if kind == "content_block_start":
            return self._block(raw, wire.index, wire.content_block)
        if kind in _SILENT:
            return self._block_end(raw, wire.index) if kind == _BLOCK_END else StreamEvent(raw, ())
        if kind == "message_stop":
            return self._end(raw)
        if kind == "error":
            word = (wire.error.type if wire.error is not None else None) or "error"
            return StreamEvent(b"", (Delta("error", word[:64]),), said=event.data)
        return self._lifecycle(raw, wire)

    def _end(self, raw: bytes) -> StreamEvent:
        self._ended = True
        return StreamEvent(
            raw,
            (),
            is_terminal=True,
            is_unexplained=not self._stops,
            is_repeatable=bool(self._stops) and self._stops <= REPEATABLE,
        )

    def _is_foreign(self, data: bytes) -> bool:
        """Whether an unreadable event belongs to something that we do not read anyway."""
        try:
            loose = foreign.LOOSE.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if loose.type == "content_block_start" and foreign.is_unread(loose.content_block):
            self._foreign |= {loose.index} if isinstance(loose.index, int) else set()
            return True
        if loose.type == "content_block_delta":
            is_of_one = isinstance(loose.index, int) and loose.index in self._foreign
            return is_of_one or foreign.kind_of(loose.delta) not in _PIECES
        return loose.type not in foreign.EVENTS

    def _lifecycle(self, raw: bytes, wire: StreamWire) -> StreamEvent:
        if wire.type == "message_start":
            message = wire.message
            if message is None:
                raise UpstreamMalformed(_NOT_AN_EVENT)
            start = Delta("start", message_id=message.id or "", model=message.model or "")
            counted = self._counted(message.usage, is_opening=True)
            if not message.usage or not self._is_sound:
                raw = _counted_start(raw, counted)
            return StreamEvent(raw, (start, *counted))
        if wire.type == "message_delta":
            is_answer = self._answer >= 0 and not self._calls
            stopped = _stop(wire.delta, is_answer=is_answer)
            if wire.delta is not None and wire.delta.stop_reason:
                self._stops.add(wire.delta.stop_reason)
                self._pieces.end()
            counted = self._counted(wire.usage)
            self.is_told = bool(self._stops) and self._is_sound and bool(counted)
            deltas = (*stopped, *counted)
            return StreamEvent(raw, deltas, is_closing=True)
        return StreamEvent(raw, _OPAQUE, settles=())

    def _counted(self, said: object, *, is_opening: bool = False) -> tuple[Delta, ...]:
        """Usage is cumulative: the latest figure of each kind counts, and nothing is added up.

        What was output when a message opens says nothing about the answer.
        """
        if said is None:
            return ()
        usage, is_sound = read_figures(said, UsageWire)
        self._is_sound &= is_sound
        if is_opening:
            usage.output_tokens = 0
        known = self._usage
        merged = {
            name: getattr(known, name) if getattr(usage, name) is None else getattr(usage, name)
            for name in _USAGE_FIELDS
        }
        self._usage = UsageWire(**merged)
        counted = usage_of(self._usage, is_sound=self._is_sound)
        return (Delta("usage", usage=counted),) if counted is not None else ()

    def _block(self, raw: bytes, index: int, block: ReplyBlock | None) -> StreamEvent:
        if block is None:
            raise UpstreamMalformed(_NOT_AN_EVENT)
        if block.type == "tool_use":
            return self._tool_start(raw, index, block)
        if block.type == "text" and block.text:
            return StreamEvent(raw, (Delta("text", block.text),), has_content=True)
        if block.type == "thinking" and (block.thinking or block.signature):
            thought = [Delta("thinking", block.thinking)] if block.thinking else []
            sealed = [Delta("thinking", signature=block.signature)] if block.signature else []
            return StreamEvent(raw, (*thought, *sealed), has_content=bool(thought))
        if block.type in {"text", "thinking"}:
            return StreamEvent(raw, ())
        if block.type == "redacted_thinking" and block.data:
            return StreamEvent(raw, (Delta("thinking", redacted=block.data),), has_content=True)
        self._foreign.add(index)
        if block.type == COMPACTION:
            self._summing.add(index)
        if foreign.asks_for_search(block):
            self._searching.add(index)
        searches = -1 if foreign.tells_failed_search(block) else 0
        return StreamEvent(raw, _OPAQUE, has_content=True, searches=searches)

    def _block_end(self, raw: bytes, index: int) -> StreamEvent:
        if index == self._answer and not self._is_answered:
            # A tool's arguments are an object of nothing where no word comes of them.
            return StreamEvent(raw, (Delta("text", "{}"),), has_content=True)
        if index in self._summing:
            return StreamEvent(raw, (self._summed_up(),))
        return StreamEvent(raw, (), searches=int(index in self._searching))

    def _summed_up(self) -> Delta:
        """A summary was written: its tokens are counted at the end, but owed from now on."""
        known = usage_of(self._usage) or Usage()
        self._summaries += 1
        count = max(self._summaries, known.compactions)
        usage = structs.replace(known, output_tokens=0, estimated=True, compactions=count)
        return Delta("usage", usage=usage)

    def _tool_start(self, raw: bytes, index: int, block: ReplyBlock) -> StreamEvent:
        if not block.id or not block.name:
            raise UpstreamMalformed("The upstream called a tool without a name or an id.")
        if block.name == ANSWER_TOOL:
            self._answer, self._is_answered = index, False
            return StreamEvent(raw, ())
        ordinal = self._calls_count
        self._calls_count += 1
        self._calls[index] = ordinal
        deltas = [Delta("tool_start", index=ordinal, tool_id=block.id, name=block.name)]
        if block.input:
            whole = msgspec.json.encode(block.input).decode()
            deltas.append(Delta("tool_arguments", whole, ordinal))
        return StreamEvent(raw, tuple(deltas), has_content=True)

    def _piece(self, raw: bytes, index: int, piece: Piece | None) -> StreamEvent:
        if piece is None:
            raise UpstreamMalformed(_NOT_AN_EVENT)
        if index in self._foreign or piece.type not in _PIECES:
            return _unread(raw, index, piece)
        if piece.text is not None:
            self._pieces.learn(raw, piece.text)
            return _said(raw, Delta("text", piece.text))
        if piece.partial_json is not None:
            return self._arguments(raw, index, piece.partial_json)
        if piece.thinking is not None:
            return _said(raw, Delta("thinking", piece.thinking))
        if piece.signature is not None:
            return StreamEvent(raw, (Delta("thinking", signature=piece.signature),))
        return _unread(raw, index, piece)

    def _arguments(self, raw: bytes, index: int, text: str) -> StreamEvent:
        ordinal = self._calls.get(index)
        if index != self._answer and ordinal is None:
            raise UpstreamMalformed("The upstream sent arguments of a tool call it never began.")
        if not text:
            return StreamEvent(raw, (), settles=())
        if ordinal is None:
            self._is_answered = True
            return _said(raw, Delta("text", text))
        return _said(raw, Delta("tool_arguments", text, ordinal))


def _unread(raw: bytes, index: int, piece: Piece) -> StreamEvent:
    """A citation, or a piece of a block that only this dialect's callers read.

    Its words are held together; one without words ends no text: only the end of its block does.
    """
    words = piece.text or piece.partial_json or piece.thinking or piece.content
    if words and isinstance(words, str):
        return _said(raw, Delta("opaque", words, index))
    return StreamEvent(raw, _OPAQUE, has_content=True, settles=())


def _said(raw: bytes, delta: Delta) -> StreamEvent:
    """A piece of something; an empty one ends nothing."""
    return StreamEvent(raw, (delta,), has_content=True, settles=None if delta.text else ())


def _stop(piece: Piece | None, *, is_answer: bool) -> tuple[Delta, ...]:
    """Why it stopped; a call that was the answer itself is not a call to the caller."""
    if piece is None or not piece.stop_reason:
        return ()
    reason = STOP_REASONS.get(piece.stop_reason, "end")
    if is_answer and reason == "tool_use":
        reason = "end"
    stop = Delta("stop", stop_reason=reason, stop_sequence=piece.stop_sequence)
    if reason == "content_filter":
        return Delta("refusal", refusal_of(piece.stop_details)), stop
    return (stop,)


def _counted_start(raw: bytes, counted: tuple[Delta, ...]) -> bytes:
    """A `message_start` with a readable usage: clients add to it, and fail without one."""
    (event,) = sse.Splitter().feed(raw)
    data = event.data or b"{}"
    usage = next((delta.usage for delta in counted), None) or Usage()
    told = msgspec.json.encode(encode_usage(usage))
    message = body.patch(bytes(body.split(data)["message"]), {"usage": told})
    return b"event: message_start\ndata: " + body.patch(data, {"message": message}) + b"\n\n"
