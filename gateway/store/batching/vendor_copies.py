"""Copies of erased lines that vendors hold: deletion is ordered and followed until they are gone.

An order is written in the transaction that destroys the lines, so neither exists without the other.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from msgspec import Struct, structs
from sqlalchemy import ColumnElement, RowMapping, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.store.engine import Database
from gateway.store.schema.parcels import parcels, parked_lines, vendor_copies


ORDERED = "ordered"
CopyEnd = Literal["deleted", "unsent", "kept"]
_COPIES = vendor_copies.c


class VendorCopy(Struct, frozen=True):
    """One batch at a vendor that holds, or held, erased lines."""

    parcel: str
    case_id: str
    """The erasure; empty for a command."""
    organisation: str
    provider: str
    vendor_id: str
    """The vendor's name for the batch; empty while it is not known."""
    lines: int
    """How many erased lines it may hold."""
    state: str
    """`ordered`, `deleted`, `unsent` (the vendor never had it) or `kept`: it cannot be deleted."""
    note: str
    """What the vendor keeps nevertheless, or why it could not be asked."""
    ordered_us: int
    ended_us: int = 0
    parcel_state: str = ""
    """Where the parcel is; empty when it is gone."""

    @property
    def is_left(self) -> bool:
        """Whether the vendor may still have it."""
        return self.state in {ORDERED, "kept"}


class _Held(Struct, frozen=True):
    """A parcel that holds erased lines, and whether it is to be cancelled."""

    parcel: str
    provider: str
    vendor_id: str
    lines: int
    is_unwanted: bool


class VendorCopies:
    """Orders to delete vendors' copies, of one database."""

    def __init__(self, database: Database, clock: Clock, *, cancels: bool = True) -> None:
        """With `cancels`, a vendor's batch is cancelled even if it holds other people's lines."""
        self._database = database
        self._clock = clock
        self._cancels = cancels

    async def count(self, lines: Mapping[str, frozenset[int]]) -> int:
        """How many batches at vendors hold some of these lines; without numbers, all lines."""
        async with self._database.reading() as connection:
            return sum([len(await self._held(connection, *each)) for each in lines.items()])

    async def order(
        self,
        connection: AsyncConnection,
        case_id: str,
        organisation: str,
        batch_id: str,
        numbers: frozenset[int],
    ) -> None:
        """Order the deletion, in the transaction that destroys these lines, before it does."""
        for held in await self._held(connection, batch_id, numbers):
            mine = (_COPIES.parcel == held.parcel) & (_COPIES.case_id == case_id)
            known = (await connection.execute(select(_COPIES.state).where(mine))).first()
            copy = VendorCopy(
                held.parcel,
                case_id,
                organisation,
                held.provider,
                held.vendor_id,
                held.lines,
                ORDERED,
                "",
                self._clock.utc_us(),
            )
            row = structs.asdict(copy)
            del row["parcel_state"]
            if known is None:
                await connection.execute(insert(vendor_copies), row)
            elif known.state != ORDERED:
                # What was erased of it before it was sent says nothing about what was sent then.
                await connection.execute(update(vendor_copies).where(mine).values(row))
            if held.is_unwanted:
                parcel = update(parcels).where(parcels.c.id == held.parcel)
                await connection.execute(parcel.values(is_erased=1))

    async def of_cases(self, case_ids: Collection[str]) -> list[VendorCopy]:
        """The orders of a few cases, in the order in which they were made."""
        return await self._read(_COPIES.case_id.in_(case_ids))

    async def of_organisation(self, organisation: str) -> list[VendorCopy]:
        """The orders of all of an organisation's cases and commands."""
        return await self._read(_COPIES.organisation == organisation)

    async def open_of(self, parcel: str) -> list[VendorCopy]:
        """The orders that wait for this parcel to be gone."""
        return await self._read((_COPIES.parcel == parcel) & (_COPIES.state == ORDERED))

    async def end(self, parcel: str, state: CopyEnd, vendor_id: str, note: str) -> None:
        """End the orders that waited for a parcel."""
        waiting = (_COPIES.parcel == parcel) & (_COPIES.state == ORDERED)
        values = {"state": state, "vendor_id": vendor_id, "note": note}
        ended = update(vendor_copies).where(waiting).values(ended_us=self._clock.utc_us(), **values)
        async with self._database.writing() as connection:
            await connection.execute(ended)

    async def _read(self, where: ColumnElement[bool]) -> list[VendorCopy]:
        query = (
            select(vendor_copies, func.coalesce(parcels.c.state, "").label("parcel_state"))
            .outerjoin(parcels, parcels.c.id == _COPIES.parcel)
            .where(where)
            .order_by(_COPIES.ordered_us, _COPIES.parcel)
        )
        async with self._database.reading() as connection:
            rows: Sequence[RowMapping] = (await connection.execute(query)).mappings().all()
        return [VendorCopy(**row) for row in rows]

    async def _held(
        self, connection: AsyncConnection, batch_id: str, numbers: frozenset[int]
    ) -> list[_Held]:
        """Parcels of a batch that hold some of these lines, or may."""
        columns = parcels.c
        query = select(
            columns.id, columns.provider, columns.state, columns.vendor_id, columns.lines
        ).where(columns.batch_id == batch_id)
        rows = (await connection.execute(query)).all()
        if not rows:
            return []
        waiting = await self._waiting(connection, batch_id)
        # A line that no longer waits was answered, from one of the parcels that are read.
        are_read = bool(numbers.difference(*waiting.values()))
        found = []
        for row in rows:
            here = waiting.get(row.id, set())
            theirs = len(here & numbers) if numbers else row.lines
            is_being_read = are_read and row.lines > len(here)
            if not theirs and not is_being_read:
                continue
            is_all = not numbers or theirs == len(here)
            is_unwanted = bool(theirs) and (self._cancels or is_all or row.state == "new")
            lines = theirs or min(row.lines - len(here), len(numbers))
            found.append(_Held(row.id, row.provider, row.vendor_id, lines, is_unwanted))
        return found

    async def _waiting(self, connection: AsyncConnection, batch_id: str) -> dict[str, set[int]]:
        """The lines that wait in each parcel."""
        query = select(parked_lines.c.parcel, parked_lines.c.number).where(
            parked_lines.c.batch_id == batch_id
        )
        found: dict[str, set[int]] = {}
        for parcel, number in (await connection.execute(query)).all():
            found.setdefault(parcel, set()).add(number)
        return found
