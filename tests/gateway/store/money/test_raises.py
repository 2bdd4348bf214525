"""Larger limits by two people, for good or for a time, also where other changes come between."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.audit.memory import MemoryAuditLog
from gateway.clock import StoppedClock
from gateway.errors import AuditUnavailable, ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.money.budgets import BudgetKey, Limit
from gateway.oversight.deeds import Deeds
from gateway.store.engine import Database, open_database
from gateway.store.money.leases import LeaseTable
from gateway.store.money.raises import BudgetRaise, BudgetRaises, RaiseWish
from gateway.store.money.recorded_raises import RecordedRaises, end_of_day_us


pytestmark = pytest.mark.anyio
TEAM = BudgetKey("ws:acme/research", "month")
HAD, WANTED = 100_000_000, 250_000_000
NOW_US = 1_800_000_000_000_000
DAY_US = 86_400_000_000


class Desk:
    """One limit of one organisation, and what is asked of it."""

    def __init__(self, database: Database, clock: StoppedClock) -> None:
        self.raises, self.limits = BudgetRaises(database, clock), LeaseTable(database, clock)
        self.clock, self.log = clock, MemoryAuditLog()

    async def ask(
        self, wanted: int = WANTED, *, seen: int = HAD, until_us: int = 0, by: str = "petra"
    ) -> BudgetRaise:
        wish = RaiseWish(TEAM.account, TEAM.window, wanted, until_us, "the quarter's reports")
        return await self.raises.ask("acme", wish, by, seen_microusd=seen)

    async def approve(self, asked: BudgetRaise, by: str = "paul") -> BudgetRaise:
        return await self.raises.approve("acme", asked.id, by, "as planned")

    async def limit(self) -> int | None:
        found = {each.limit.key: each.limit for each in await self.limits.budgets()}
        return found[TEAM].limit_microusd if TEAM in found else None

    async def state(self, asked: BudgetRaise) -> str:
        found = await self.raises.one("acme", asked.id)
        return found.state if found else ""

    async def end(self) -> int:
        """As every process does it each minute; how many were over."""
        over = await self.raises.over()
        await RecordedRaises(self.raises, Deeds(self.log, self.clock)).tend()
        return len(over)

    @property
    def ended(self) -> list[str]:
        """What became of each end that is on record."""
        told = [each for each in self.log.records if each.action == "budget.raise_ended"]
        return [each.error or each.status for each in told]


class SeenOver(BudgetRaises):
    """Of a process that saw what is over before another one was at it."""

    def __init__(self, database: Database, clock: StoppedClock, seen: list[BudgetRaise]) -> None:
        super().__init__(database, clock)
        self._seen = seen

    async def over(self) -> list[BudgetRaise]:
        return self._seen


@pytest.fixture
async def desk(database_url: str) -> AsyncIterator[Desk]:
    database, clock = open_database(database_url), StoppedClock(NOW_US)
    desk = Desk(database, clock)
    await desk.limits.set_limit(Limit(TEAM.account, HAD, TEAM.window))
    await desk.log.start()
    yield desk
    await database.close()


async def test_nothing_changes_until_another_person_agrees(desk: Desk) -> None:
    asked = await desk.ask()
    assert (await desk.limit(), asked.back_microusd) == (HAD, HAD)
    for same in ("petra", "Petra ", "os:petra", "admin-token", ""):
        with pytest.raises(Forbidden):
            await desk.approve(asked, same)
    assert await desk.limit() == HAD
    with pytest.raises(RequestInvalid, match="nothing of this id"):
        await desk.raises.approve("umbrella", asked.id, "paul", "not theirs")
    after = await desk.approve(asked)
    assert (after.state, after.decided_by, await desk.limit()) == ("approved", "paul", WANTED)
    with pytest.raises(RequestInvalid, match="approved"):
        await desk.approve(asked)


async def test_it_is_declined_by_others_and_taken_back_by_who_asked(desk: Desk) -> None:
    asked = await desk.ask()
    for actor, state in (("petra", "declined"), ("paul", "withdrawn")):
        with pytest.raises(Forbidden):
            await desk.raises.end("acme", asked.id, actor, "", state)  # type: ignore[arg-type]
    await desk.raises.end("acme", asked.id, "paul", "not this month", "declined")
    again = await desk.ask()
    await desk.raises.end("acme", again.id, "petra", "", "withdrawn")
    assert [await desk.state(each) for each in (asked, again)] == ["declined", "withdrawn"]
    assert await desk.limit() == HAD
    # Who asked hears what others decided, and not what they took back themselves.
    assert [each.id for each in await desk.raises.decided_since(0, "petra")] == [asked.id]


async def test_what_is_no_more_or_not_as_it_was_seen_or_asked_twice_is_refused(desk: Desk) -> None:
    for wanted in (HAD, HAD - 1, 0):
        with pytest.raises(RequestInvalid, match="no more"):
            await desk.ask(wanted)
    with pytest.raises(ChangedMeanwhile):
        await desk.ask(seen=HAD - 1)
    with pytest.raises(RequestInvalid, match="over"):
        await desk.ask(until_us=NOW_US)
    await desk.ask()
    with pytest.raises(RequestInvalid, match="already"):
        await desk.ask(WANTED + 1, by="otto")
    assert (await desk.raises.waiting_by("acme")) == {"petra": 1}
    assert (await desk.raises.waiting("umbrella")).count == 0


async def test_for_a_time_it_is_what_it_was_again_at_the_end(desk: Desk) -> None:
    asked = await desk.ask(until_us=NOW_US + DAY_US)
    await desk.approve(asked)
    assert (await desk.end(), await desk.limit()) == (0, WANTED)
    desk.clock.advance(86_400)
    assert (await desk.end(), await desk.limit()) == (1, HAD)
    assert (await desk.state(asked), await desk.end()) == ("ended", 0)


async def test_more_on_top_of_what_holds_for_a_time_ends_where_it_began(desk: Desk) -> None:
    await desk.approve(await desk.ask(until_us=NOW_US + DAY_US))
    with pytest.raises(RequestInvalid, match="ends later"):
        await desk.ask(WANTED * 2, seen=WANTED, until_us=NOW_US + DAY_US - 1)
    more = await desk.ask(WANTED * 2, seen=WANTED, until_us=NOW_US + 2 * DAY_US)
    await desk.approve(more)
    desk.clock.advance(86_400)
    assert (await desk.end(), await desk.limit()) == (0, WANTED * 2)
    desk.clock.advance(86_400)
    assert (await desk.end(), await desk.limit()) == (1, HAD), "not what held for a time only"


@pytest.mark.parametrize("is_removed", [True, False])
async def test_another_limit_overtakes_what_waits_and_what_holds_for_a_time(
    desk: Desk, is_removed: bool
) -> None:
    held = await desk.ask(until_us=NOW_US + DAY_US)
    await desk.approve(held)
    waits = await desk.ask(WANTED * 2, seen=WANTED)
    if is_removed:
        await desk.limits.remove_limit(TEAM.account)
    else:
        await desk.limits.set_limit(Limit(TEAM.account, 7, TEAM.window))
    assert [await desk.state(each) for each in (held, waits)] == ["overtaken", "overtaken"]
    with pytest.raises(RequestInvalid, match="overtaken"):
        await desk.approve(waits)
    desk.clock.advance(86_400)
    assert (await desk.end(), await desk.limit()) == (0, None if is_removed else 7)


async def test_what_nobody_decides_in_time_waits_for_nobody(desk: Desk) -> None:
    late = await desk.ask(until_us=NOW_US + DAY_US)
    desk.clock.advance(86_400)
    assert (await desk.raises.waiting("acme")).count == 0
    assert (await desk.state(late), await desk.raises.waiting_by("acme")) == ("ended", {})
    with pytest.raises(RequestInvalid, match="ended"):
        await desk.approve(late)
    assert (await desk.ask()).state == "waiting"


async def test_of_two_who_decide_at_once_one_is_told_so(desk: Desk) -> None:
    asked = await desk.ask()
    both = await asyncio.gather(
        desk.approve(asked), desk.approve(asked, "paula"), return_exceptions=True
    )
    done = [each for each in both if isinstance(each, BudgetRaise)]
    assert len(done) == 1
    assert await desk.limit() == WANTED
    found = await desk.raises.one("acme", asked.id)
    assert found is not None
    assert found.decided_by == done[0].decided_by


async def test_of_many_who_see_that_its_time_is_over_one_ends_it(
    desk: Desk, database_url: str
) -> None:
    asked = await desk.ask(until_us=NOW_US + DAY_US)
    await desk.approve(asked)
    desk.clock.advance(86_400)
    databases = [open_database(database_url) for _ in range(4)]
    deeds, seen = Deeds(desk.log, desk.clock), await desk.raises.over()
    raises = [SeenOver(each, desk.clock, seen) for each in databases]
    await asyncio.gather(*(RecordedRaises(each, deeds).tend() for each in raises))
    assert (await desk.limit(), await desk.state(asked), desk.ended) == (HAD, "ended", ["ok"])
    # Neither does one who comes late, after somebody made it as large for good.
    await desk.limits.set_limit(Limit(TEAM.account, WANTED, TEAM.window))
    await RecordedRaises(raises[0], deeds).tend()
    assert (await desk.limit(), await desk.state(asked), desk.ended) == (WANTED, "ended", ["ok"])
    for each in databases:
        await each.close()


async def test_what_cannot_be_recorded_does_not_end_yet(desk: Desk) -> None:
    asked = await desk.ask(until_us=NOW_US + DAY_US)
    await desk.approve(asked)
    desk.clock.advance(86_400)
    desk.log.failing = True
    with pytest.raises(AuditUnavailable):
        await desk.end()
    assert (await desk.limit(), await desk.state(asked)) == (WANTED, "approved")
    desk.log.failing = False
    assert await desk.end() == 1
    assert (await desk.limit(), desk.ended) == (HAD, ["ok"])


def test_a_day_is_over_at_midnight_of_its_organisation() -> None:
    assert end_of_day_us("", "UTC", NOW_US) == 0
    day_us = end_of_day_us("2027-01-20", "UTC", NOW_US)
    assert day_us == 1_800_489_600_000_000
    assert end_of_day_us("2027-01-20", "Asia/Kolkata", NOW_US) == day_us - 19_800_000_000
    for wrong in ("2027-02-30", "tomorrow", "2027-1-1", "2027-01-14", "2999-01-01", "9999-12-31"):
        with pytest.raises(RequestInvalid):
            end_of_day_us(wrong, "UTC", NOW_US)
