"""Ordered connection tests in the database: one per provider, taken once, told to the end."""

import asyncio

import pytest

from gateway.clock import StoppedClock
from gateway.errors import Exhausted
from gateway.oversight.checkup import Checkup, Step, skipped
from gateway.store.checkups import (
    CLAIM_WITHIN_US,
    END_WITHIN_US,
    PAUSE_US,
    PER_MINUTE_MAX,
    CheckupTable,
)
from gateway.store.engine import Database


pytestmark = pytest.mark.anyio


@pytest.fixture
def table(database: Database, clock: StoppedClock) -> CheckupTable:
    return CheckupTable(database, clock)


async def test_an_order_is_taken_by_one_of_many_workers_and_told_step_by_step(
    table: CheckupTable, clock: StoppedClock
) -> None:
    order = await table.ask("a1", "openai", "fast", "ann")
    assert order.state(clock.utc_us()) == "waiting"

    taken = await asyncio.gather(*(table.claim(f"w{n}", ["openai", "other"]) for n in range(8)))
    (claimed,) = [each for each in taken if each is not None]
    assert (await table.all())["openai"].state(clock.utc_us()) == "running"
    first = Step("name", "good", "ok", "10.0.0.1", 7)
    await table.tell(claimed, Checkup((first,)))
    assert (await table.all())["openai"].found.steps == (first,)
    whole = Checkup((first, *skipped("not_tried", "call")), "abcd", 3, 1, 9)
    await table.tell(claimed, whole, is_end=True)

    ended = (await table.all())["openai"]
    assert ended.found == whole
    assert (ended.worker, ended.asked_by, ended.target) == (claimed.worker, "ann", "fast")
    assert ended.state(clock.utc_us()) == "ended"


async def test_a_worker_takes_only_what_it_is_configured_for(table: CheckupTable) -> None:
    await table.ask("a1", "openai", "", "ann")

    assert await table.claim("w0", ["other"]) is None
    assert await table.claim("w0", []) is None
    assert await table.claim("w1", ["openai"]) is not None


async def test_what_nobody_took_soon_is_never_done(
    table: CheckupTable, clock: StoppedClock
) -> None:
    order = await table.ask("a1", "openai", "", "ann")
    clock.advance(CLAIM_WITHIN_US / 1e6 + 1)

    assert order.state(clock.utc_us()) == "unclaimed"
    assert await table.claim("late", ["openai"]) is None


async def test_of_one_provider_one_test_runs_at_a_time_and_a_lost_one_stops_nobody(
    table: CheckupTable, clock: StoppedClock
) -> None:
    await table.ask("a1", "openai", "", "ann")
    with pytest.raises(Exhausted, match="under way"):
        await table.ask("a2", "openai", "", "bob")
    assert await table.claim("w0", ["openai"]) is not None
    clock.advance(CLAIM_WITHIN_US / 1e6 + 1)
    with pytest.raises(Exhausted, match="under way"):
        await table.ask("a2", "openai", "", "bob")
    clock.advance(END_WITHIN_US / 1e6)
    lost = (await table.all())["openai"]
    assert lost.state(clock.utc_us()) == "lost"
    newer = await table.ask("a3", "openai", "", "bob")

    # The worker that was thought lost ends after all: what it says is of no test any more.
    await table.tell(lost, Checkup((Step("name", "bad", "timeout"),)), is_end=True)
    assert (await table.all())["openai"] == newer


async def test_two_who_ask_in_the_same_moment_get_one_test(table: CheckupTable) -> None:
    asked = await asyncio.gather(
        *(table.ask(f"a{n}", "openai", "", f"p{n}") for n in range(6)), return_exceptions=True
    )

    refused = [each for each in asked if isinstance(each, BaseException)]
    assert len(refused) == 5
    assert all(isinstance(each, Exhausted) for each in refused)


async def test_there_are_only_a_few_tests_a_minute_and_a_pause_between_two(
    table: CheckupTable, clock: StoppedClock
) -> None:
    for number in range(PER_MINUTE_MAX):
        await table.ask(f"a{number}", f"p{number}", "", "ann")
    with pytest.raises(Exhausted, match="last minute"):
        await table.ask("b", "another", "", "ann")
    clock.advance(61)
    await table.ask("b", "another", "", "ann")
    claimed = await table.claim("w0", ["another"])
    assert claimed is not None
    await table.tell(claimed, Checkup(), is_end=True)
    with pytest.raises(Exhausted, match="a moment ago"):
        await table.ask("c", "another", "", "ann")
    clock.advance(PAUSE_US / 1e6)
    await table.ask("c", "another", "", "ann")
