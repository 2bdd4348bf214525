"""Incidents as they are kept: every open one counts, however many there are."""

import pytest
from msgspec import structs
from sqlalchemy import insert

from gateway.clock import HOUR_US, StoppedClock
from gateway.store.custody.incidents import SHOWN_MAX, Incident, IncidentStore, Report, incidents
from gateway.store.engine import Database
from gateway.store.schema.tables import organisations


pytestmark = pytest.mark.anyio
OPEN = 250
FIRST = Incident("", "acme", "t", "loss", "", "", 0, 0, 0, "gdpr", "ann", 0)


async def test_the_oldest_of_many_open_incidents_is_the_one_that_is_late(
    database: Database,
) -> None:
    clock = StoppedClock()
    now_us, store = clock.utc_us(), IncidentStore(database, clock)
    mine = [
        structs.replace(FIRST, id=f"i{at:03}", noticed_us=now_us - at * HOUR_US)
        for at in range(OPEN)
    ]
    others = [
        structs.replace(FIRST, id="other", organisation="umbra", noticed_us=now_us),
        structs.replace(FIRST, id="over", closed_us=now_us),
    ]
    async with database.writing() as connection:
        named = [{"name": name, "title": name, "created_us": 1} for name in ("acme", "umbra")]
        await connection.execute(insert(organisations), named)
        await connection.execute(insert(incidents), [*map(structs.asdict, mine + others)])
    assert await store.mark(Report("i249", "gdpr-authority", now_us, "r", "ann", now_us))

    standing = await store.standing(["acme"])
    assert [each.id for each, _ in standing] == [each.id for each in mine]
    states = {each.id: running[0].state for each, running in standing}
    assert (states["i072"], states["i073"], states["i249"]) == (
        *("running", "overdue", "reported late"),
    )
    assert {each.id for each, _ in await store.standing(None)} == {*states, "other"}
    assert await store.standing([]) == []
    shown = await store.listed("acme")
    assert [each.id for each in shown] == [each.id for each in mine][:SHOWN_MAX]
