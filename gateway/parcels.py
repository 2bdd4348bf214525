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
"""What vendors answer who have no room, and then take nothing. A 503 may be that of something on
the way, which lost the vendor's answer."""
SERVER_ERROR_MIN = 500
_FILE = re.compile(r"[A-Za-z0-9_-]{1,120}")
_DIGITS_MAX = 9
"""Of a line's number; of thousands no number can be made, and whoever tries fails each time."""
VendorState = Literal["under_way", "ended", "failed", "gone"]
ResultKind = Literal["answered", "refused", "unsent"]


class ResultsTooLong(UpstreamMalformed):
    """More than results of that many lines are: it would be no shorter if it were read again."""


class ParcelLine(Struct, frozen=True):
    """One line as the vendor gets it."""

    custom_id: str
    """Ours, never the caller's: the parcel's name and the line's number."""
    call: UpstreamCall


class Parcel(Struct, frozen=True):
    """Lines for one target; all of their bodies are of one dialect."""

    name: str
    """Made for this parcel and never used again: by it the vendor's batch is found again."""
    made_us: int
    lines: tuple[ParcelLine, ...]

    @property
    def dialect(self) -> DialectName:
        return self.lines[0].call.dialect


class VendorBatch(Struct, frozen=True):
    """A vendor's batch as the vendor describes it."""

    vendor_id: str
    state: VendorState
    """`failed`: as a whole, before any line of it; `gone`: its results are not kept any more."""
    files: tuple[str, ...] = ()
    """Where its results lie, at a vendor that has files."""
    input_file: str = ""

    @property
    def named_files(self) -> tuple[str, ...]:
        """All files of it whose names a record may repeat."""
        return tuple(filter(_FILE.fullmatch, (self.input_file, *self.files)))


class VendorResult(Struct, frozen=True):
    """What became of one line."""

    custom_id: str
    kind: ResultKind
    """`unsent`: cancelled or expired before the vendor came to it; nothing is charged."""
    status: int = 200
    body: bytes = b""
    upstream_ids: tuple[str, ...] = ()
    """What the vendor calls this call, as `Attempt` has it."""

    def __repr__(self) -> str:
        return f"VendorResult({self.custom_id}, {self.kind})"  # The rest is content.


class ParcelService(Protocol):
    """A vendor's batch API. It retries nothing; every wait is bounded by `deadline_s`."""

    dialects: frozenset[DialectName]
    """In which lines can be handed over."""
    remains: str
    """What the vendor keeps after `tidy`, in words: its API deletes no more; empty is nothing."""

    async def submit(self, parcel: Parcel, deadline_s: float) -> str:
        """Hand a parcel over; the vendor's id of the batch.

        Raises:
            SovereigntyViolation: before anything is sent, if one line is not cleared to go there.
            UpstreamRefused: the vendor took nothing.
            UpstreamFailed: nobody knows whether it did; `find` says so later.
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
        """How it stands; raises UpstreamFailed."""
        ...

    def results(
        self, batch: VendorBatch, lines: int, deadline_s: float
    ) -> AsyncGenerator[VendorResult, None]:
        """Results in the vendor's order, perhaps twice; `lines` are what it was handed.

        Raises:
            ResultsTooLong: it goes on for longer than results of these can.
            UpstreamFailed: it is cut, or, once all is read, some of it could not be.
        """
        ...

    async def cancel(self, vendor_id: str, deadline_s: float) -> None:
        """Ask for its end; what was answered by then is still there. Raises UpstreamFailed."""
        ...

    async def tidy(self, batch: VendorBatch, deadline_s: float) -> None:
        """Have the vendor forget what it keeps of it; raises UpstreamFailed."""
        ...


async def json_lines(pieces: AsyncIterator[bytes], length_max: int) -> AsyncIterator[bytes]:
    """Whole lines that are not empty; in place of one that is too long there is an empty one."""
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
    """Whether a vendor that answered so may have taken what it was sent all the same."""
    return status >= SERVER_ERROR_MIN and status not in FULL_STATUSES


def number_of(custom_id: str, name: str) -> int:
    """The line's number in its batch; 0 where the id is not of this parcel."""
    head, _, number = custom_id.rpartition("-")
    is_number = number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX
    return int(number) if head == name and is_number else 0


def custom_id_of(name: str, number: int) -> str:
    return f"{name}-{number}"
