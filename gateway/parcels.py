"""Parcels: lines that are handed to a vendor's own batch API together, and their results.

A parcel holds lines of one batch for one target. Each line was decided and recorded by itself
before it was put in; the egress checks every one of them again before a byte of the parcel leaves.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Literal, Protocol

from msgspec import Struct

from gateway.errors import UpstreamMalformed
from gateway.ports import UpstreamCall
from gateway.types import DialectName


PARCEL_PREFIX = "gwp-"
FULL_STATUSES = frozenset({429, 529})
"""Statuses of a vendor that has no room, and has accepted nothing. A 503 may also come from a proxy
on the way that lost the vendor's answer."""
SERVER_ERROR_MIN = 500
_FILE = re.compile(r"[A-Za-z0-9_-]{1,120}")
_DIGITS_MAX = 9
"""The most digits of a line's number: Python refuses to convert thousands of digits."""
VendorState = Literal["under_way", "ended", "failed", "gone"]
ResultKind = Literal["answered", "refused", "unsent"]


class ResultsTooLong(UpstreamMalformed):
    """More than the results of that many lines can be; reading it again would not help."""


class ParcelLine(Struct, frozen=True):
    """One line as the vendor gets it."""

    custom_id: str
    """Our id, never the caller's: the parcel's name and the line's number."""
    call: UpstreamCall


class Parcel(Struct, frozen=True):
    """Lines for one target; all of their bodies are of one dialect."""

    name: str
    """Made for this parcel and never used again: it is how the vendor's batch is found again."""
    made_us: int
    lines: tuple[ParcelLine, ...]

    @property
    def dialect(self) -> DialectName:
        return self.lines[0].call.dialect


class VendorBatch(Struct, frozen=True):
    """A vendor's batch as the vendor describes it."""

    vendor_id: str
    state: VendorState
    """`failed`: as a whole, before any of its lines; `gone`: its results are no longer kept."""
    files: tuple[str, ...] = ()
    """The files of its results, at a vendor that has files."""
    input_file: str = ""

    @property
    def named_files(self) -> tuple[str, ...]:
        """All its files whose names a record may repeat."""
        return tuple(filter(_FILE.fullmatch, (self.input_file, *self.files)))


class VendorResult(Struct, frozen=True):
    """The result of one line."""

    custom_id: str
    kind: ResultKind
    """`unsent`: cancelled or expired before the vendor came to it; nothing is charged."""
    status: int = 200
    body: bytes = b""
    upstream_ids: tuple[str, ...] = ()
    """The vendor's own ids of this call, as in `Attempt`."""

    def __repr__(self) -> str:
        return f"VendorResult({self.custom_id}, {self.kind})"  # The rest is content.


class ParcelService(Protocol):
    """A vendor's batch API. It retries nothing; every wait is bounded by `deadline_s`."""

    dialects: frozenset[DialectName]
    """The dialects in which lines can be handed over."""
    remains: str
    """In words, what the vendor keeps after `tidy`, as its API cannot delete it; empty for none."""

    async def submit(self, parcel: Parcel, deadline_s: float) -> str:
        """Hand a parcel over; returns the vendor's id of the batch.

        Raises:
            SovereigntyViolation: before anything is sent, if one line is not cleared to go there.
            UpstreamRefused: the vendor took nothing.
            UpstreamFailed: it is not known whether it did; `find` tells later.
        """
        ...

    async def find(
        self, name: str, count: int, made_us: int, deadline_s: float
    ) -> VendorBatch | None:
        """The batch that a parcel became, if the vendor has it.

        Raises:
            UpstreamFailed: it cannot be said yet.
        """
        ...

    async def look(self, vendor_id: str, deadline_s: float) -> VendorBatch:
        """Its present state; raises UpstreamFailed."""
        ...

    def results(
        self, batch: VendorBatch, lines: int, deadline_s: float
    ) -> AsyncGenerator[VendorResult, None]:
        """Results in the vendor's order, perhaps twice; `lines` is how many it was handed.

        Raises:
            ResultsTooLong: it is longer than the results of so many lines can be.
            UpstreamFailed: it is cut off, or, once all is read, some of it could not be read.
        """
        ...

    async def cancel(self, vendor_id: str, deadline_s: float) -> None:
        """Ask the vendor to end it; answers until then are kept. Raises UpstreamFailed."""
        ...

    async def tidy(self, batch: VendorBatch, deadline_s: float) -> None:
        """Have the vendor delete what it keeps of it; raises UpstreamFailed."""
        ...


async def json_lines(pieces: AsyncIterator[bytes], length_max: int) -> AsyncIterator[bytes]:
    """Complete lines that are not empty; in place of one that is too long, an empty one."""
    begun: list[bytes] = []
    begun_bytes, is_too_long = 0, False
    async for piece in pieces:
        first, *others = piece.split(b"\n")
        begun.append(first)
        begun_bytes += len(first)
        if others:
            *whole, rest = b"".join(begun), *others
            for line in whole:
                if is_too_long or len(line) > length_max:
                    yield b""
                elif line and not line.isspace():
                    yield line
                is_too_long = False
            begun, begun_bytes = [rest], len(rest)
        if begun_bytes > length_max:
            begun, begun_bytes, is_too_long = [], 0, True
    if is_too_long:
        yield b""
    elif (line := b"".join(begun)).strip():
        yield line


def may_have_taken(status: int) -> bool:
    """Whether a vendor that answered with this status may have accepted what it was sent."""
    return status >= SERVER_ERROR_MIN and status not in FULL_STATUSES


def number_of(custom_id: str, name: str) -> int:
    """The line's number in its batch; 0 where the id is not of this parcel."""
    head, _, number = custom_id.rpartition("-")
    is_number = number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX
    return int(number) if head == name and is_number else 0


def custom_id_of(name: str, number: int) -> str:
    return f"{name}-{number}"
