"""A background answer as its callers read it until it is complete. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from gateway.dialects import sse
from gateway.dialects.bodies import body
from gateway.dialects.openai_responses.errors import response_error
from gateway.dialects.openai_responses.reply import response_object
from gateway.errors import GatewrightError
from gateway.types import ChatRequest


UNENDED: Final = frozenset({"queued", "in_progress"})
_ENDINGS: Final[Mapping[str, str]] = {
    "completed": "response.completed",
    "incomplete": "response.incomplete",
}
_FAILED: Final = "response.failed"
_ERROR: Final = "error"
_OPENING: Final = ("response.created", "response.queued")
_STARTED: Final = "response.in_progress"
_SAID_HERE: Final = frozenset({*_OPENING, _STARTED, *_ENDINGS.values()})
_CODES: Final = frozenset(
    {"server_error", "rate_limit_exceeded", "invalid_prompt", "context_length_exceeded"}
)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.encode


class _Failure(Struct):
    code: str | None = None
    message: str | None = None


class _Failed(Struct):
    error: _Failure | None = None


class _Told(Struct):
    """An event in which a stream reports that it broke."""

    type: str
    code: str | None = None
    message: str | None = None
    response: _Failed | None = None


class _Standing(Struct):
    """If an answer was not made in the background, an upstream may have said anything here."""

    status: object = ""
    background: object = None


_TOLD: Final = msgspec.json.Decoder(_Told)
_STANDING: Final = msgspec.json.Decoder(_Standing)


def queued(request: ChatRequest) -> bytes:
    """The response to a request that was accepted, before anything was sent."""
    return _encode({**response_object(request, "", None), "status": "queued"})


def status_of(response: bytes) -> str:
    """The status that a response states."""
    status = _STANDING.decode(response).status
    return status if isinstance(status, str) else ""


def is_apart(response: bytes) -> bool:
    """Whether it is, or was, made in the background."""
    return _STANDING.decode(response).background is True


def with_status(response: bytes, status: str) -> bytes:
    return body.patch(response, {"status": _encode(status)})


def failed(response: bytes, error: GatewrightError) -> bytes:
    """The response if no answer was made; it contains nothing of a partial answer."""
    return body.patch(response, {"status": b'"failed"', "error": _encode(response_error(error))})


def failed_there(response: bytes, told: bytes) -> bytes:
    """The same if a stream reported why, with the event in which it did."""
    return body.patch(response, {"status": b'"failed"', "error": _encode(_said(told))})


def _said(told: bytes) -> dict[str, object]:
    event = _TOLD.decode(told)
    error = event.response.error if event.response is not None else None
    error = error or _Failure(event.code, event.message)
    code = error.code if error.code in _CODES else "server_error"
    return {"code": code, "message": error.message or ""}


class Numbering:
    """Numbers the events of an answer anew, from the first to the one that ends it.

    The stream's own first and last events are left out: the first are known before it, and the last
    are made from what is kept.
    """

    def __init__(self) -> None:
        self._splitter = sse.OwnSplitter()
        self.next = 0
        """The number of the next event."""
        self.failure = b""
        """The event in which the stream reported that it broke; empty if it did not."""

    def opening(self, response: bytes) -> bytes:
        """The events of an answer that was accepted."""
        whole = msgspec.Raw(response)
        return b"".join(self._numbered(kind, {"response": whole}) for kind in _OPENING)

    def started(self, response: bytes) -> bytes:
        """The event of an answer that is now being made."""
        whole = msgspec.Raw(with_status(response, "in_progress"))
        return self._numbered(_STARTED, {"response": whole})

    def numbered(self, data: bytes) -> bytes:
        """Events as they are kept, without comments."""
        pieces = []
        for event in self._splitter.feed(data):
            if event.data is None:
                continue
            fields = _FIELDS.decode(event.data)
            kind = msgspec.json.decode(fields.get("type", b'""'), type=str)
            if kind in (_FAILED, _ERROR):
                self.failure = event.data
            elif kind not in _SAID_HERE:
                pieces.append(self._numbered(kind, fields))
        return b"".join(pieces)

    def _numbered(self, kind: str, fields: Mapping[str, msgspec.Raw]) -> bytes:
        number, self.next = self.next, self.next + 1
        return _event(kind, number, fields)


def ending(response: bytes, number: int) -> bytes:
    """The event that ends the stream of an answer, according to how the answer ended."""
    status = status_of(response)
    # The vendor's types have no event for a cancelled one: its clients read that in the response.
    kind = _ENDINGS.get(status, f"response.{status}" if status == "cancelled" else _FAILED)
    return _event(kind, number, {"response": msgspec.Raw(response)})


def _event(kind: str, number: int, fields: Mapping[str, msgspec.Raw]) -> bytes:
    told = {**fields, "type": kind, "sequence_number": number}
    # An upstream may use any event name: a line break in it would start another line of the stream.
    return b"event: %b\ndata: %b\n\n" % (_encode(kind)[1:-1], _encode(told))


def numbers_in(content: bytes) -> list[tuple[int, bytes]]:
    """Kept events, each with its number."""
    events = []
    for raw in content.split(b"\n\n")[:-1]:
        data = raw.partition(b"\ndata: ")[2]
        number = _FIELDS.decode(data)["sequence_number"]
        events.append((msgspec.json.decode(number, type=int), raw + b"\n\n"))
    return events
