"""A clock set too far ahead or back for a while causes no loss, gap or delay."""

import secrets

import pytest
from msgspec.structs import asdict
from sqlalchemy import func, insert, select, update

from gateway.batches import Batch
from gateway.clock import DAY_US, HOUR_US, StoppedClock
from gateway.configuration.sections import ResponsesSettings
from gateway.configuration.settings import Limits
from gateway.continuing.conversing import Conversations
from gateway.continuing.kept_answers import KeptAnswer
from gateway.continuing.kept_conversations import MemoryConversations
from gateway.continuing.threads import Threads
from gateway.drift.hours import Judged
from gateway.money.alerting import CLAIM_US
from gateway.projects import Project
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.files import FileStore
from gateway.store.custody.reveal_reports import RevealReports, Week
from gateway.store.engine import Database
from gateway.store.kept_answers import DatabaseAnswers
from gateway.store.schema.custody import reveal_reports
from gateway.store.schema.profiles import drifts
from gateway.store.schema.rollup import traffic_hours
from gateway.store.schema.tables import organisations
from gateway.store.schema.unusual_hours import unusual_hours
from gateway.store.traffic.drifts import Drift, DriftTable
from gateway.store.traffic.profiles import KEPT_US, ProfileHours
from gateway.store.traffic.rollup import HOURS_KEPT, Rollup
from gateway.store.traffic.unusual_hours import UnusualHours
from tests.gateway.store.profiling import World, intent
from tests.gateway.store.rows import filled


pytestmark = pytest.mark.anyio

PROJECT = Project("acme", "research", "assistant")
HOUR_S, DAY_S = 3600.0, 86_400.0
YEAR_S = 365 * DAY_S


async def count_of(database: Database, table: object) -> int:
    async with database.reading() as connection:
        query = select(func.count()).select_from(table)  # type: ignore[arg-type]
        return int((await connection.execute(query)).scalar_one())


async def test_files_and_batches_are_there_when_it_is_set_right_again(database: Database) -> None:
    clock = StoppedClock()
    master = MasterKey(Secret(secrets.token_bytes(32)))
    files, batches = FileStore(database, master, clock), BatchStore(database, master, clock)
    until_us = clock.utc_us() + 30 * DAY_US
    writer = await files.begin(PROJECT, "k1", "batch")
    await writer.write(b"a line\n")
    arriving = await files.begin(PROJECT, "k1", "batch")
    file = await writer.finish("lines.jsonl", until_us)
    ended = Batch(
        *("batch_", "file", PROJECT, "k1", "/v1/chat/completions", "completed"),
        *(clock.utc_us(), until_us, until_us),
    )
    batch = await batches.make(ended)

    clock.jump(YEAR_S)
    assert await files.find(PROJECT, file.file_id) is None, "it is over, as long as that is so"
    assert (await files.forget_expired(), await batches.forget_expired()) == (0, 0)
    clock.jump(-YEAR_S)

    assert b"".join([piece async for piece in files.content(file)]) == b"a line\n"
    assert await batches.find(PROJECT, batch.batch_id, "file") is not None
    await arriving.write(b"more of what was arriving")
    await arriving.finish("more.jsonl", until_us)
    clock.advance(31 * DAY_S)
    assert (await files.forget_expired(), await batches.forget_expired()) == (2, 1)


async def test_kept_answers_are_too(database: Database) -> None:
    clock, until_us = StoppedClock(), StoppedClock().utc_us() + 30 * DAY_US
    store = DatabaseAnswers(database, MasterKey(Secret(secrets.token_bytes(32))))
    talks = Conversations(MemoryConversations(), clock, ResponsesSettings(), Limits())
    threads = Threads(store, clock, ResponsesSettings(), Limits(), talks)
    kept = KeptAnswer("resp_1", PROJECT, "k1", "", "S1", clock.utc_us(), until_us, b"[]", b"{}")
    await store.keep(kept)
    for jump_s in (YEAR_S, -YEAR_S):
        clock.jump(jump_s)
        await threads.tidy()
    assert await store.find(PROJECT, "resp_1", clock.utc_us()) is not None
    clock.advance(31 * DAY_S)
    await threads.tidy()
    assert await store.find(PROJECT, "resp_1", 0) is None


