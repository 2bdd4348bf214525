"""Passes a stream of response events on to a caller of the same dialect."""

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.dialects import sse
from gateway.dialects.bodies import body
from gateway.dialects.openai_responses.errors import error_event
from gateway.dialects.openai_responses.reply import encode_usage, own_fields, status_at_end
from gateway.errors import GatewrightError
from gateway.types import EVENT_END, ChatRequest, StreamEvent, Usage


PING = b": ping\n\n"

_encode = msgspec.json.encode
_EVENT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class ResponsePassThrough:
    """The upstream's own bytes, with our id in every event that holds the complete response."""

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

    def _patched(
        self, raw: bytes, changes: dict[str, bytes | None], *, is_end: bool = False
    ) -> tuple[bytes, bytes]:
        """The event with its response changed, and that response."""
        (event,) = sse.Splitter().feed(raw)
        fields: dict[str, Any] = dict(_EVENT.decode(event.data or b"{}"))
        whole = bytes(fields.get("response", b""))
        if not whole.startswith(b"{"):
            # Something else has that name: an attribute of a file, a field of a tool's schema.
            return raw, b""
        if is_end:
            is_cut = bytes(fields["type"]) == b'"response.incomplete"'
            changes = {**changes, "status": status_at_end(whole, is_cut=is_cut)}
        response = body.patch(whole, changes)
        fields["response"] = response
        return b"event: %b\ndata: %b\n\n" % (event.name, body.join(fields)), response

    def finish(self, comment: str, usage: Usage) -> bytes:
        if self._failed:
            return b""
        changes = dict(self._own)
        if usage.estimated:
            changes["usage"] = _encode(encode_usage(usage))
        ending, self.response = self._patched(self._ended, changes, is_end=True)
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
