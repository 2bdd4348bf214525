"""Very many cases that are at their end cost nothing to find the few that are not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from sqlalchemy import delete, event, update

from gateway.store.custody.audit_folders import AuditFolder, all_folders
from gateway.store.engine import Database
from gateway.store.erasure.cases import ErasureCase
from gateway.store.erasure.folder_reports import FolderReports
from gateway.store.erasure.reach import ErasureReach
from gateway.store.schema.custody import erasure_cases, erasure_reports
from tests.gateway.store.erasure.kept_archive import line
from tests.gateway.store.erasure.test_folder_erasures import House, house
from tests.gateway.store.erasure.test_late_arrivals import Late, late


pytestmark = pytest.mark.anyio
__all__ = ["house", "late"]
Asked = list[tuple[str, Any]]


@asynccontextmanager
async def heard(database: Database) -> AsyncIterator[Asked]:
    """What the database is asked about cases meanwhile."""
    engine, asked = database.engine.sync_engine, Asked()

    def hear(_: Any, __: Any, statement: str, values: Any, *___: Any) -> None:
        if statement.startswith("SELECT") and "state = 'done'" in statement:
            asked.append((statement, values))

    event.listen(engine, "before_cursor_execute", hear)
    yield asked
    event.remove(engine, "before_cursor_execute", hear)


async def plan(database: Database, statement: str, values: Any) -> str:
    """How the database finds it where the table is long."""
    is_postgresql = database.kind == "postgresql"
    async with database.reading() as connection:
        if is_postgresql:
            await connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        explain = "EXPLAIN" if is_postgresql else "EXPLAIN QUERY PLAN"
        rows = await connection.exec_driver_sql(f"{explain} {statement}", values)
        return "\n".join(str(row[-1]) for row in rows.all())


@pytest.mark.either
async def test_each_look_goes_by_an_index_that_holds_the_unfinished_alone(
    house: House, late: Late
) -> None:
    """Of 20,000 finished cases SQLite took two seconds each minute, in each process."""
    await house.agreed("one")
    one = house.erasures("one")
    await one.tend()
    async with heard(house.database) as asked:
        await one.tend()
    async with heard(late.archive.database) as asked_late:
        await late.arrivals.tend()
    looks = [
        *[(house.database, *each) for each in asked],
        *[(late.archive.database, *each) for each in asked_late],
    ]
    plans = [await plan(*look) for look in looks]
    assert all("ix_erasure_cases_" in each for each in plans), plans
    named = {word for each in plans for word in each.split() if word.startswith("ix_erasure")}
    assert named == {
        "ix_erasure_cases_arriving",
        "ix_erasure_cases_closed",
        "ix_erasure_cases_unreached",
    }


async def settled(house: House) -> AuditFolder:
    return next(each for each in await all_folders(house.database) if "one" in each.workers)


async def forgotten(house: House, case: ErasureCase) -> None:
    """A report that nobody has any more: only who looks at the case once more misses it."""
    async with house.database.writing() as connection:
        mine = (erasure_reports.c.case_id == case.id) & (erasure_reports.c.workers == '["one"]')
        assert (await connection.execute(delete(erasure_reports).where(mine))).rowcount == 1


async def test_what_a_folder_has_done_is_not_looked_at_again(house: House) -> None:
    house.key("zoe", "one", "one")
    reports, first = FolderReports(house.database, house.clock), await house.agreed("one")
    one = house.erasures("one")
    await one.tend()
    assert (await settled(house)).settled_revision < first.closed_revision, "it is done by now"
    await one.tend()
    folder = await settled(house)
    assert (folder.settled_revision, folder.settled_workers) == (first.closed_revision, '["one"]')
    await forgotten(house, first)
    second = await house.agreed("one")
    assert [each.id for each in await reports.pending(folder)] == [second.id]


async def test_one_that_is_held_up_is_looked_at_until_it_is_done(house: House) -> None:
    house.key("ann", "one", "one")
    hold = await house.custody.set_hold("cora", "acme", "ann", "a lawsuit")
    before = await house.agreed("one", subject="bob")
    held, later = await house.agreed("one"), await house.agreed("one", subject="cleo")
    one = house.erasures("one")
    for _ in range(3):
        await one.tend()
    assert (await settled(house)).settled_revision == held.closed_revision - 1
    assert before.closed_revision < held.closed_revision < later.closed_revision
    for person in ("cora", "dan"):
        await house.custody.release_hold(person, hold.id)
    for _ in range(2):
        await one.tend()
    assert not house.subjects("one")
    assert (await settled(house)).settled_revision == later.closed_revision


async def test_a_start_and_other_keys_in_the_folder_have_every_case_looked_at(
    house: House,
) -> None:
    house.key("zoe", "one", "one")
    reports, case = FolderReports(house.database, house.clock), await house.agreed("one")
    one = house.erasures("one")
    for _ in range(2):
        await one.tend()
    folder = await settled(house)
    more = msgspec.structs.replace(folder, workers=("one", "two"))
    assert await reports.pending(folder) == []
    assert [each.id for each in await reports.pending(more)] == [case.id]
    assert (await settled(house)).settled_workers == '["one"]', "another's word changes nothing"
    await forgotten(house, case)
    await house.erasures("one").tend()
    assert "one" in [name for each in (await house.reach(case)).reports for name in each.workers]


async def test_a_case_that_an_older_program_closed_is_looked_at_each_time(house: House) -> None:
    """It told nobody when, so no folder can say that it is past it."""
    house.key("zoe", "one", "one")
    reports = FolderReports(house.database, house.clock)
    await house.agreed("one", subject="bob")
    case = await house.agreed("one", subject="bob")
    one = house.erasures("one")
    for _ in range(2):
        await one.tend()
    older = update(erasure_cases).where(erasure_cases.c.id == case.id).values(closed_revision=0)
    async with house.database.writing() as connection:
        await connection.execute(older)
    await forgotten(house, case)
    assert [each.id for each in await reports.pending(await settled(house))] == [case.id]


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
    query = erasure_cases.select().where(erasure_cases.c.id == "c2")
    async with late.archive.database.reading() as connection:
        row = (await connection.execute(query)).mappings().one()
    assert "kept_arrived" in msgspec.json.decode(row["certificate"])
