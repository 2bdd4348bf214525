"""Lists of batches and files: an organisation's own, and what people do to what is in them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import event, select

from gateway.clock import StoppedClock
from gateway.store.batching.files import kept_file_parts, kept_files
from gateway.store.batching.leads import RECEIVING
from gateway.store.batching.lists import LINES_MAX, BatchLists
from gateway.store.engine import Database, open_database
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.rollup import batch_costs
from tests.gateway.store.rows import filled


pytestmark = pytest.mark.anyio


class Scene:
    def __init__(self, database: Database) -> None:
        self.database, self.clock = database, StoppedClock()
        self.lists = BatchLists(database, self.clock)

    async def batch(self, name: str, state: str, *lines: str, **values: object) -> None:
        later_us = self.clock.utc_us() + 1
        row = {"organisation": "acme", "keep_until_us": later_us} | values
        async with self.database.writing() as connection:
            await connection.execute(filled(batches, id=name, state=state, **row))
            for number, each in enumerate(lines, 1):
                line = {"batch_id": name, "number": number, "state": each, "failures": number}
                await connection.execute(filled(batch_lines, **line))

    async def file(self, name: str, **values: object) -> None:
        row = {"organisation": "acme", "is_whole": True, "expires_us": self.clock.utc_us() + 1}
        async with self.database.writing() as connection:
            await connection.execute(filled(kept_files, id=name, **(row | values)))
            await connection.execute(filled(kept_file_parts, file_id=name))

    async def states(self) -> dict[str, tuple[str, str]]:
        query = select(batches.c.id, batches.c.state, batches.c.tender)
        async with self.database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return {row.id: (row.state, row.tender) for row in rows}


@pytest.fixture
async def scene(database_url: str) -> AsyncIterator[Scene]:
    database = open_database(database_url)
    yield Scene(database)
    await database.close()


async def test_a_list_holds_what_an_organisation_can_see_the_newest_first(scene: Scene) -> None:
    await scene.batch("b1", "in_progress", created_us=1)
    await scene.batch("b2", "completed", created_us=2)
    await scene.batch("b3", "completed", created_us=2)
    await scene.batch("theirs", "in_progress", organisation="globex")
    await scene.batch("coming", RECEIVING)
    await scene.batch("hidden", "completed", keep_until_us=scene.clock.utc_us())
    assert [each.id for each in await scene.lists.batches("acme")] == ["b3", "b2", "b1"]
    assert await scene.lists.states("acme") == {"completed": 2, "in_progress": 1}
    assert await scene.lists.batch("acme", "b1") is not None
    for name in ("theirs", "coming", "hidden", "none"):
        assert await scene.lists.batch("acme", name) is None


async def test_lines_are_counted_until_a_batch_is_over_and_then_what_it_says(
    scene: Scene,
) -> None:
    lines = ("waiting", "running", "running", "parked", "succeeded", "errored", "canceled")
    await scene.batch("open", "in_progress", *lines, "expired", succeeded=99)
    await scene.batch("over", "completed", *lines, succeeded=5, errored=1, canceled=1, expired=1)
    found = await scene.lists.batch("acme", "open")
    assert found is not None
    assert (found.waiting, found.running, found.parked, found.succeeded) == (1, 2, 1, 1)
    assert (found.failed, found.total, found.is_open) == (3, 8, True)
    found = await scene.lists.batch("acme", "over")
    assert found is not None
    assert (found.waiting, found.succeeded, found.failed, found.total) == (0, 5, 3, 8)
    assert not found.is_open


async def test_lines_come_in_order_and_only_so_many(scene: Scene) -> None:
    await scene.batch("a", "in_progress", *["waiting"] * (LINES_MAX + 1))
    await scene.batch("b", "in_progress", "running")
    numbers = [each.number for each in await scene.lists.lines("a")]
    assert numbers == list(range(1, LINES_MAX + 1))
    (line,) = await scene.lists.lines("b")
    assert (line.number, line.state, line.failures) == (1, "running", 1)


async def test_costs_are_an_organisations_own(scene: Scene) -> None:
    async with scene.database.writing() as connection:
        for organisation, cost in (("acme", 7), ("globex", 9)):
            row = {"organisation": organisation, "batch_id": "a", "cost_microusd": cost}
            await connection.execute(filled(batch_costs, **row))
    assert await scene.lists.costs("acme", ["a", "b"]) == {"a": 7}
    assert await scene.lists.costs("acme", ["b"]) == {}


async def test_files_are_listed_while_they_are_kept_with_the_batches_that_need_them(
    scene: Scene,
) -> None:
    now_us = scene.clock.utc_us()
    await scene.file("f1", created_us=1, size_bytes=10)
    await scene.file("f2", created_us=2, size_bytes=20)
    await scene.file("theirs", organisation="globex", size_bytes=40)
    await scene.file("coming", is_whole=False, size_bytes=80)
    await scene.file("hidden", expires_us=now_us, size_bytes=160)
    for name, state in (("b1", "validating"), ("b2", "finalizing"), ("b3", "completed")):
        await scene.batch(name, state, input_file_id="f1")
    await scene.batch("b4", "in_progress", output_file_id="f2")
    found = await scene.lists.files("acme")
    assert [(each.id, each.batches) for each in found] == [("f2", 0), ("f1", 2)]
    assert await scene.lists.kept("acme") == (2, 30)
    assert await scene.lists.kept("nobody") == (0, 0)
    for name in ("theirs", "coming", "hidden"):
        assert await scene.lists.file("acme", name) is None
        assert not await scene.lists.forget_file("acme", name)
    assert await scene.lists.forget_file("acme", "f1")
    assert not await scene.lists.forget_file("acme", "f1")
    assert [each.id for each in await scene.lists.files("acme")] == ["f2"]


async def test_of_each_file_nobody_looks_through_all_batches(sqlite_url: str) -> None:
    """With ten thousand of both the page of files was not answered within a minute."""
    database, asked = open_database(sqlite_url), list[tuple[str, Any]]()

    def hear(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        asked.append((statement, parameters))

    event.listen(database.engine.sync_engine, "before_cursor_execute", hear)
    await Scene(database).lists.files("acme")
    event.remove(database.engine.sync_engine, "before_cursor_execute", hear)
    selects = [each for each in asked if each[0].lstrip().startswith("SELECT")]
    assert selects
    async with database.reading() as connection:
        for statement, parameters in selects:
            plan = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            steps = [row.detail for row in plan]
            assert not any("CORRELATED" in step for step in steps), steps
    await database.close()


@pytest.mark.parametrize(
    ("state", "can"),
    [("validating", True), ("in_progress", True), ("finalizing", False), ("completed", False)],
)
async def test_what_is_open_can_be_cancelled_by_its_organisation(
    scene: Scene, state: str, *, can: bool
) -> None:
    await scene.batch("a", state, tender="w0.1", tended_until_us=9)
    assert not await scene.lists.cancel("globex", "a")
    assert await scene.states() == {"a": (state, "w0.1")}
    assert await scene.lists.cancel("acme", "a") == can
    assert await scene.states() == {"a": ("cancelling", "") if can else (state, "w0.1")}
    assert not await scene.lists.cancel("acme", "a")
