"""Reports of workers: one row each, overwritten, left in good order or forgotten after a day."""

import asyncio

import pytest

from gateway.oversight.workers import FORGOTTEN_AFTER_S, MemberReport, WorkerReport
from gateway.store.engine import Database
from gateway.store.workers import TIDIED_EVERY_US, WorkerTable


pytestmark = pytest.mark.anyio
NOW_US = 1_800_000_000_000_000


@pytest.fixture
def table(database: Database) -> WorkerTable:
    return WorkerTable(database)


def said(worker: str, seen_us: int = NOW_US, *, started_us: int = 1) -> WorkerReport:
    members = (MemberReport(provider="house", member="a", waiting=2),)
    return WorkerReport(worker, seen_us, started_us=started_us, members=members)


async def test_a_worker_has_one_row_with_its_newest_word(table: WorkerTable) -> None:
    await table.put(said("w1"))
    await table.put(said("w0"))
    await table.put(said("w1", NOW_US + 5))

    assert list(await table.all()) == [said("w0"), said("w1", NOW_US + 5)]


async def test_who_said_nothing_for_a_day_is_forgotten(table: WorkerTable) -> None:
    day_us = round(FORGOTTEN_AFTER_S * 1e6)
    await table.put(said("old", NOW_US - day_us - 1))
    await table.put(said("quiet", NOW_US - day_us))
    await table.put(said("w0"))

    assert [each.worker for each in await table.all()] == ["quiet", "w0"]


async def test_whose_day_is_over_later_is_forgotten_within_an_hour(
    table: WorkerTable, database: Database
) -> None:
    day_us = round(FORGOTTEN_AFTER_S * 1e6)
    await table.put(said("w0"))
    await WorkerTable(database).put(said("old", NOW_US - day_us))
    await table.put(said("w0", NOW_US + TIDIED_EVERY_US - 1))
    assert len(await table.all()) == 2, "nothing is looked for with each report"
    await table.put(said("w0", NOW_US + TIDIED_EVERY_US))
    assert [each.worker for each in await table.all()] == ["w0"]


async def test_who_stops_in_good_order_takes_only_its_own_row(table: WorkerTable) -> None:
    await table.put(said("w0", started_us=2))
    await table.put(said("w1"))

    await table.leave("w0", 1)
    assert len(await table.all()) == 2, "the row is that of the process after it"
    await table.leave("w0", 2)
    assert [each.worker for each in await table.all()] == ["w1"]


async def test_many_workers_may_say_something_at_once(table: WorkerTable) -> None:
    stale = NOW_US - round(FORGOTTEN_AFTER_S * 1e6) - 1
    await table.put(said("gone", stale))
    names = [f"w{number}" for number in range(5)]
    for _ in range(3):
        await asyncio.gather(*(table.put(said(name)) for name in names))

    assert [each.worker for each in await table.all()] == names
