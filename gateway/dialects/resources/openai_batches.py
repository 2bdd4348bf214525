"""Files and batches in OpenAI's format: writes their JSON, and reads a file's lines. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from gateway.batches import (
    CUSTOM_ID_LENGTH_MAX,
    DAMAGED,
    UNREADABLE,
    Batch,
    EndedLine,
    Flaw,
    KeptFile,
    Line,
)
from gateway.clock import SECOND_US
from gateway.dialects.bodies.body import one_line
from gateway.dialects.bodies.strict_json import checked, decode_object, invalid
from gateway.dialects.resources.metadata import check_metadata
from gateway.dialects.resources.openai_batch_sums import usage_object
from gateway.errors import GatewrightError, RequestInvalid


ENDPOINTS: Final = (
    *("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/completions"),
)
COMPLETION_WINDOW: Final = "24h"
METHOD: Final = "POST"
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
STOPPED: Final = "The key that made this batch is not valid any more"
LOST: Final = "The gateway cannot read all that it kept of this batch"
UNSENT: Final[Mapping[str, tuple[str, str]]] = {
    "expired": ("batch_expired", "The batch's window is over"),
    "canceled": ("batch_cancelled", "The batch was cancelled"),
}
NOT_SENT: Final = "the line was not sent."
UNANSWERED: Final = "the line had been tried, a vendor may have had it, and no answer came."
DAMAGED_BATCH: Final = Flaw(DAMAGED, "The gateway cannot read all that it kept of this batch.")
EXPIRY_S_MIN, EXPIRY_S_MAX = 3600, 2_592_000


class Expiry(Struct, frozen=True):
    """When files of results expire."""

    anchor: Literal["created_at"]
    seconds: Annotated[int, Meta(ge=EXPIRY_S_MIN, le=EXPIRY_S_MAX)]


class Order(Struct, frozen=True):
    """A request to create a batch; see `read_order`."""

    input_file_id: Annotated[str, Meta(min_length=1, max_length=128)]
    endpoint: str
    completion_window: str
    metadata: Mapping[str, str] | None = None
    output_expires_after: Expiry | None = None


class _Envelope(Struct, frozen=True):
    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


_ENVELOPE = msgspec.json.Decoder(_Envelope)


def file_object(file: KeptFile) -> dict[str, Any]:
    return {
        "id": file.file_id,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": file.created_us // SECOND_US,
        "expires_at": file.expires_us // SECOND_US,
        "filename": file.name,
        "purpose": file.purpose,
        "status": "error" if file.is_damaged else "processed",
    }


def list_object(items: Sequence[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A page of a list, with the ids that a client needs for the next page."""
    return {
        "object": "list",
        "data": items,
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }


def batch_object(batch: Batch) -> dict[str, Any]:
    counts = batch.counts
    told = (*batch.flaws, DAMAGED_BATCH) if batch.is_damaged else batch.flaws
    flaws = {"object": "list", "data": [_flaw_object(flaw) for flaw in told]}
    ended = {
        f"{state}_at": _seconds(batch.ended_us if batch.state == state else 0)
        for state in ("completed", "failed", "expired", "cancelled")
    }
    return {
        "id": batch.batch_id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": flaws if told else None,
        "input_file_id": batch.input_file_id,
        "completion_window": COMPLETION_WINDOW,
        "status": batch.state,
        "output_file_id": (batch.output_file_id or None) if batch.is_over else None,
        "error_file_id": (batch.error_file_id or None) if batch.is_over else None,
        "created_at": _seconds(batch.created_us),
        "in_progress_at": _seconds(batch.started_us),
        "expires_at": _seconds(batch.expires_us),
        "finalizing_at": _seconds(batch.finalizing_us),
        "cancelling_at": _seconds(batch.cancelling_us),
        **ended,
        "request_counts": {
            "total": counts.total,
            "completed": counts.succeeded,
            "failed": counts.unsent,
        },
        "metadata": dict(batch.told.metadata) or None,
        "model": batch.told.sums.model or None,
        "usage": usage_object(batch.told.sums),
    }


