"""Events → a stream of response events."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from gateway.dialects import body, sse
from gateway.dialects.openai_responses import built_in
from gateway.dialects.openai_responses.errors import error_event, response_error
from gateway.dialects.openai_responses.reply import (
    call_item,
    counted,
    encode_usage,
    ended,
    item_id,
    message_item,
    own_fields,
    reasoning_item,
    response_object,
    text_part,
)
from gateway.dialects.openai_responses.tools import Called, called_there
from gateway.dialects.text_tools import text_of
from gateway.errors import GatewrightError
from gateway.types import EVENT_END, ChatRequest, Delta, StreamEvent, Usage


PING = b": ping\n\n"

_encode = msgspec.json.encode
_EVENT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class ResponsePassThrough:
    """The upstream's own bytes, with our id in every event that holds the whole response."""

    __slots__ = ("_ended", "_failed", "_own", "_request", "_sequence", "response")
    is_cut_on_failure = False

    def __init__(self, request: ChatRequest) -> None:
        self._request = request
        self._own = own_fields(request)
        self._ended = b""
        self._failed = False
        self._sequence = 0
        self.response = b""

    def encode(self, events: list[StreamEvent]) -> bytes:
        if len(events) == 1 and events[0].has_content:
            self._sequence += 1
            return events[0].raw
        pieces: list[bytes] = []
        for event in events:
            self._sequence += 1
            if event.is_terminal:
                self._ended = event.raw
            elif b'"response":' in event.raw and not event.has_content:
                pieces.append(self._patched(event.raw, self._own)[0])
            else:
                pieces.append(event.raw)
        return b"".join(pieces)

    def _patched(self, raw: bytes, changes: dict[str, bytes | None]) -> tuple[bytes, bytes]:
        """The event with the response in it changed, and that response."""
        (event,) = sse.Splitter().feed(raw)
        fields: dict[str, Any] = dict(_EVENT.decode(event.data or b"{}"))
        whole = bytes(fields.get("response", b""))
        if not whole.startswith(b"{"):
            # Something in it has that name: an attribute of a file, a field of a tool's schema.
            return raw, b""
        response = body.patch(whole, changes)
        fields["response"] = response
        return b"event: %b\ndata: %b\n\n" % (event.name, body.join(fields)), response

    def finish(self, comment: str, usage: Usage) -> bytes:
        if self._failed:
            return b""
        changes = dict(self._own)
        if usage.estimated:
            changes["usage"] = _encode(encode_usage(usage))
        ending, self.response = self._patched(self._ended, changes)
        return sse.comment(comment) + ending

    def fail(self, error: GatewrightError, request_id: str) -> bytes:
        del request_id
        self._failed = True
        return error_event(error, self._sequence)

    def plain(self, push: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
        def pushed(raw: bytes) -> bool:
            self._sequence += raw.count(EVENT_END)
            return push(raw)

        return pushed

    def ping(self) -> bytes:
        return PING


class _Open(Struct):
    """An output item that is being made."""

    index: int
    kind: str
    said: list[str] = []
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
        """Text, refusal or thinking under way; closed by whatever comes after it."""
        self._calls: dict[int, _Open] = {}
        self._texts: dict[int, _Open] = {}
        """Calls that are a text there, too: by numbers of their own."""
        self._output: dict[int, dict[str, object]] = {}
        self._count = 0
        self._stop = "end"
        self._refused = False
        self.response = b""

    def encode(self, events: list[StreamEvent]) -> bytes:
        return b"".join([self._delta(delta) for event in events for delta in event.deltas])

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
        return opening + _PIECES[kind] % (
            self._sequence,
            _encode(self._id(item)),
            item.index,
            _encode(text),
        )

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
        part = text_part(item.text)
        done = "response.output_text.done"
        said: dict[str, object] = {"text": item.text, "logprobs": []}
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
            # What it does has to be known for the first word about it.
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
            # What it says here stands in JSON there, and is known when that is whole.
            return b""
        self._sequence += 1
        return _PIECES["call"] % (
            self._sequence,
            _encode(self._id(item)),
            item.index,
            _encode(delta.text),
        )

    def _text_called(self, delta: Delta) -> bytes:
        """A call that is a text there, too, is told as it comes to who brought such a tool."""
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
        """A call of a built-in tool; of a shell's, each command is told by itself."""
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
        """Close what is open, item by item, then the whole response with its true usage."""
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


def _piece(kind: str, place: str, more: str = "") -> bytes:
    return (
        f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":%d,"item_id":%b,'
        f'"output_index":%d,{place}"delta":%b{more}}}\n\n'
    ).encode()


_PIECES = {
    "text": _piece("response.output_text.delta", '"content_index":0,', ',"logprobs":[]'),
    "refusal": _piece("response.refusal.delta", '"content_index":0,'),
    "thinking": _piece("response.reasoning_summary_text.delta", '"summary_index":0,'),
    "call": _piece("response.function_call_arguments.delta", ""),
}
