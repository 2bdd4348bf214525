"""The database row of a parcel, led for a term: a worker that was overtaken changes nothing."""

from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, RowMapping, Update, or_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.batches import Line
from gateway.store.schema.parcels import parcels, parked_lines


TEND_US = 60_000_000
"""How long a worker leads a parcel without renewing."""
ROW = (
    *(
        parcels.c.id.label("parcel_id"),
        parcels.c.batch_id,
        parcels.c.provider,
        parcels.c.state,
        parcels.c.vendor_id,
    ),
    *(parcels.c.lines, parcels.c.made_us, parcels.c.tries, parcels.c.is_erased, parcels.c.term),
    parcels.c.is_doubtful.label("resent"),
)


class TermOver(Exception):
    """Another worker leads this parcel now: nothing of this term is written any more."""


class Loose(Struct, frozen=True):
    """Lines of one batch for one target that are not in a parcel yet."""

    batch_id: str
    provider: str
    target: str
    count: int
    size_bytes: int
    oldest_us: int
    is_all: bool
    """Whether no other line of the batch is about to join them."""
    old_us: int = 0
    """Lines of other workers that were parked by this time are included."""


class ParcelRow(Struct, frozen=True):
    """A parcel and its state."""

    parcel_id: str
    batch_id: str
    provider: str
    state: str
    vendor_id: str
    lines: int
    made_us: int
    tries: int
    is_erased: bool = False
    """Whether an erasure took lines of it, so that it is not waited for."""
    term: int = 0
    """How often it was taken, including this time."""
    resent: int = 0
    """How often it was sent again because its vendor never showed it."""


class ParkedLine(Struct, frozen=True):
    """A line that waits for a vendor."""

    line: Line
    ticket: bytes
    failures: int
    is_ending: bool
    target: str = ""
    provider: str = ""
    parked_us: int = 0

    def __repr__(self) -> str:
        return f"ParkedLine({self.line.number})"  # The rest is content.


def is_for(holder: str, old_us: int) -> ColumnElement[bool]:
    """Lines that this worker may gather: its own, and those that others left lying.

    The worker that leads a parcel reserves money for all of it, as the one that parked a line has
    done: what both hold for a line is unusable until that line has ended.
    """
    waits = parked_lines.c
    return or_(waits.holder == holder, waits.parked_us <= old_us)


def tended_until_us(now_us: int) -> int:
    """The end of a lead that is taken or renewed now."""
    return now_us + TEND_US


def of_term(parcel_id: str, term: int) -> Update:
    return update(parcels).where(parcels.c.id == parcel_id, parcels.c.term == term)


async def change(connection: AsyncConnection, parcel_id: str, term: int, **values: Any) -> None:
    """Change a parcel; if it was taken again since, roll back the transaction by TermOver."""
    changed = await connection.execute(of_term(parcel_id, term).values(**values))
    if not changed.rowcount:
        raise TermOver


def parcel_row(row: RowMapping) -> ParcelRow:
    return ParcelRow(**{**row, "is_erased": bool(row["is_erased"])})
