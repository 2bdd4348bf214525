"""Profiles in the database: each hour gathered once, from a bounded sample, whoever gathers."""

from collections.abc import AsyncIterator

import anyio
import pytest

from gateway.clock import DAY_US, HOUR_US
from gateway.drift.judging import DAYS, Rules, Shift, Verdict
from gateway.errors import RequestInvalid
from gateway.store.engine import open_database
from gateway.store.traffic import profiles
from gateway.store.traffic.comparing import compared
from gateway.store.traffic.drifts import CALM_LEAST, Drift
from gateway.store.traffic.profiles import KEPT_US, SAMPLE, ProfileHours
from gateway.types import AuditRecord
from tests.gateway.store.profiling import World, intent


pytestmark = pytest.mark.anyio


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    database = open_database(database_url)
    yield World(database)
    await database.close()


async def test_each_hour_is_gathered_once_and_only_when_it_is_over(world: World) -> None:
    first_us = world.start_us - 2 * HOUR_US
    await world.store(
        *(intent(first_us + number) for number in range(3)),
        *(intent(world.start_us + number, 9_000) for number in range(4)),
        intent(world.start_us + HOUR_US + 1),
    )
    one, other = world.worker(), world.worker()
    done: list[int] = []

    async def work(worker: ProfileHours) -> None:
        done.extend(await world.gathered(worker))

    async with anyio.create_task_group() as both:
        both.start_soon(work, one)
        both.start_soon(work, other)
    done += await world.gathered(one)

    assert sorted(done) == [first_us, first_us + HOUR_US, world.start_us]
    assert await one.due(10) == []
    counts = await one.counts("acme", 0, 1 << 62)
    assert counts == {("prompts", "auto"): {first_us: 3, world.start_us: 4}}
    found = await one.read("acme", "prompts", ["auto"], [world.start_us])
    assert found["auto"][world.start_us].bins["tokens"] == {"6": 4}

    world.clock.advance(3600)
    assert await one.due(10) == ["acme"]
    assert await world.gathered(other) == [world.start_us + HOUR_US]


async def test_a_claim_that_nobody_finished_is_taken_over(world: World) -> None:
    await world.store(intent(world.start_us))
    lost, other = world.worker(), world.worker()
    hour = await lost.claim("acme")
    assert hour is not None

    assert await other.claim("acme") is None
    assert await other.due(10) == []
    world.clock.advance(301)
    assert await world.gathered(other) == [world.start_us]
    assert not await lost.gather(hour)
    counts = await other.counts("acme", 0, 1 << 62)
    assert counts["prompts", "auto"] == {world.start_us: 1}


async def test_an_answer_that_two_workers_recorded_is_profiled_once(world: World) -> None:
    line = AuditRecord(
        *("outcome", "req_1", "acme", world.start_us),
        target="small",
        status="ok",
        detail={"batch": "batch_1", "line": "1"},
    )
    await world.store(line, line)
    await world.gathered(world.worker())
    counts = await world.worker().counts("acme", 0, 1 << 62)
    assert counts["answers", "small"] == {world.start_us: 1}


async def test_an_hour_costs_so_many_records_however_many_there_are(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "SAMPLE", 400)
    step_us = HOUR_US // 2_100
    await world.store(
        *(intent(world.start_us + n * step_us, 9_000 if n % 3 else 10) for n in range(2_000))
    )
    worker = world.worker()
    await world.gathered(worker)

    found = (await worker.read("acme", "prompts", ["auto"], [world.start_us]))["auto"]
    profile = found[world.start_us]
    assert SAMPLE > profile.count == 400
    assert 0.25 < profile.bins["tokens"]["0"] / 400 < 0.42


async def test_names_that_callers_make_up_have_bounds(world: World) -> None:
    names = [f"model {number} " + "x" * 300 for number in range(90)]
    await world.store(*(intent(world.start_us + n, model=name) for n, name in enumerate(names)))
    worker = world.worker()
    await world.gathered(worker)

    found = await worker.counts("acme", 0, 1 << 62)
    assert len(found) == profiles.SCOPES_MAX
    assert max(len(scope) for _, scope in found) == profiles.SCOPE_CHARS


async def test_hours_that_no_reference_reaches_are_forgotten(world: World) -> None:
    await world.store(intent(world.start_us))
    worker = world.worker()
    await world.gathered(worker)
    await worker.tidy("acme")
    assert await worker.counts("acme", 0, 1 << 62)

    world.clock.advance(KEPT_US / 1e6 + 7_200)
    await worker.tidy("acme")
    assert await worker.counts("acme", 0, 1 << 62) == {}


