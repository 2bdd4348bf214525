"""Events → a stream of chat completion chunks."""

import msgspec

from gateway.dialects import sse
from gateway.dialects.estimate import estimate_output_tokens
from gateway.dialects.naming import message_id
from gateway.dialects.openai_chat.errors import encode_error
from gateway.dialects.openai_chat.reply import CREATED, FINISH_REASONS, encode_usage
from gateway.errors import GatewrightError
from gateway.types import ChatRequest, Delta, StreamEvent, Usage


DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"

_encode = msgspec.json.encode


class ChatPassThrough:
    """The upstream's own bytes; only what it sent because we asked for usage is taken out."""

    __slots__ = ("_failed", "_hides_usage")

    def __init__(self, request: ChatRequest) -> None:
        self._hides_usage = not request.wants_stream_usage
        self._failed = False

    def encode(self, events: list[StreamEvent]) -> bytes:
        if len(events) == 1 and not (events[0].is_terminal or events[0].is_usage_only):
            return events[0].raw
        hides = self._hides_usage
        return b"".join(
            [
                event.raw
                for event in events
                if not event.is_terminal and not (hides and event.is_usage_only)
            ]
        )

    def finish(self, comment: str) -> bytes:
        return b"" if self._failed else sse.comment(comment) + DONE

    def fail(self, error: GatewrightError, request_id: str) -> bytes:
        self._failed = True
        return failure(error, request_id)

    def ping(self) -> bytes:
        return PING


def failure(error: GatewrightError, request_id: str) -> bytes:
    """Chat completions have no error event; official clients raise on a chunk with `error`."""
    return b"data: " + encode_error(error, request_id)[1] + b"\n\n"


class ChatStreamEncoder:
    """Another dialect's events as chunks: role, content, finish, usage, `[DONE]`."""

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._model = request.model
        self._head = b""
        self._usage: Usage | None = None
        self._length_bytes = 0
        self._failed = False

    def encode(self, events: list[StreamEvent]) -> bytes:
        return b"".join([self._delta(delta) for event in events for delta in event.deltas])

    def _delta(self, delta: Delta) -> bytes:
        kind = delta.kind
        if kind == "text":
            self._length_bytes += len(delta.text)
            return self._chunk(b'{"content":' + _encode(delta.text) + b"}")
        if kind == "tool_arguments":
            self._length_bytes += len(delta.text)
            return self._chunk(
                b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}'
                % (delta.index, _encode(delta.text))
            )
        return self._rare(delta)

    def _rare(self, delta: Delta) -> bytes:
        if delta.kind == "start":
            return self._start(delta)
        if delta.kind == "tool_start":
            return self._chunk(
                b'{"tool_calls":[{"index":%d,"id":%b,"type":"function",'
                b'"function":{"name":%b,"arguments":""}}]}'
                % (delta.index, _encode(delta.tool_id), _encode(delta.name))
            )
        if delta.kind == "thinking" and delta.text:
            self._length_bytes += len(delta.text)
            return self._chunk(b'{"reasoning_content":' + _encode(delta.text) + b"}")
        if delta.kind == "refusal":
            return self._chunk(b'{"refusal":' + _encode(delta.text) + b"}")
        if delta.kind == "stop":
            reason = FINISH_REASONS.get(delta.stop_reason, "stop")
            return self._chunk(b"{}", _encode(reason))
        if delta.kind == "usage":
            self._usage = delta.usage
        return b""

    def _start(self, delta: Delta) -> bytes:
        identity = message_id("chatcmpl-", delta.message_id, self._request.request_id.encode())
        self._model = delta.model or self._model
        self._head = (
            b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":'
            % (_encode(identity), CREATED, _encode(self._model))
        )
        return self._chunk(b'{"role":"assistant","content":"","refusal":null}')

    def _chunk(self, piece: bytes, finish: bytes = b"null") -> bytes:
        if not self._head:
            return self._start(Delta("start")) + self._chunk(piece, finish)
        head = self._head
        return b'%b[{"index":0,"delta":%b,"finish_reason":%b}]}\n\n' % (head, piece, finish)

    def finish(self, comment: str) -> bytes:
        if self._failed:
            return b""
        ending = sse.comment(comment) + DONE
        if not self._request.wants_stream_usage:
            return ending
        start = b"" if self._head else self._start(Delta("start"))
        usage = self._usage or Usage(
            input_tokens=self._request.input_tokens_estimate,
            output_tokens=estimate_output_tokens(self._length_bytes),
            estimated=True,
        )
        counted = b'%b[],"usage":%b}\n\n' % (self._head, _encode(encode_usage(usage)))
        return start + counted + ending

    def fail(self, error: GatewrightError, request_id: str) -> bytes:
        self._failed = True
        return failure(error, request_id)

    def ping(self) -> bytes:
        return PING
