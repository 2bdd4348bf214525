"""Long certificates are not read each minute to find the few cases that wait for something."""

from typing import Any

import msgspec
import pytest
from sqlalchemy import event, update

from gateway.store.custody.erasure_reach import ErasureReach
from gateway.store.schema.custody import erasure_cases
from tests.gateway.store.custody.kept_archive import line
from tests.gateway.store.custody.test_late_arrivals import Late, late


pytestmark = pytest.mark.anyio
__all__ = ["late"]


async def searches(late: Late, reach: ErasureReach) -> int:
    """How often certificates were searched in one pass of both duties."""
    engine, asked = late.archive.database.engine.sync_engine, list[str]()

    def hear(_: Any, __: Any, statement: str, *___: Any) -> None:
        asked.append(statement)

    event.listen(engine, "before_cursor_execute", hear)
    await late.arrivals.tend()
    await reach.note_reached()
    event.remove(engine, "before_cursor_execute", hear)
    return sum("certificate LIKE" in each for each in asked)


async def test_a_certificate_that_waits_for_nothing_is_read_once(late: Late) -> None:
    """Ten thousand of 20 KB took PostgreSQL a fifth of a second, twice a minute in each process."""
    reach = ErasureReach(late.archive.database, late.archive.clock)
    assert await searches(late, reach) == 0
    await late.erased()
    assert [await searches(late, reach) for _ in range(3)] == [2, 0, 0]
    await late.erased(case_id="c2")
    assert [await searches(late, reach) for _ in range(2)] == [2, 0]


async def test_one_that_waits_is_read_until_it_does_not(late: Late) -> None:
    reach = ErasureReach(late.archive.database, late.archive.clock)
    await late.erased()
    writer = await late.began(line("ann"))
    await late.erased(writer.file.file_id, case_id="c2")
    closed = update(erasure_cases).where(erasure_cases.c.id == "c2").values(closed_us=7)
    async with late.archive.database.writing() as connection:
        await connection.execute(closed)
    for _ in range(3):
        assert await late.tended() == 0
        assert await reach.note_reached() == 7
    await writer.discard()
    await late.tended()
    assert await reach.note_reached() == 0
    assert [await searches(late, reach) for _ in range(2)] == [1, 0]
    query = erasure_cases.select().where(erasure_cases.c.id == "c2")
    async with late.archive.database.reading() as connection:
        row = (await connection.execute(query)).mappings().one()
    assert "kept_arrived" in msgspec.json.decode(row["certificate"])
