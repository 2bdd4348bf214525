"""Writes a stream of chat completion chunks."""

from collections.abc import Callable

import msgspec

from gateway.conversation import PART_SEAM
from gateway.dialects import sse
from gateway.dialects.bodies import body
from gateway.dialects.fitting.naming import made_at, message_id
from gateway.dialects.fitting.text_tools import text_of
from gateway.dialects.openai_chat.reply import (
    encode_usage,
    finish_reason,
    thinking_block,
    told_tier,
)
from gateway.dialects.openai_chat.tools import told_calls
from gateway.dialects.openai_errors import encode_error
from gateway.dialects.token_odds import Token, in_end, in_piece, whole
from gateway.errors import GatewrightError
from gateway.types import ChatRequest, Delta, StreamEvent, Usage


DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"

_encode = msgspec.json.encode


class ChatPassThrough:
    """The upstream's own bytes, without what it sent only because we asked for usage.

    The chunk that says why the answer stopped waits for the terminal event: a caller must not
    mistake a broken answer for a complete one.
    """

    __slots__ = ("_failed", "_first", "_held", "_hides_usage", "_holds", "_kind")
    response = b""
    is_cut_on_failure = True

    def __init__(self, request: ChatRequest, kind: bytes = b"chat.completion.chunk") -> None:
        """`kind` is the `object` of such a chunk."""
        self._kind = kind
        self._hides_usage = not request.wants_stream_usage
        # With several choices, one may stop long before the others.
        self._holds = request.prompts == 1 and request.tree.get("n") in {None, 1}
        self._held: list[bytes] = []
        self._first = b""
        self._failed = False

    def encode(self, events: list[StreamEvent]) -> bytes:
        if not self._first:
            # Servers that keep a connection awake begin with a comment.
            self._first = next((event.raw for event in events if event.deltas), b"")
        if len(events) == 1 and not self._held:
            event = events[0]
            if event.has_content and not event.is_closing:
                return event.raw
        pieces: list[bytes] = []
        for event in events:
            if event.is_terminal or (self._hides_usage and event.is_usage_only):
                continue
            if self._held or (event.is_closing and self._holds):
                self._held.append(event.raw)
            else:
                pieces.append(event.raw)
        return b"".join(pieces)

    def finish(self, comment: str, usage: Usage) -> bytes:
        if self._failed:
            return b""
        told = b"" if self._hides_usage or not usage.estimated else self._usage_chunk(usage)
        return b"".join(self._held) + told + sse.comment(comment) + DONE

    def _usage_chunk(self, usage: Usage) -> bytes:
        """The usage chunk, if the upstream left it out although it was asked for."""
        head = _head_of(self._first, self._kind)
        counted = _encode(encode_usage(usage))
        return b"data: " + body.patch(head, {"choices": b"[]", "usage": counted}) + b"\n\n"

    def fail(self, error: GatewrightError, request_id: str) -> bytes:
        self._failed = True
        return failure(error, request_id)

    def plain(self, push: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
        return push

    def ping(self) -> bytes:
        return PING


def _head_of(first: bytes, kind: bytes) -> bytes:
    """The JSON object of a stream's first chunk; a new one of this kind if that cannot be read."""
    data = first.removeprefix(b"data: ").rstrip()
    try:
        body.split(data)
    except msgspec.DecodeError:
        return b'{"object":"%b"}' % kind
    return data


def failure(error: GatewrightError, request_id: str) -> bytes:
    """Chat completions have no error event; official clients raise on a chunk with `error`."""
    return b"data: " + encode_error(error, request_id)[1] + b"\n\n"


class ChatStreamEncoder:
    """Another dialect's events as chunks: role, content, finish, usage, `[DONE]`."""

    response = b""
    is_cut_on_failure = True

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._model = request.model
        self._told = told_calls(request.tree)
        self._is_plain = not self._told.texts and not self._told.is_older
        """Whether all callable tools are functions, each identified by its number."""
        self._numbers: dict[int, int] = {}
        """Calls of functions there → their number here, if there are other kinds of tools."""
        self._texts: dict[int, list[str]] = {}
        """Calls with text here and arguments there; the text is known once these are complete."""
        self._text_places: dict[int, int] = {}
        """Calls that have text there, too → their number here."""
        self._head = b""
        self._thinking: list[str] = []
        self._blocks_count = 0
        self._bare: dict[int, None] = {}
        """Calls without arguments so far, in order."""
        self._stopped = b""
        """The chunk with the finish reason, held back until the answer is known to be complete."""
        self._failed = False
        self._tells_odds = bool(request.tree.get("logprobs"))
        self._has_told_odds = False

    def encode(self, events: list[StreamEvent]) -> bytes:
        if self._tells_odds:
            return b"".join([self._likely(event) for event in events])
        return b"".join([self._delta(delta) for event in events for delta in event.deltas])

    def _likely(self, event: StreamEvent) -> bytes:
        """An event with the probabilities of its tokens, sent with the first of them.

        If no piece came with any, they are sent when everything is repeated, or not at all.
        """
        tokens = in_piece(event.raw)
        pieces: list[bytes] = []
        if event.is_terminal and not self._has_told_odds and (late := in_end(event.raw)):
            pieces.append(self._with_odds("", late))
        for delta in event.deltas:
            if tokens and delta.kind == "text":
                pieces.append(self._with_odds(delta.text, tokens))
                tokens = []
            else:
                pieces.append(self._delta(delta))
        return b"".join(pieces)

    def _with_odds(self, text: str, tokens: list[Token]) -> bytes:
        self._has_told_odds = True
        told = b',"logprobs":' + _encode({"content": whole(tokens), "refusal": None})
        return self._chunk(b'{"content":' + _encode(text) + b"}", more=told)

    def _delta(self, delta: Delta) -> bytes:
        kind = delta.kind
        if kind == "text":
            return self._chunk(b'{"content":' + _encode(delta.text) + b"}")
        if kind == "tool_arguments":
            self._bare.pop(delta.index, None)
            if self._is_plain:
                return self._argued(delta.index, delta.text)
            return self._argued_rarely(delta.index, delta.text)
        return self._rare(delta)

    def _argued(self, index: int, arguments: str) -> bytes:
        piece = b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}'
        return self._chunk(piece % (index, _encode(arguments)))

    def _argued_rarely(self, index: int, arguments: str) -> bytes:
        if index in self._texts:
            self._texts[index].append(arguments)
            return b""
        number = self._numbers.get(index, index)
        if not self._told.is_older:
            return self._argued(number, arguments)
        # One function is called at a time, so there is only one call.
        piece = b'{"function_call":{"arguments":%b}}' % _encode(arguments)
        return b"" if number else self._chunk(piece)

    def _called(self, delta: Delta) -> bytes:
        self._bare[delta.index] = None
        number = delta.index
        if not self._is_plain:
            number = self._numbers[delta.index] = len(self._numbers) + len(self._text_places)
        if delta.name in self._told.texts:
            self._texts[delta.index] = []
            return self._text_called(delta, number)
        name = _encode(self._told.names.get(delta.name, delta.name))
        if self._told.is_older:
            piece = b'{"function_call":{"name":%b,"arguments":""}}' % name
            return b"" if number else self._chunk(piece)
        return self._chunk(
            b'{"tool_calls":[{"index":%d,"id":%b,"type":"function",'
            b'"function":{"name":%b,"arguments":""}}]}' % (number, _encode(delta.tool_id), name)
        )

    def _text_called(self, delta: Delta, index: int) -> bytes:
        name = self._told.texts.get(delta.name, delta.name)
        return self._chunk(
            b'{"tool_calls":[{"index":%d,"id":%b,"type":"custom",'
            b'"custom":{"name":%b,"input":""}}]}' % (index, _encode(delta.tool_id), _encode(name))
        )

    def _text_goes_on(self, index: int, text: str) -> bytes:
        piece = b'{"tool_calls":[{"index":%d,"custom":{"input":%b}}]}'
        return self._chunk(piece % (index, _encode(text))) if text else b""

    def _calls_end(self) -> bytes:
        """A call of a tool without parameters gets an empty object, as in a complete answer."""
        pieces = [
            self._text_goes_on(self._numbers[index], text_of("".join(said)))
            for index, said in self._texts.items()
        ]
        pieces += [
            self._argued_rarely(index, "{}") for index in self._bare if index not in self._texts
        ]
        self._texts, self._bare = {}, {}
        return b"".join(pieces)

    def _rare(self, delta: Delta) -> bytes:
        if delta.kind == "start":
            return self._start(delta)
        if delta.kind == "thinking":
            return self._thought(delta)
        if delta.kind == "part":
            return self._thought(Delta("thinking", PART_SEAM))
        if delta.kind == "refusal":
            return self._chunk(b'{"refusal":' + _encode(delta.text) + b"}")
        if delta.kind == "stop":
            start = b"" if self._head else self._start(Delta("start"))
            ended = self._calls_end()
            reason = finish_reason(delta.stop_reason, self._told, is_called=bool(self._text_places))
            self._stopped = self._chunk(b"{}", _encode(reason))
            return start + ended
        return self._call(delta)

    def _call(self, delta: Delta) -> bytes:
        if delta.kind == "tool_start":
            return self._called(delta)
        if delta.kind == "text_tool_start" and delta.name in self._told.texts:
            number = len(self._numbers) + len(self._text_places)
            self._text_places[delta.index] = number
            return self._text_called(delta, number)
        if delta.kind == "opaque" and delta.index in self._text_places:
            return self._text_goes_on(self._text_places[delta.index], delta.text)
        return b""

    def _thought(self, delta: Delta) -> bytes:
        """Thinking as text, and when signed, as the block that must be sent back unchanged."""
        if delta.text:
            self._thinking.append(delta.text)
            return self._chunk(b'{"reasoning_content":' + _encode(delta.text) + b"}")
        if not delta.signature and not delta.redacted:
            return b""
        thought = "" if delta.redacted else "".join(self._thinking)
        block = thinking_block(
            Delta("thinking", thought, signature=delta.signature, redacted=delta.redacted)
        )
        if delta.signature:
            self._thinking = []
        # Official clients join lists by their entries' numbers, and fail without one.
        numbered = {"index": self._blocks_count} | block
        self._blocks_count += 1
        return self._chunk(b'{"thinking_blocks":[%b]}' % _encode(numbered))

    def _start(self, delta: Delta) -> bytes:
        identity = message_id("chatcmpl-", delta.message_id, self._request.request_id.encode())
        self._model = delta.model or self._model
        self._head = (
            b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":'
            % (_encode(identity), made_at(self._request.request_id), _encode(self._model))
        )
        return self._chunk(b'{"role":"assistant","content":"","refusal":null}')

    def _chunk(self, piece: bytes, finish: bytes = b"null", more: bytes = b"") -> bytes:
        if not self._head:
            return self._start(Delta("start")) + self._chunk(piece, finish, more)
        told = (self._head, piece, more, finish)
        return b'%b[{"index":0,"delta":%b%b,"finish_reason":%b}]}\n\n' % told

    def finish(self, comment: str, usage: Usage) -> bytes:
        if self._failed:
            return b""
        start = b"" if self._head else self._start(Delta("start"))
        counted = b""
        if self._request.wants_stream_usage:
            tier = told_tier(usage)
            served = b',"service_tier":%b' % _encode(tier) if tier else b""
            told = _encode(encode_usage(usage))
            counted = b'%b[]%b,"usage":%b}\n\n' % (self._head, served, told)
        return start + self._calls_end() + self._stopped + counted + sse.comment(comment) + DONE

    def fail(self, error: GatewrightError, request_id: str) -> bytes:
        self._failed = True
        return failure(error, request_id)

    def plain(self, _: Callable[[bytes], bool]) -> None:
        """None: each event is written anew."""

    def ping(self) -> bytes:
        return PING
