"""Parked lines that were erased before a vendor had accepted them: nothing is owed for them.

This is read from the parcel in the transaction that destroys the line, since nobody could tell
afterwards. If the parcel is being sent at that moment, the answer is known once the vendor has
accepted or refused it.
"""

from collections.abc import Sequence
from typing import Final, Literal

from sqlalchemy import ColumnElement, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.store.engine import Database
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.parcels import parcels, parked_lines, unsent_lines


KEPT_US: Final = 400 * 86_400_000_000
"""How long the worker that wrote the intent of such a line may be away."""
Debt = Literal["none", "owed", "unknown"]
"""What a vendor charges for an erased line; unknown while its parcel is being sent."""


class UnsentLines:
    """The unsent lines in one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def hold(
        self, connection: AsyncConnection, batch_id: str, numbers: Sequence[int]
    ) -> None:
        """Keep these lines from being parked, or put into a parcel, until the transaction ends.

        Without numbers, all of the batch. Must come before parcels are queried.
        """
        # The batch's row first, as workers do, so that two never deadlock.
        mine = select(batches.c.id).where(batches.c.id == batch_id)
        await connection.execute(mine.with_for_update())
        for table in (batch_lines, parked_lines):
            which = _which(table.c.batch_id, table.c.number, batch_id, numbers)
            held = select(table.c.number).where(which).order_by(table.c.number)
            await connection.execute(held.with_for_update())

    async def note(
        self, connection: AsyncConnection, batch_id: str, numbers: Sequence[int]
    ) -> None:
        """Note which of these lines, held and about to be destroyed, no vendor has accepted.

        Call it after their parcels were marked as erased: these cannot be sent then as they are.
        """
        found = await self._waiting(connection, batch_id, numbers)
        now_us = self._clock.utc_us()
        old = delete(unsent_lines).where(unsent_lines.c.erased_us < now_us - KEPT_US)
        await connection.execute(old)
        if found:
            rows = [
                {"batch_id": batch_id, "number": number, "erased_us": now_us, "parcel": parcel}
                for number, parcel in found.items()
            ]
            await connection.execute(insert(unsent_lines), rows)

    async def debt(self, batch_id: str, number: int) -> Debt:
        """What is owed for this line, which was erased while it waited for a vendor."""
        query = select(unsent_lines.c.parcel).where(
            unsent_lines.c.batch_id == batch_id, unsent_lines.c.number == number
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            return "owed"
        return "unknown" if row.parcel else "none"

    async def _waiting(
        self, connection: AsyncConnection, batch_id: str, numbers: Sequence[int]
    ) -> dict[int, str]:
        """Lines that no vendor has, each with the parcel in which it is being sent."""
        waits = parked_lines.c
        # Until the transaction ends no parcel goes on: what is seen here is also reported later.
        query = (
            select(parcels.c.id, parcels.c.state, parcels.c.is_erased)
            .where(
                parcels.c.batch_id == batch_id,
                parcels.c.state.in_(("new", "submitting")),
                parcels.c.is_doubtful == 0,
            )
            .order_by(parcels.c.id)
            .with_for_update()
        )
        sent_in = {"": ""}
        for parcel, state, is_erased in (await connection.execute(query)).all():
            if state == "submitting":
                sent_in[parcel] = parcel
            elif is_erased:
                sent_in[parcel] = ""
        lines = select(waits.number, waits.parcel).where(
            _which(waits.batch_id, waits.number, batch_id, numbers), waits.parcel.in_(sent_in)
        )
        found = (await connection.execute(lines)).all()
        return {number: sent_in[parcel] for number, parcel in found}


async def settle(connection: AsyncConnection, parcel_id: str, *, is_refused: bool) -> None:
    """Note that a parcel is no longer being sent; if refused, its erased lines cost nothing."""
    mine = unsent_lines.c.parcel == parcel_id
    if is_refused:
        await connection.execute(update(unsent_lines).where(mine).values(parcel=""))
    else:
        await connection.execute(delete(unsent_lines).where(mine))


def _which(
    batch: ColumnElement[str], number: ColumnElement[int], batch_id: str, numbers: Sequence[int]
) -> ColumnElement[bool]:
    mine = batch == batch_id
    return mine & number.in_(numbers) if numbers else mine
