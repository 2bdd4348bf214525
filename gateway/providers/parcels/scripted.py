"""A scripted batch service without a network or a vendor: answers batches, or not.

It can be told to misbehave in the ways in which real services do.
"""

from collections.abc import AsyncGenerator, Callable

import msgspec
from msgspec import Struct

from gateway.errors import UpstreamRefused, UpstreamUnreachable
from gateway.parcels import (
    Parcel,
    ParcelLine,
    ResultsTooLong,
    VendorBatch,
    VendorResult,
    number_of,
)
from gateway.ports import UpstreamCall
from gateway.providers.egress.client import check_clearance
from gateway.types import DialectName


class ParcelFaults(Struct, frozen=True, kw_only=True):
    """Faults to simulate; numbers are those of lines. There are none by default."""

    refused: frozenset[int] = frozenset()
    """Answered with an error of the caller's making."""
    overloaded: frozenset[int] = frozenset()
    """Answered with an error of the vendor's."""
    unsent: frozenset[int] = frozenset()
    """Never sent: the batch expired before."""
    lost: frozenset[int] = frozenset()
    """Missing from all results."""
    is_reversed: bool = False
    is_doubled: bool = False
    cut_after: int | None = None
    """The next download breaks off after so many results."""
    too_long_after: int | None = None
    """Each download is too long after so many of them."""
    submit_status: int = 0
    """The status with which parcels are refused."""
    made_status: int = 0
    """The next parcel is accepted, but answered with this status."""
    hides_submit: bool = False
    """The next parcel is accepted, but the answer that says so never comes."""
    is_slow: bool = False
    """Batches do not end by themselves."""
    is_endless: bool = False
    """They do not end when they are told to, either."""
    cancel_status: int = 0
    """The status for a request to cancel a batch, which then goes on."""
    delete_status: int = 0
    """The status with which deletes are refused."""


class _Taken(Struct):
    parcel: Parcel
    vendor_id: str
    is_cancelled: bool = False


class ScriptedParcels:
    """Implements `gateway.parcels.ParcelService`; `taken` are the accepted parcels."""

    def __init__(
        self, jurisdiction: str, dialect: DialectName, answer: Callable[[UpstreamCall], bytes]
    ) -> None:
        self.dialects: frozenset[DialectName] = frozenset({dialect})
        self.remains = ""
        self.faults = ParcelFaults()
        self.taken: dict[str, _Taken] = {}
        self.forgotten: list[str] = []
        self.cancels = self.reads = 0
        self._jurisdiction = jurisdiction
        self._answer = answer

    async def submit(self, parcel: Parcel, deadline_s: float) -> str:
        del deadline_s
        for line in parcel.lines:
            check_clearance(self._jurisdiction, line.call)
        if self.faults.submit_status:
            raise UpstreamRefused("scripted", upstream_status=self.faults.submit_status)
        vendor_id = f"scripted-{len(self.taken) + 1}"
        self.taken[vendor_id] = _Taken(parcel, vendor_id)
        if status := self.faults.made_status:
            self.faults = msgspec.structs.replace(self.faults, made_status=0)
            raise UpstreamRefused("scripted", upstream_status=status)
        if self.faults.hides_submit:
            self.faults = msgspec.structs.replace(self.faults, hides_submit=False)
            raise UpstreamUnreachable("the answer never came")
        return vendor_id

    async def find(
        self, name: str, count: int, made_us: int, deadline_s: float
    ) -> VendorBatch | None:
        del count, made_us
        for taken in self.taken.values():
            if taken.parcel.name == name:
                return await self.look(taken.vendor_id, deadline_s)
        return None

    async def look(self, vendor_id: str, deadline_s: float) -> VendorBatch:
        del deadline_s
        taken = self.taken.get(vendor_id)
        if taken is None:
            raise UpstreamRefused("there is none", upstream_status=404)
        is_over = taken.is_cancelled or not self.faults.is_slow
        is_over = is_over and not self.faults.is_endless
        return VendorBatch(vendor_id, "ended" if is_over else "under_way")

    async def results(
        self, batch: VendorBatch, lines: int, deadline_s: float
    ) -> AsyncGenerator[VendorResult, None]:
        del deadline_s, lines
        self.reads += 1
        faults, taken = self.faults, self.taken[batch.vendor_id]
        found = [each for line in taken.parcel.lines for each in self._answers(taken, line)]
        for place, each in enumerate(reversed(found) if faults.is_reversed else found):
            if place == faults.too_long_after:
                raise ResultsTooLong("scripted")
            if place == faults.cut_after:
                self.faults = msgspec.structs.replace(faults, cut_after=None)
                raise UpstreamUnreachable("cut")
            yield each

    async def cancel(self, vendor_id: str, deadline_s: float) -> None:
        del deadline_s
        self.cancels += 1
        if self.faults.cancel_status:
            raise UpstreamRefused("scripted", upstream_status=self.faults.cancel_status)
        self.taken[vendor_id].is_cancelled = True

    async def tidy(self, batch: VendorBatch, deadline_s: float) -> None:
        del deadline_s
        if self.faults.delete_status:
            raise UpstreamRefused("scripted", upstream_status=self.faults.delete_status)
        self.forgotten.append(batch.vendor_id)

    def _answers(self, taken: _Taken, line: ParcelLine) -> list[VendorResult]:
        faults, number = self.faults, number_of(line.custom_id, taken.parcel.name)
        if number in faults.lost:
            return []
        is_unsent = number in faults.unsent or (taken.is_cancelled and faults.is_slow)
        if is_unsent:
            result = VendorResult(line.custom_id, "unsent")
        elif number in faults.refused:
            result = VendorResult(line.custom_id, "refused", 400, _REFUSED)
        elif number in faults.overloaded:
            result = VendorResult(line.custom_id, "refused", 529, _OVERLOADED)
        else:
            result = VendorResult(line.custom_id, "answered", 200, self._answer(line.call))
        return [result, result] if faults.is_doubled else [result]


def _error(kind: str) -> bytes:
    error = {"type": kind, "message": "scripted", "code": kind}
    return msgspec.json.encode({"type": "error", "error": error})


_REFUSED = _error("invalid_request_error")
_OVERLOADED = _error("overloaded_error")
