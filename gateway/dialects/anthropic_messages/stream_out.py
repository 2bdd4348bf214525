"""Writes a stream of message events."""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from gateway.conversation import PART_SEAM
from gateway.dialects import sse
from gateway.dialects.anthropic_messages.errors import encode_error
from gateway.dialects.anthropic_messages.reply import (
    STOPPED_BY,
    as_object,
    encode_usage,
    stop_details,
)
from gateway.dialects.anthropic_messages.tools import eager_tools
from gateway.dialects.bodies import body
from gateway.dialects.fitting.naming import call_id, message_id, renamed_tools
from gateway.errors import GatewrightError
from gateway.types import ChatRequest, Delta, StreamEvent, Usage


STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
PING = b'event: ping\ndata: {"type":"ping"}\n\n'

_TEXT_BLOCK = b'{"type":"text","text":""}'
_THINKING_BLOCK = b'{"type":"thinking","thinking":"","signature":""}'

_BLANKS = " \t\n\r"
"""Characters before JSON that are no part of it."""

_encode = msgspec.json.encode


class MessagePassThrough:
    """The upstream's own bytes, less the terminal event.

    The event that says why the answer stopped is held until the terminal event: a caller must not
    take a broken answer for a complete one.
    """

    __slots__ = ("_failed", "_held")
    response = b""
    is_cut_on_failure = False

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._failed = False

    def encode(self, events: list[StreamEvent]) -> bytes:
        if len(events) == 1 and events[0].has_content and not self._held:
            return events[0].raw
        pieces: list[bytes] = []
        for event in events:
            if event.is_closing:
                self._held.append(event.raw)
            elif not event.is_terminal:
                pieces.append(event.raw)
        return b"".join(pieces)

    def finish(self, comment: str, usage: Usage) -> bytes:
        if self._failed:
            return b""
        if usage.estimated and self._held:
            self._held[-1] = _with_usage(self._held[-1], usage)
        return b"".join(self._held) + sse.comment(comment) + STOP

    def fail(self, error: GatewrightError, request_id: str) -> bytes:
        self._failed = True
        return failure(error, request_id)

    def plain(self, push: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
        return push

    def ping(self) -> bytes:
        return PING


def _with_usage(event: bytes, usage: Usage) -> bytes:
    """A `message_delta` with our estimate if the upstream counted nothing."""
    (found,) = sse.Splitter().feed(event)
    counted = encode_usage(usage)
    del counted["cache_creation"]
    data = body.patch(found.data or b"{}", {"usage": _encode(counted)})
    return _event(b"message_delta", data)


def failure(error: GatewrightError, request_id: str) -> bytes:
    """The dialect's error event; nothing may follow it."""
    return b"event: error\ndata: " + encode_error(error, request_id)[1] + b"\n\n"


def _event(name: bytes, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, data)


def _arguments(text: str) -> bytes:
    return b'{"type":"input_json_delta","partial_json":%b}' % _encode(text)


class _Waiting(Struct):
    """A block whose pieces arrive while another one is open."""

    start: bytes
    call: int
    """Index of the tool call; -1 for text and thinking."""
    pieces: list[bytes]
    arguments: list[str] = []
    """Arguments of a call, which are sent all at once."""


class MessageStreamEncoder:
    """Writes another dialect's events as a message: blocks numbered from 0, one open at a time.

    Parallel tool calls may arrive interleaved, so an open call stays open until the end of the
    answer and what arrives beside it waits; text and thinking close as soon as something follows.
    """

    response = b""
    is_cut_on_failure = False

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._started = False
        self._failed = False
        self._index = -1
        self._open = b""
        """The beginning of the open block; empty if none is open."""
        self._open_call = -1
        self._unsure: list[str] | None = None
        """Arguments of the open call that wait until they are complete; None if they do not
        wait."""
        self._eager = eager_tools(request)
        self._is_eager = False
        """Whether the caller reads the arguments of the open call's tool as they come."""
        self._waiting: list[_Waiting] = []
        self._waiting_calls: dict[int, _Waiting] = {}
        self._stop = Delta("stop", stop_reason="end")
        self._refusal: list[str] = []
        self._names = renamed_tools(request.tree)

    def encode(self, events: list[StreamEvent]) -> bytes:
        return b"".join([self._delta(delta) for event in events for delta in event.deltas])

    def _delta(self, delta: Delta) -> bytes:
        kind = delta.kind
        if kind == "text":
            return self._said(_TEXT_BLOCK, b'{"type":"text_delta","text":%b}', delta.text)
        if kind == "tool_arguments":
            return self._argued(delta.index, delta.text)
        if kind == "tool_start":
            return self._begin_call(delta)
        if kind == "start":
            return self._start(delta)
        return self._rare(delta)

    def _rare(self, delta: Delta) -> bytes:
        if delta.kind == "refusal":
            self._refusal.append(delta.text)
            return self._said(_TEXT_BLOCK, b'{"type":"text_delta","text":%b}', delta.text)
        if delta.kind == "part":
            delta = Delta("thinking", PART_SEAM)
        if delta.kind == "thinking" and delta.text:
            template = b'{"type":"thinking_delta","thinking":%b}'
            return self._said(_THINKING_BLOCK, template, delta.text)
        if delta.kind == "thinking" and delta.redacted:
            block = b'{"type":"redacted_thinking","data":%b}' % _encode(delta.redacted)
            if self._open_call >= 0:
                self._waiting.append(_Waiting(block, -1, []))
                return b""
            return self._close_block() + self._open_block(block, -1) + self._close_block()
        if delta.kind == "stop":
            self._stop = delta
        return b""

    def _start(self, delta: Delta) -> bytes:
        """The true input is known only at the end, so the message opens with an estimate."""
        if self._started:
            return b""
        self._started = True
        request = self._request
        estimate = encode_usage(Usage(input_tokens=request.input_tokens_estimate, output_tokens=1))
        # There is no word at the end that could correct it.
        del estimate["cache_creation"]
        message: dict[str, object] = {
            "id": message_id("msg_", delta.message_id, request.request_id.encode()),
            "type": "message",
            "role": "assistant",
            "model": delta.model or request.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": estimate,
        }
        return _event(b"message_start", _encode({"type": "message_start", "message": message}))

    def _said(self, block: bytes, template: bytes, text: str) -> bytes:
        piece = template % _encode(text)
        if self._open == block:
            return self._piece(piece)
        if self._open_call < 0:
            return self._close_block() + self._open_block(block, -1) + self._piece(piece)
        last = self._waiting[-1] if self._waiting else None
        if last is None or last.start != block:
            last = _Waiting(block, -1, [])
            self._waiting.append(last)
        last.pieces.append(piece)
        return b""

    def _begin_call(self, delta: Delta) -> bytes:
        name = self._names.get(delta.name, delta.name)
        block = b'{"type":"tool_use","id":%b,"name":%b,"input":{}}' % (
            _encode(call_id(delta.tool_id)),
            _encode(name),
        )
        if self._open_call >= 0:
            waiting = self._waiting_calls[delta.index] = _Waiting(block, delta.index, [])
            self._waiting.append(waiting)
            return b""
        self._is_eager = name in self._eager
        return self._close_block() + self._open_block(block, delta.index)

    def _argued(self, call: int, text: str) -> bytes:
        """Send arguments once they are complete: clients parse them as JSON and fail if not.

        Callers who asked for them as they come get them so, once they have begun to be an object.
        """
        if call == self._open_call:
            if self._unsure is None:
                return self._piece(_arguments(text))
            if not self._unsure:
                # A model may go on with blanks for as long as it is let, and they say nothing.
                text = text.lstrip(_BLANKS)
                if text.startswith("{") and self._is_eager:
                    self._unsure = None
                    return self._piece(_arguments(text))
            if text:
                self._unsure.append(text)
            return b""
        if (waiting := self._waiting_calls.get(call)) is not None:
            waiting.arguments.append(text)
        return b""

    def _open_block(self, block: bytes, call: int) -> bytes:
        self._index += 1
        self._open, self._open_call = block, call
        self._unsure = [] if call >= 0 else None
        data = b'{"type":"content_block_start","index":%d,"content_block":%b}'
        opening = _event(b"content_block_start", data % (self._index, block))
        return self._start(Delta("start")) + opening

    def _piece(self, piece: bytes) -> bytes:
        return (
            b"event: content_block_delta\ndata: "
            b'{"type":"content_block_delta","index":%d,"delta":%b}\n\n' % (self._index, piece)
        )

    def _close_block(self) -> bytes:
        if not self._open:
            return b""
        unsure = "".join(self._unsure or ())
        rest = self._piece(_arguments(as_object(unsure))) if unsure else b""
        self._open, self._open_call = b"", -1
        data = b'{"type":"content_block_stop","index":%d}' % self._index
        return rest + _event(b"content_block_stop", data)

    def finish(self, comment: str, usage: Usage) -> bytes:
        """What waited, block by block, then the end with its reason and the true usage."""
        if self._failed:
            return b""
        pieces = [self._start(Delta("start")), self._close_block()]
        for waiting in self._waiting:
            pieces.append(self._open_block(waiting.start, waiting.call))
            pieces += [self._piece(piece) for piece in waiting.pieces]
            if arguments := "".join(waiting.arguments):
                pieces.append(self._piece(_arguments(as_object(arguments))))
            pieces.append(self._close_block())
        self._waiting, self._waiting_calls = [], {}
        pieces += (self._message_delta(usage), sse.comment(comment), STOP)
        return b"".join(pieces)

    def _message_delta(self, usage: Usage) -> bytes:
        reason = "content_filter" if self._refusal else self._stop.stop_reason
        counted = encode_usage(usage)
        del counted["cache_creation"]
        delta = {
            "stop_reason": STOPPED_BY.get(reason, "end_turn"),
            "stop_sequence": self._stop.stop_sequence,
            "stop_details": stop_details(reason, "".join(self._refusal)),
        }
        data = {"type": "message_delta", "delta": delta, "usage": counted}
        return _event(b"message_delta", _encode(data))

    def fail(self, error: GatewrightError, request_id: str) -> bytes:
        self._failed = True
        return failure(error, request_id)

    def plain(self, _: Callable[[bytes], bool]) -> None:
        """None: each event is written anew."""

    def ping(self) -> bytes:
        return PING
