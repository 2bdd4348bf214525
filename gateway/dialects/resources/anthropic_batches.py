"""Message batches in Anthropic's format: writes their JSON, and reads their requests. Pure."""

import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway.batches import DAMAGED, UNREADABLE, Batch, EndedLine, Line
from gateway.clock import SECOND_US
from gateway.dialects.bodies.body import one_line
from gateway.dialects.bodies.strict_json import decode_object, invalid
from gateway.errors import RequestInvalid


ENDPOINT: Final = "/v1/messages"
PART_BYTES: Final = 512 * 1024
"""How much is decoded at once: a few milliseconds of work, which no other thread interrupts."""
STOPPED: Final = "The key that made this batch is not valid any more"
LOST: Final = "The gateway cannot read all that it kept of this batch"
NOT_SENT: Final = "the request was not sent."
UNANSWERED: Final = "the request had been tried, a vendor may have had it, and no answer came."
_BLANKS = rb"[ \t\r\n]*"
"""JSON's blanks; `\\s` includes others."""
_HEAD = re.compile(rb'%b\{%b"requests"%b:%b(?=\[)' % ((_BLANKS,) * 4))
_TAIL = re.compile(rb"\]%b\}%b\Z" % ((_BLANKS,) * 2))
_BETWEEN = re.compile(
    rb'\}%b,%b\{(?=%b"(?:custom_id|params)"%b:)' % ((_BLANKS,) * 4),
)
_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FLAW = re.compile(r"\(byte (\d+)\)\Z")
_PLACE = re.compile(r"`\$\[(\d+)\]")
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])
_WHOLE: Final = "The body must be a JSON object of `requests` alone, which is a list."


class _Request(Struct, frozen=True, forbid_unknown_fields=True):
    custom_id: str
    params: msgspec.Raw


class _Shape(Struct, frozen=True, gc=False):
    """The few fields that show that it is a request."""

    custom_id: msgspec.Raw
    params: msgspec.Raw


_REQUEST = msgspec.json.Decoder(_Request)
_SHAPES = msgspec.json.Decoder(list[_Shape])
_NOT_ONE: Final = "A request has a custom_id and params, and nothing else"


def split_requests(body: bytes, most: int) -> list[bytes]:
    """The requests of a batch, each as its own JSON, not decoded yet.

    A tree of all of them would be many times as long as the body, and so would a list of millions
    of numbers: reading stops at the first element that is not a request.

    Raises:
        RequestInvalid: it is not a JSON object with only `requests`, or has too many.
    """
    head = _HEAD.match(body)
    tail = _TAIL.search(body, max(0, len(body.rstrip()) - 1024)) if head is not None else None
    if head is None or tail is None:
        raise RequestInvalid(_WHOLE, parameter="requests")
    raws: list[bytes] = []
    at, end = head.end() + 1, tail.start()
    while at < end or not raws:
        some, at = _next_requests(body, at, end, len(raws))
        raws += some
        if len(raws) > most:
            raise invalid("requests", f"A batch has at most {most} requests")
        if not some:
            raise invalid("requests", "A batch has at least one request")
    return raws


def _next_requests(body: bytes, start: int, end: int, before: int) -> tuple[list[bytes], int]:
    """Requests from `start` on, and where the next begins; `before` were read already.

    A JSON decoder lets no other thread run meanwhile, so it gets a part of the list at a time. A
    part is complete if it can be decoded: JSON is read from its beginning, and a cut that is not
    between two requests ends in the middle of one. If no request fits, the part grows.
    """
    length = PART_BYTES
    while start + length < end:
        *_, last = (None, *_BETWEEN.finditer(body, start, start + length))
        if last is not None:
            with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return _requests_in(body, start, last.start() + 1, before), last.end() - 1
        length *= 2
    return _last_requests(body, start, end, before), end


def _requests_in(body: bytes, start: int, end: int, before: int) -> list[bytes]:
    """Raises RequestInvalid at the first that is no request, msgspec's error if it is no list."""
    listed = b"[%b]" % body[start:end]
    try:
        _SHAPES.decode(listed)
    except msgspec.ValidationError as error:
        if found := _PLACE.search(str(error)):
            raise invalid(f"requests.{before + int(found[1])}", _NOT_ONE) from None
        raise
    return [bytes(raw) for raw in _RAWS.decode(listed)]


def _last_requests(body: bytes, start: int, end: int, before: int) -> list[bytes]:
    try:
        return _requests_in(body, start, end, before)
    except msgspec.DecodeError as error:
        _check_flawed(body, start, end, before, str(error))
    except (UnicodeDecodeError, RecursionError):
        pass
    raise RequestInvalid(_WHOLE, parameter="requests")


