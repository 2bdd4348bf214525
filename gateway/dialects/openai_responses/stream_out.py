"""Writes a stream of response events."""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from gateway.dialects import sse
from gateway.dialects.fitting.text_tools import text_of
from gateway.dialects.openai_responses import built_in
from gateway.dialects.openai_responses.errors import error_event, response_error
from gateway.dialects.openai_responses.pass_through import PING
from gateway.dialects.openai_responses.pieces import PIECES
from gateway.dialects.openai_responses.reply import (
    call_item,
    counted,
    ended,
    item_id,
    message_item,
    reasoning_item,
    response_object,
    text_part,
)
from gateway.dialects.openai_responses.tools import Called, called_there
from gateway.dialects.token_odds import Token, asks_odds, in_chunk, in_pieces
from gateway.errors import GatewrightError
from gateway.types import ChatRequest, Delta, StreamEvent, Usage


_encode = msgspec.json.encode


class _Open(Struct):
    """An output item that is being made."""

    index: int
    kind: str
    said: list[str] = []
    tokens: list[Token] = []
    tool_id: str = ""
    called: Called = Called("")

    @property
    def text(self) -> str:
        return "".join(self.said)


class ResponseStreamEncoder:
    """Another dialect's events as a response: items in order, each opened, filled and closed."""

    is_cut_on_failure = False

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._names = called_there(request.tree)
        self._model = ""
        self._sequence = -1
        self._failed = False
        self._open: _Open | None = None
        """The text, refusal or thinking being written; closed by whatever follows it."""
        self._calls: dict[int, _Open] = {}
        self._texts: dict[int, _Open] = {}
        """Calls that have text there, too, by their own numbers."""
        self._output: dict[int, dict[str, object]] = {}
        self._count = 0
        self._stop = "end"
        self._refused = False
        self._tells_odds = asks_odds(request.tree)
        self._tokens: list[Token] = []
        """Tokens of the current event: they go with its first words."""
        self.response = b""

    def encode(self, events: list[StreamEvent]) -> bytes:
        if self._tells_odds:
            return b"".join([self._likely(event) for event in events])
        return b"".join([self._delta(delta) for event in events for delta in event.deltas])

    def _likely(self, event: StreamEvent) -> bytes:
        self._tokens = in_chunk(event.raw)
        return b"".join([self._delta(delta) for delta in event.deltas])

    def _delta(self, delta: Delta) -> bytes:
        kind = delta.kind
        if kind == "text":
            return self._said("text", delta.text)
        if kind == "tool_arguments":
            return self._argued(delta)
        if kind == "start":
            self._model = delta.model
            return self._begin()
        if kind == "stop":
            self._stop = delta.stop_reason
            return b""
        return self._begin() + self._rare(delta)

    def _rare(self, delta: Delta) -> bytes:
        if delta.kind == "tool_start":
            return self._call(delta, self._calls)
        if delta.kind in {"text_tool_start", "opaque"}:
            return self._text_called(delta)
        if delta.kind == "refusal":
            self._refused = True
            return self._said("refusal", delta.text)
        if delta.kind == "thinking":
            if delta.text:
                return self._said("thinking", delta.text)
            if delta.signature or delta.redacted:
                return self._sealed(delta)
        return b""

    def _begin(self) -> bytes:
        if self._sequence >= 0:
            return b""
        response = response_object(self._request, self._model, None)
        return b"".join(
            self._event(name, {"response": response})
            for name in ("response.created", "response.in_progress")
        )

    def _event(self, kind: str, fields: dict[str, object]) -> bytes:
        self._sequence += 1
        data = {"type": kind, "sequence_number": self._sequence} | fields
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode(data))

    def _next(self, kind: str) -> _Open:
        opened = _Open(self._count, kind)
        self._count += 1
        return opened

    def _said(self, kind: str, text: str) -> bytes:
        opening = b""
        item = self._open
        if item is None or item.kind != kind:
            opening = self._begin() + self._close(item)
            self._open = item = self._next(kind)
            opening += self._opened(item)
        item.said.append(text)
        self._sequence += 1
        piece = (self._sequence, _encode(self._id(item)), item.index, _encode(text))
        if self._tokens and kind == "text":
            tokens, self._tokens = self._tokens, []
            item.tokens += tokens
            return opening + PIECES["likely"] % (*piece, _encode(in_pieces(tokens)))
        return opening + PIECES[kind] % piece

    def _id(self, item: _Open) -> str:
        return item_id(self._request, _PREFIXES[item.kind], item.index)

    def _opened(self, item: _Open) -> bytes:
        place = {"output_index": item.index}
        inside = {"item_id": self._id(item), **place}
        if item.kind == "thinking":
            added = reasoning_item(self._request, item.index, Delta("thinking"))
            part = {"summary_index": 0, "part": {"type": "summary_text", "text": ""}}
            return self._event(
                "response.output_item.added", {**place, "item": added}
            ) + self._event("response.reasoning_summary_part.added", inside | part)
        added = message_item(self._request, item.index, [], "in_progress")
        empty = text_part("") if item.kind == "text" else {"type": "refusal", "refusal": ""}
        return self._event("response.output_item.added", {**place, "item": added}) + self._event(
            "response.content_part.added", inside | {"content_index": 0, "part": empty}
        )

    def _close(self, item: _Open | None, sealed: Delta | None = None) -> bytes:
        if item is None:
            return b""
        self._open = None
        inside: dict[str, object] = {"item_id": self._id(item), "output_index": item.index}
        if item.kind == "thinking":
            return self._close_thinking(item, inside, sealed or Delta("thinking"))
        if item.kind in _CLOSING_CALLS:
            return self._close_call(item, inside)
        inside |= {"content_index": 0}
        part = text_part(item.text, item.tokens)
        done = "response.output_text.done"
        said: dict[str, object] = {"text": item.text, "logprobs": in_pieces(item.tokens)}
        if item.kind == "refusal":
            part, done = {"type": "refusal", "refusal": item.text}, "response.refusal.done"
            said = {"refusal": item.text}
        return (
            self._event(done, inside | said)
            + self._event("response.content_part.done", inside | {"part": part})
            + self._item_done(item, message_item(self._request, item.index, [part]))
        )

    def _close_thinking(self, item: _Open, inside: dict[str, object], sealed: Delta) -> bytes:
        thought = Delta("thinking", item.text, signature=sealed.signature, redacted=sealed.redacted)
        inside |= {"summary_index": 0}
        part = {"part": {"type": "summary_text", "text": item.text}}
        return (
            self._event("response.reasoning_summary_text.done", inside | {"text": item.text})
            + self._event("response.reasoning_summary_part.done", inside | part)
            + self._item_done(item, reasoning_item(self._request, item.index, thought))
        )

    def _sealed(self, delta: Delta) -> bytes:
        """A signature closes the thinking before it; a redacted block is an item of its own."""
        opening = b""
        item = self._open
        if item is None or item.kind != "thinking" or delta.redacted:
            opening = self._close(item)
            item = self._next("thinking")
            opening += self._opened(item)
        return opening + self._close(item, delta)

    def _call(self, delta: Delta, calls: dict[int, _Open]) -> bytes:
        opening = self._close(self._open)
        tool = self._names.get(delta.name) or Called(delta.name)
        item = self._next("call" if tool.kind == "function" else tool.kind)
        item.tool_id, item.called = delta.tool_id, tool
        calls[delta.index] = item
        if tool.is_built_in:
            # Nothing of the call can be sent before its action is known.
            return opening
        called = (item.tool_id, tool)
        added = call_item(self._request, item.index, called, "", "in_progress")
        return opening + self._event(
            "response.output_item.added", {"output_index": item.index, "item": added}
        )

    def _argued(self, delta: Delta) -> bytes:
        item = self._calls.get(delta.index)
        if item is None:
            return b""
        item.said.append(delta.text)
        if item.kind != "call":
            # The text is inside JSON there, and is known once that is complete.
            return b""
        self._sequence += 1
        return PIECES["call"] % (
            self._sequence,
            _encode(self._id(item)),
            item.index,
            _encode(delta.text),
        )

    def _text_called(self, delta: Delta) -> bytes:
        """A call that has text there, too, is streamed to a caller who brought such a tool."""
        if delta.kind == "text_tool_start":
            called = self._names.get(delta.name)
            is_known = called is not None and called.is_custom
            return self._call(delta, self._texts) if is_known else b""
        item = self._texts.get(delta.index)
        if item is None or not delta.text:
            return b""
        item.said.append(delta.text)
        place = {"item_id": self._id(item), "output_index": item.index}
        return self._event(f"{_TEXT_OF_CALL}.delta", place | {"delta": delta.text})

    def _close_call(self, item: _Open, inside: dict[str, object]) -> bytes:
        arguments = item.text or "{}"
        whole = call_item(self._request, item.index, (item.tool_id, item.called), arguments)
        if item.called.is_built_in:
            return self._whole_call(item, whole)
        if item.kind == "custom":
            is_told = item in self._texts.values()
            text = item.text if is_told else text_of(arguments)
            whole["input"] = text
            done = b""
            if not is_told:
                done = self._event(f"{_TEXT_OF_CALL}.delta", inside | {"delta": text})
            done += self._event(f"{_TEXT_OF_CALL}.done", inside | {"input": text})
            return done + self._item_done(item, whole)
        said = {"arguments": arguments, "name": item.called.name}
        done = self._event("response.function_call_arguments.done", inside | said)
        return done + self._item_done(item, whole)

    def _whole_call(self, item: _Open, whole: dict[str, object]) -> bytes:
        """A call of a built-in tool; for a shell, each command is sent by itself."""
        place: dict[str, object] = {"output_index": item.index}
        added = {**place, "item": built_in.begun(item.kind, whole)}
        pieces = [self._event("response.output_item.added", added)]
        for number, command in enumerate(built_in.commands_of(item.kind, whole)):
            where = {**place, "command_index": number}
            told = (("added", "command", ""), ("delta", "delta", command))
            for what, field, text in (*told, ("done", "command", command)):
                pieces.append(self._event(f"{_COMMAND}.{what}", {**where, field: text}))
        return b"".join(pieces) + self._item_done(item, whole)

    def _item_done(self, item: _Open, whole: dict[str, object]) -> bytes:
        self._output[item.index] = whole
        return self._event("response.output_item.done", {"output_index": item.index, "item": whole})

    def finish(self, comment: str, usage: Usage) -> bytes:
        """Close what is open, item by item, then send the complete response with its true usage."""
        if self._failed:
            return b""
        pieces = [self._begin(), self._close(self._open)]
        called = (*self._calls.values(), *self._texts.values())
        pieces += [self._close(item) for item in sorted(called, key=lambda item: item.index)]
        stop = ended(self._stop, is_refused=self._refused)
        response = response_object(self._request, self._model, stop)
        response["output"] = [self._output[index] for index in sorted(self._output)]
        response |= counted(usage)
        self.response = _encode(response)
        kind = f"response.{response['status']}"
        pieces += (sse.comment(comment), self._event(kind, {"response": response}))
        return b"".join(pieces)

    def fail(self, error: GatewrightError, request_id: str) -> bytes:
        del request_id
        self._failed = True
        if self._sequence < 0:
            return error_event(error, 0)
        response = response_object(self._request, self._model, None)
        response |= {"status": "failed", "error": response_error(error)}
        return self._event("response.failed", {"response": response})

    def plain(self, _: Callable[[bytes], bool]) -> None:
        """None: each event is written anew."""

    def ping(self) -> bytes:
        return PING


_PREFIXES = {
    "text": "msg",
    "refusal": "msg",
    "thinking": "rs",
    "call": "fc",
    "custom": "ctc",
    **built_in.PREFIXES,
}
_CLOSING_CALLS = frozenset({"call", "custom", *built_in.KINDS})
_COMMAND = "response.shell_call_command"
_TEXT_OF_CALL = "response.custom_tool_call_input"