async def test_sums_of_hours_are_too(database: Database) -> None:
    clock = StoppedClock()
    rollup, found = Rollup(database, clock), UnusualHours(database, clock)
    hour_us = clock.utc_us() // HOUR_US * HOUR_US
    async with database.writing() as connection:
        await connection.execute(filled(traffic_hours, organisation="acme", hour_us=hour_us))
    await found.put("acme", hour_us, "key", "k1", Judged(9, 1, 1, 2, 4))

    for jump_s in (3 * YEAR_S, -3 * YEAR_S):
        clock.jump(jump_s)
        await rollup.tidy()
        await found.tidy()
    assert [await count_of(database, each) for each in (traffic_hours, unusual_hours)] == [1, 1]
    clock.advance((HOURS_KEPT + 1) * HOUR_S)
    await rollup.tidy()
    assert await count_of(database, traffic_hours) == 0


@pytest.fixture
async def world(database: Database) -> World:
    return World(database)


@pytest.mark.parametrize("jump_s", [HOUR_S, YEAR_S])
async def test_an_hour_is_profiled_when_it_has_passed(world: World, jump_s: float) -> None:
    worker, hour_us = world.worker(), world.start_us + HOUR_US
    await world.store(intent(world.start_us + 1), intent(hour_us + 1))
    assert await world.gathered(worker) == [world.start_us]
    world.clock.jump(jump_s)
    assert (await worker.due(9), await world.gathered(worker)) == ([], [])
    await worker.tidy("acme")
    world.clock.jump(-jump_s)
    await world.store(intent(hour_us + 2))
    world.clock.advance(HOUR_S)
    assert await worker.due(9) == ["acme"]
    assert await world.gathered(worker) == [hour_us]
    counts = await worker.counts("acme", 0, 1 << 62)
    assert counts == {("prompts", "auto"): {world.start_us: 1, hour_us: 2}}


@pytest.mark.long
@pytest.mark.either
async def test_what_a_worker_profiled_that_was_started_by_such_a_clock_is_begun_again(
    world: World,
) -> None:
    worker, hour_us = world.worker(), world.start_us + HOUR_US
    await world.store(intent(world.start_us + 1))
    assert await world.gathered(worker) == [world.start_us]
    world.clock.jump(YEAR_S)
    ahead = world.worker()
    await world.gathered(ahead)
    assert await ahead.claim("acme") is None
    world.clock.jump(-YEAR_S)
    await world.store(intent(hour_us + 1))
    assert await worker.due(9) == ["acme"]
    assert await world.gathered(worker) == []
    assert await worker.due(9) == []
    world.clock.advance(HOUR_S)
    assert await world.gathered(worker) == [hour_us]


async def test_a_profile_that_it_was_about_to_make_is_made_by_another(world: World) -> None:
    await world.store(intent(world.start_us + 1))
    world.clock.jump(YEAR_S)
    assert await ProfileHours(world.database, world.sink, world.clock).claim("acme") is not None
    world.clock.jump(-YEAR_S)
    assert KEPT_US < YEAR_S * 1e6
    assert await world.worker().due(9) == ["acme"]
    assert await world.gathered(world.worker()) == [world.start_us]


async def test_who_was_to_be_told_is_told_by_another(database: Database) -> None:
    """A worker claimed it by that clock, and ended before its web hook had taken it."""
    clock = StoppedClock()
    now_us, ahead_us = clock.utc_us(), clock.utc_us() + HOUR_US
    hour_us = now_us // HOUR_US * HOUR_US
    drift = Drift("d1", "acme", "prompts", "auto", "open", 1, 1, 1, "", claimed_us=ahead_us)
    found, table = UnusualHours(database, clock), DriftTable(database, clock)
    await found.put("acme", hour_us, "key", "k1", Judged(9, 1, 1, 2, 4))
    reports = RevealReports(database, clock)
    week = Week("acme", now_us - 7 * DAY_US, now_us, "2027-01-11")
    async with database.writing() as connection:
        await connection.execute(filled(organisations, name="acme"))
    assert await reports.claim(week) == "new"
    async with database.writing() as connection:
        await connection.execute(insert(drifts), asdict(drift))
        for each in (unusual_hours, reveal_reports):
            await connection.execute(update(each).values(claimed_us=ahead_us))

    assert await reports.claim(week) == "again"
    assert await reports.claim(week) == ""
    assert [len(await each.due()) for each in (table, found)] == [1, 1]
    assert [len(await each.due()) for each in (table, found)] == [0, 0]
    async with database.writing() as connection:
        await connection.execute(update(reveal_reports).values(made_us=now_us, claimed_us=ahead_us))
    assert len(await reports.due()) == 1
    clock.advance(CLAIM_US / 1e6)
    assert [len(await each.due()) for each in (table, found, reports)] == [1, 1, 1]
