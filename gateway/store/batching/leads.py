"""Checks that a worker still leads a batch; one that was overtaken or cancelled writes no more.

The check runs in the transaction that writes, and the batch's row stays locked until that ends:
another worker that takes the batch over, or somebody who cancels it, waits that long.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.schema.batches import batches


RECEIVING = "receiving"
"""The state of a batch whose lines are still arriving: it is not visible."""
ARRIVING_US: Final = 120_000_000
"""How long it keeps its reservation while nothing more arrives: its receiver is gone by then."""
TAKEN_IN = ("validating", RECEIVING)
FINISHED = ("finalizing", "cancelling")
Check = Callable[[AsyncConnection], Awaitable[None]]
"""Raises LeadOver if the transaction must not go on."""


class LeadOver(Exception):
    """Another worker leads this batch now, or it is over, or was cancelled."""


def leading(batch_id: str, holder: str, states: Sequence[str]) -> Check:
    """Check that `holder` still leads a batch in one of these states; empty means nobody."""

    async def check(connection: AsyncConnection) -> None:
        # Batch before lines and files, as everywhere, so that two workers never deadlock.
        mine = update(batches).where(
            batches.c.id == batch_id, batches.c.state.in_(states), batches.c.tender == holder
        )
        if not (await connection.execute(mine.values(tender=holder))).rowcount:
            raise LeadOver

    return check


def arriving(batch_id: str, now_us: int) -> Check:
    """Check that a batch is still arriving, and prolong its reservation.

    A batch that has lost its reservation may not go on: another one has it by now.
    """

    async def check(connection: AsyncConnection) -> None:
        mine = update(batches).where(
            batches.c.id == batch_id, batches.c.state == RECEIVING, batches.c.keep_until_us > now_us
        )
        kept = mine.values(keep_until_us=now_us + ARRIVING_US)
        if not (await connection.execute(kept)).rowcount:
            raise LeadOver

    return check
