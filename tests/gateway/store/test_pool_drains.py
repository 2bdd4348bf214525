"""Orders to drain members: what workers hear of."""

import pytest

from gateway.clock import StoppedClock
from gateway.store.engine import Database
from gateway.store.pool_drains import DrainTable
from gateway.store.revisions import current


pytestmark = pytest.mark.anyio


async def test_workers_hear_of_what_changed_and_of_nothing_else(database: Database) -> None:
    """A member that is given back twice, or never was drained, has everybody read nothing anew."""
    table = DrainTable(database, StoppedClock())
    heard = [await current(database)]
    assert not await table.resume("one")
    heard.append(await current(database))
    await table.drain("one", "ada")
    heard.append(await current(database))
    assert await table.resume("one")
    heard.append(await current(database))
    assert not await table.resume("one")
    heard.append(await current(database))
    begun = heard[0]
    assert heard == [begun, begun, begun + 1, begun + 2, begun + 2]
