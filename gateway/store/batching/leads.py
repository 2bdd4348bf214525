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
"""The state of a batch whose lines are still arriving: nobody sees it."""
ARRIVING_US: Final = 120_000_000
"""How long one keeps its room while nothing more of it comes: whoever took it in is gone then."""
TAKEN_IN = ("validating", RECEIVING)
FINISHED = ("finalizing", "cancelling")
Check = Callable[[AsyncConnection], Awaitable[None]]
"""Raises LeadOver where the transaction must not be."""


class LeadOver(Exception):
    """Somebody else leads this batch by now, or it is over, or was cancelled."""


def leading(batch_id: str, holder: str, states: Sequence[str]) -> Check:
    """Whether `holder` still leads a batch in one of these states; empty is nobody's."""

    async def check(connection: AsyncConnection) -> None:
        # Batch before lines and files, as everywhere: two workers never wait for each other.
        mine = update(batches).where(
            batches.c.id == batch_id, batches.c.state.in_(states), batches.c.tender == holder
        )
        if not (await connection.execute(mine.values(tender=holder))).rowcount:
            raise LeadOver

    return check


def arriving(batch_id: str, now_us: int) -> Check:
    """Whether a batch is still arriving, and has its room for a while more.

    What has lost its room may not go on: another batch has that by now.
    """

    async def check(connection: AsyncConnection) -> None:
        mine = update(batches).where(
            batches.c.id == batch_id, batches.c.state == RECEIVING, batches.c.keep_until_us > now_us
        )
        kept = mine.values(keep_until_us=now_us + ARRIVING_US)
        if not (await connection.execute(kept)).rowcount:
            raise LeadOver

    return check
