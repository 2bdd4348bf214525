"""Anthropic's message batches: requests go up in one body, results come back as lines."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from gateway.clock import SECOND_US
from gateway.errors import UpstreamFailed, UpstreamMalformed, UpstreamRefused
from gateway.parcels import Parcel, VendorBatch, VendorResult, VendorState, number_of
from gateway.providers.parcels.post import (
    EMPTY,
    Page,
    ParcelPost,
    checked_id,
    ids_of,
    read_wire,
)
from gateway.types import DialectName


PATH = "/v1/messages/batches"
SKEW_US = 120 * SECOND_US
STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status that comes with each kind of error outside batches."""


_UNSENT = frozenset({"canceled", "expired"})


class _Batch(Struct, frozen=True):
    id: str
    processing_status: str
    created_at: datetime
    request_counts: dict[str, int] = {}
    archived_at: datetime | None = None


class _Kind(Struct, frozen=True):
    type: str = ""


class _Error(Struct, frozen=True):
    error: _Kind = _Kind()
    request_id: Any = None


class _Message(Struct, frozen=True):
    id: Any = None


class _Outcome(Struct, frozen=True):
    type: str
    message: msgspec.Raw = msgspec.Raw(b"null")
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Result(Struct, frozen=True):
    custom_id: str
    result: _Outcome


_BATCH = msgspec.json.Decoder(_Batch)
_BATCHES = msgspec.json.Decoder(Page[_Batch])
_RESULT = msgspec.json.Decoder(_Result)
_ERROR = msgspec.json.Decoder(_Error)
_MESSAGE = msgspec.json.Decoder(_Message)


class AnthropicParcels:
    """Implements `gateway.parcels.ParcelService`."""

    dialects: frozenset[DialectName] = frozenset({"anthropic_messages"})
    remains = ""

    def __init__(self, post: ParcelPost) -> None:
        self._post = post

    async def submit(self, parcel: Parcel, deadline_s: float) -> str:
        first = parcel.lines[0].call
        requests = [
            {"custom_id": line.custom_id, "params": msgspec.Raw(line.call.body)}
            for line in parcel.lines
        ]
        headers = {}
        if first.version:
            headers["anthropic-version"] = first.version
        if first.betas:
            headers["anthropic-beta"] = ",".join(first.betas)
        calls = [line.call for line in parcel.lines]
        body = msgspec.json.encode({"requests": requests})
        raw = await self._post.hand_over(PATH, calls, body, deadline_s, headers)
        return checked_id(read_wire(_BATCH, raw).id)

    async def find(
        self, name: str, count: int, made_us: int, deadline_s: float
    ) -> VendorBatch | None:
        """Find it by the ids in its results: until its end a message batch carries no text of ours.

        In an account that others also use, a batch of the same length may be theirs; so none is
        taken for ours, or cancelled, before its results prove it.
        """
        is_open, is_old = False, partial(_is_before, made_us)
        async for each in self._post.pages(f"{PATH}?", "after_id", _BATCHES, is_old, deadline_s):
            if sum(each.request_counts.values()) != count or is_old(each):
                continue
            described = _described(each)
            is_over = described.state == "ended"
            if is_over and await self._holds(described, name, count, deadline_s):
                return described
            is_open = is_open or described.state == "under_way"
        if is_open:
            raise UpstreamFailed("a batch that may be ours has not ended yet")
        return None

    async def look(self, vendor_id: str, deadline_s: float) -> VendorBatch:
        raw = await self._post.get(f"{PATH}/{checked_id(vendor_id)}", deadline_s)
        return _described(read_wire(_BATCH, raw))

    async def results(
        self, batch: VendorBatch, lines: int, deadline_s: float
    ) -> AsyncGenerator[VendorResult, None]:
        path = f"{PATH}/{batch.vendor_id}/results"
        async with aclosing(self._post.results(path, _result, lines, deadline_s)) as found:
            async for each in found:
                yield each

    async def cancel(self, vendor_id: str, deadline_s: float) -> None:
        try:
            await self._post.tell(f"{PATH}/{checked_id(vendor_id)}/cancel", EMPTY, deadline_s)
        except UpstreamRefused as error:
            if error.upstream_status not in (400, 409):  # It is over already.
                raise

    async def tidy(self, batch: VendorBatch, deadline_s: float) -> None:
        await self._post.drop(f"{PATH}/{checked_id(batch.vendor_id)}", deadline_s)

    async def _holds(self, batch: VendorBatch, name: str, lines: int, deadline_s: float) -> bool:
        """Whether the first of its results is a line of this parcel."""
        async with aclosing(self.results(batch, lines, deadline_s)) as found:
            async for each in found:
                return number_of(each.custom_id, name) > 0
        return False


def _is_before(made_us: int, wire: _Batch) -> bool:
    return _us(wire.created_at) < made_us - SKEW_US


def _us(moment: datetime) -> int:
    return round(moment.timestamp() * SECOND_US)


def _described(wire: _Batch) -> VendorBatch:
    state: VendorState = "ended" if wire.processing_status == "ended" else "under_way"
    return VendorBatch(checked_id(wire.id), "gone" if wire.archived_at else state)


def _result(line: bytes) -> VendorResult:
    wire = read_wire(_RESULT, line)
    outcome = wire.result
    if outcome.type == "succeeded":
        message = bytes(outcome.message)
        return VendorResult(wire.custom_id, "answered", 200, message, _named(message))
    if outcome.type in _UNSENT:
        return VendorResult(wire.custom_id, "unsent")
    if outcome.type != "errored":
        raise UpstreamMalformed("the upstream's batch service ended a line oddly")
    body = bytes(outcome.error)
    error = read_wire(_ERROR, body)
    status = STATUSES.get(error.error.type, 500)
    return VendorResult(wire.custom_id, "refused", status, body, ids_of(error.request_id))


def _named(message: bytes) -> tuple[str, ...]:
    """The message's own id: calls have no other in a batch. Flaws are reported on reading."""
    try:
        return ids_of(_MESSAGE.decode(message).id)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