async def test_a_worker_that_was_away_for_months_begins_with_what_can_be_compared(
    world: World,
) -> None:
    await world.store(intent(world.start_us - 400 * DAY_US), intent(world.start_us))
    hour = await world.worker().claim("acme")

    assert hour is not None
    assert hour.start_us == world.start_us - (DAYS + 1) * DAY_US


async def test_now_is_compared_with_the_same_hour_of_the_days_before(world: World) -> None:
    days = [
        intent(world.start_us - day * DAY_US + number, 300 if number % 5 else 3_000)
        for day in reversed(range(1, 9))
        for number in range(200)
    ]
    today = [intent(world.start_us + n, 300 if n % 2 else 9_000) for n in range(250)]
    await world.store(*days, *today)
    worker = world.worker()
    await world.gathered(worker)
    until_us = world.start_us + HOUR_US

    (found,) = await compared(worker, [], "acme", until_us, Rules())
    assert (found.kind, found.scope, found.verdict.days) == ("prompts", "auto", 8)
    assert (found.since_us, found.now.count, found.reference.count) == (world.start_us, 250, 1_600)
    assert found.verdict.state == "drifted"
    assert found.verdict.said == "prompts over 8,000 tokens: 50% instead of 0%"
    begun = await world.table.look(
        None, ("acme", "prompts", "auto"), found.verdict, found.since_us, ""
    )
    assert begun is not None
    # What is seen later is still compared with the days before it began.
    (again,) = await compared(worker, [begun], "acme", until_us, Rules())
    assert again.verdict == found.verdict
    assert await compared(worker, [], "acme", until_us, Rules(), only=("prompts", "no")) == []


DRIFTED = Verdict("drifted", 300, 9_000, 28, (Shift("tokens", 0.4, 0.01, 9.0, True, "longer"),))
STEADY, QUIET = Verdict("steady", 300, 9_000, 28), Verdict("quiet", 3, 9_000, 28)


async def seen(world: World, known: Drift | None, *verdicts: Verdict) -> Drift | None:
    for verdict in verdicts:
        world.clock.advance(3_600)
        known = await world.table.look(known, ("acme", "prompts", "auto"), verdict, 7, "promise")
    return known


async def test_a_drift_is_suspected_open_and_over(world: World) -> None:
    assert await seen(world, None, STEADY, QUIET) is None
    suspected = await seen(world, None, DRIFTED)
    assert suspected is not None
    assert (suspected.state, suspected.began_us) == ("suspected", 7)
    assert await seen(world, suspected, QUIET) == suspected
    assert await world.table.acting() == []
    assert await seen(world, suspected, STEADY) is None
    assert await world.table.of("acme") == []

    drift = await seen(world, None, DRIFTED, DRIFTED)
    assert drift is not None
    assert (drift.state, drift.said, drift.guarantee) == ("open", "longer", "promise")
    assert await world.table.acting() == [drift]
    assert await world.table.open(["acme"], 5) == [drift] == await world.table.open(None, 5)
    assert await world.table.open(["globex"], 5) == []

    drift = await seen(world, drift, *[STEADY] * (CALM_LEAST - 1), DRIFTED, QUIET)
    assert drift is not None
    assert (drift.state, drift.calm) == ("open", 0)
    drift = await seen(world, drift, *[STEADY] * CALM_LEAST)
    assert drift is not None
    assert (drift.state, drift.ended_us) == ("ended", world.clock.utc_us())
    assert await world.table.of("acme") == [drift]
    assert await world.table.acting() == []


async def test_what_somebody_accepts_is_over_and_keeps_its_promise_withdrawn(world: World) -> None:
    drift = await seen(world, None, DRIFTED, DRIFTED)
    assert drift is not None
    accepted = await world.table.accept("acme", drift.id, "ann", "a new application")

    assert (accepted.state, accepted.ended_by) == ("accepted", "ann")
    assert await world.table.acting() == [accepted]
    assert await world.table.open(None, 5) == []
    # A look that began before finds that somebody was faster.
    assert await seen(world, drift, DRIFTED) is None
    for organisation, name in (("acme", drift.id), ("globex", drift.id), ("acme", "no")):
        with pytest.raises(RequestInvalid):
            await world.table.accept(organisation, name, "ann", "again")


async def test_an_alarm_is_told_once_whoever_tells_it(world: World) -> None:
    drift = await seen(world, None, DRIFTED, DRIFTED)
    assert drift is not None
    (due,) = await world.table.due()

    assert due.id == drift.id
    assert await world.table.due() == []
    world.clock.advance(61)
    assert len(await world.table.due()) == 1
    await world.table.sent(due)
    world.clock.advance(61)
    assert await world.table.due() == []