def _check_flawed(body: bytes, start: int, end: int, before: int, said: str) -> None:
    """Check the request in which a list stops being JSON, if those before it are valid.

    A request with half a character, as programs that cut texts leave it, should not have to be
    searched for among thousands. Bytes between two requests belong to neither.

    Raises:
        RequestInvalid: it is not a request; with its place.
    """
    found = _FLAW.search(said)  # Where there is none, the list ends too early.
    at = min(end, start + int(found[1]) - 1) if found else end
    *_, last = (None, *_BETWEEN.finditer(body, start, at))
    if last is not None:
        try:
            before += len(_requests_in(body, start, last.start() + 1, before))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        start = last.end() - 1
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        _requests_in(body, start, start + len(body[start:at].rstrip(b", \t\r\n")), before)
        return
    following = _BETWEEN.search(body, at, end)
    _read_request(before + 1, body[start : following.start() + 1 if following else end])


def read_requests(raws: Sequence[tuple[int, bytes]]) -> list[Line]:
    """Numbered requests as lines; raises RequestInvalid at the first that is not a request."""
    return [_read_request(number, raw) for number, raw in raws]


def _read_request(number: int, raw: bytes) -> Line:
    place = f"requests.{number - 1}"
    try:
        decode_object(raw)
        wire = _REQUEST.decode(raw)
    except RequestInvalid as error:
        raise RequestInvalid(f"{place}: {error.message}", parameter=place) from None
    except msgspec.DecodeError:
        raise invalid(place, _NOT_ONE) from None
    if _CUSTOM_ID.fullmatch(wire.custom_id) is None:
        reason = "Expected 1 to 64 letters, digits, dashes and underscores"
        raise invalid(f"{place}.custom_id", reason)
    params = bytes(wire.params)
    if not params.startswith(b"{"):
        raise invalid(f"{place}.params", "Expected an object")
    return Line(number, wire.custom_id, params)


def message_batch_object(batch: Batch, base_url: str) -> dict[str, Any]:
    """`base_url` is where callers reach this gateway; if empty, addresses are relative."""
    counts = batch.counts
    status = "canceling" if batch.state == "cancelling" else "in_progress"
    results = f"{base_url}{ENDPOINT}/batches/{batch.batch_id}/results"
    return {
        "id": batch.batch_id,
        "type": "message_batch",
        "processing_status": "ended" if batch.is_over else status,
        "request_counts": {
            "processing": counts.open,
            "succeeded": counts.succeeded,
            "errored": counts.errored,
            "canceled": counts.canceled,
            "expired": counts.expired,
        },
        "created_at": _time(batch.created_us),
        "expires_at": _time(batch.expires_us),
        "ended_at": _time(batch.ended_us),
        "cancel_initiated_at": _time(batch.cancelling_us),
        "archived_at": None,
        "results_url": results if batch.is_over else None,
    }


def message_list_object(items: Sequence[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    return {
        "data": items,
        "has_more": has_more,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
    }


def message_result_line(batch: Batch, line: EndedLine) -> bytes:
    """A line of a batch's results, with its line feed."""
    wire: dict[str, Any] = {"custom_id": line.custom_id, "result": _result(batch, line)}
    if line.end is not None:
        wire |= line.end.told
    return one_line(msgspec.json.encode(wire)) + b"\n"


def _result(batch: Batch, line: EndedLine) -> dict[str, Any]:
    if line.is_damaged:
        return _UNREADABLE
    if line.end is None:
        if line.state != "errored":
            return {"type": line.state}
        kind, over = _LOST if batch.stopped == DAMAGED else _STOPPED
        return _errored(kind, f"{over}; {UNANSWERED if line.was_tried else NOT_SENT}")
    if line.state == "succeeded":
        return {"type": "succeeded", "message": msgspec.Raw(line.end.body)}
    return {"type": "errored", "error": msgspec.Raw(line.end.body)}


def _errored(kind: str, message: str) -> dict[str, Any]:
    error = {"type": "error", "error": {"type": kind, "message": message}, "request_id": None}
    return {"type": "errored", "error": error}


_STOPPED: Final = ("authentication_error", STOPPED)
_LOST: Final = ("api_error", LOST)
_UNREADABLE: Final = _errored("api_error", UNREADABLE)


def _time(time_us: int) -> str | None:
    """RFC 3339, in UTC; None before that time is known."""
    if not time_us:
        return None
    moment = datetime.fromtimestamp(time_us / SECOND_US, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