def read_order(raw: bytes) -> Order:
    """A request to create a batch.

    Raises:
        RequestInvalid: something in it is missing, unknown or too long.
    """
    tree = decode_object(raw)
    if not tree.keys() <= set(Order.__struct_fields__):
        raise invalid("$", f"An order has {', '.join(Order.__struct_fields__)} and nothing else")
    order = checked(tree, Order)
    if order.endpoint not in ENDPOINTS:
        raise invalid("endpoint", f"The endpoint must be one of {', '.join(ENDPOINTS)}")
    if order.completion_window != COMPLETION_WINDOW:
        raise invalid("completion_window", f"The window is {COMPLETION_WINDOW}")
    check_metadata(order.metadata or {})
    return order


def read_lines(raws: Sequence[tuple[int, bytes]], endpoint: str) -> list[Line | Flaw]:
    """Numbered lines of a file, each as a request or as its flaw."""
    return [_read_line(number, raw, endpoint) for number, raw in raws]


def _read_line(number: int, raw: bytes, endpoint: str) -> Line | Flaw:
    if number == 1:
        raw = raw.removeprefix(BYTE_ORDER_MARK)
    try:
        decode_object(raw)
        wire = _ENVELOPE.decode(raw)
    except RequestInvalid as error:
        return Flaw("invalid_json_line", error.message, number, error.parameter)
    except msgspec.ValidationError as error:
        return _misshapen(number, str(error))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Flaw("invalid_json_line", "The line is not a JSON object.", number)
    if wire.method != METHOD:
        return Flaw("invalid_method", f"The method must be {METHOD}.", number, "method")
    if wire.url != endpoint:
        reason = f"The url must be the batch's endpoint, {endpoint}."
        return Flaw("mismatched_endpoint", reason, number, "url")
    if not wire.custom_id or len(wire.custom_id) > CUSTOM_ID_LENGTH_MAX:
        reason = f"The custom_id has between 1 and {CUSTOM_ID_LENGTH_MAX} characters."
        return Flaw("invalid_custom_id", reason, number, "custom_id")
    body = bytes(wire.body)
    if not body.startswith(b"{"):
        return Flaw("invalid_body", "The body must be a JSON object.", number, "body")
    return Line(number, wire.custom_id, body)


def _misshapen(number: int, said: str) -> Flaw:
    """Msgspec's message on an envelope, without a word of the line itself."""
    missing = re.search(r"missing required field `(custom_id|method|url|body)`", said)
    if missing is not None:
        reason = f"The line has no {missing[1]}."
        return Flaw("missing_required_parameter", reason, number, missing[1])
    place = re.search(r"at `\$\.(custom_id|method|url)`", said)
    name = place[1] if place is not None else None
    return Flaw("invalid_value", "This is not a text.", number, name)


def result_line(batch: Batch, line: EndedLine) -> bytes:
    """A line of a file of results, with its line feed."""
    end = line.end
    wire: dict[str, Any] = {
        "id": f"batch_req_{batch.batch_id.removeprefix('batch_')}_{line.number}",
        "custom_id": line.custom_id,
        "response": None,
        "error": None,
    }
    if end is None:
        wire["error"] = unsent(batch, line)
    else:
        wire["response"] = {
            "status_code": end.status,
            "request_id": end.request_id,
            "body": msgspec.Raw(end.body),
        }
        wire |= end.told
    return one_line(msgspec.json.encode(wire)) + b"\n"


def unsent(batch: Batch, line: EndedLine) -> dict[str, str]:
    """Why a line has no answer, or why its end cannot be read."""
    if line.is_damaged:
        return {"code": GatewrightError.code, "message": UNREADABLE}
    why = LOST if batch.stopped == DAMAGED else STOPPED
    code, over = UNSENT.get(line.state, (batch.stopped or "internal_error", why))
    return {"code": code, "message": f"{over}; {UNANSWERED if line.was_tried else NOT_SENT}"}


def _flaw_object(flaw: Flaw) -> dict[str, Any]:
    return {
        "code": flaw.code,
        "message": flaw.message,
        "param": flaw.parameter,
        "line": flaw.line,
    }


def _seconds(time_us: int) -> int | None:
    return time_us // SECOND_US if time_us else None
