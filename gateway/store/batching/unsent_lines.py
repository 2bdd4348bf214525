"""Parked lines that were erased before anything of them went to a vendor: nothing is owed for them.

It is told by the parcel, in the transaction that destroys the line: afterwards nobody could say.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.store.engine import Database
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.parcels import parcels, parked_lines, unsent_lines


KEPT_US: Final = 400 * 86_400_000_000
"""So long the worker that wrote the intent of such a line may be away."""


class UnsentLines:
    """Of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def hold(
        self, connection: AsyncConnection, batch_id: str, numbers: Sequence[int]
    ) -> None:
        """Let nobody park these lines, or put them into a parcel, until the transaction is over.

        None named is all of the batch. Comes before parcels are asked where they are.
        """
        # The batch's row first, as workers do: two never wait for each other.
        mine = select(batches.c.id).where(batches.c.id == batch_id)
        await connection.execute(mine.with_for_update())
        for table in (batch_lines, parked_lines):
            which = _which(table.c.batch_id, table.c.number, batch_id, numbers)
            held = select(table.c.number).where(which).order_by(table.c.number)
            await connection.execute(held.with_for_update())

    async def note(
        self, connection: AsyncConnection, batch_id: str, numbers: Sequence[int]
    ) -> None:
        """Keep which of these lines, held and about to be destroyed, nobody has sent.

        After their parcels were marked as erased: those cannot be sent then as they are.
        """
        waits = parked_lines.c
        unsent = select(parcels.c.id).where(
            parcels.c.batch_id == batch_id,
            parcels.c.state == "new",
            parcels.c.tries == 0,
            parcels.c.is_erased == 1,
        )
        ids = (await connection.execute(unsent)).scalars().all()
        query = select(waits.number).where(
            _which(waits.batch_id, waits.number, batch_id, numbers), waits.parcel.in_(["", *ids])
        )
        found = (await connection.execute(query)).scalars().all()
        now_us = self._clock.utc_us()
        old = delete(unsent_lines).where(unsent_lines.c.erased_us < now_us - KEPT_US)
        await connection.execute(old)
        if found:
            rows = [
                {"batch_id": batch_id, "number": number, "erased_us": now_us} for number in found
            ]
            await connection.execute(insert(unsent_lines), rows)

    async def has(self, batch_id: str, number: int) -> bool:
        """Whether this line is known to have been erased before it was sent."""
        query = select(unsent_lines.c.number).where(
            unsent_lines.c.batch_id == batch_id, unsent_lines.c.number == number
        )
        async with self._database.reading() as connection:
            return (await connection.execute(query)).first() is not None


def _which(
    batch: ColumnElement[str], number: ColumnElement[int], batch_id: str, numbers: Sequence[int]
) -> ColumnElement[bool]:
    mine = batch == batch_id
    return mine & number.in_(numbers) if numbers else mine
