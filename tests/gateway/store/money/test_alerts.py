"""A used-up share of a budget is told once: whoever tells it, whatever becomes of the receiver."""

import random
from collections import Counter

import msgspec
import pytest
from msgspec import Struct

from gateway.clock import DAY_US, StoppedClock
from gateway.money.alerting import CLAIM_US, Alerting
from gateway.money.budgets import BudgetKey, Limit, WindowKind
from gateway.store.engine import Database
from gateway.store.money.alerts import AlertTable, BudgetAlerts
from gateway.store.money.leases import LeaseTable
from gateway.store.money.slices import Claim, LeaseHolder


pytestmark = pytest.mark.anyio
NOON_US = 1_800_100_800_000_000  # 2027-01-16T12:00:00Z
PERCENTS = (50, 80, 100)


class Told(Struct, frozen=True):
    account: str
    window: str
    window_start_us: int
    percent: int
    limit_microusd: int
    spent_microusd: int


class Receiver:
    """A web hook of somebody's: it may be down, and it may be slow."""

    def __init__(self, clock: StoppedClock) -> None:
        self.clock = clock
        self.told: list[Told] = []
        self.is_down = False
        self.takes_s = 0.0
        self.meanwhile: Alerting | None = None
        """Another worker, which is not slow, and comes while this one waits."""

    async def post(self, body: bytes, about: str = "") -> bool:
        takes_s, other = self.takes_s, self.meanwhile
        self.clock.advance(takes_s)
        if other is not None:
            self.takes_s, self.meanwhile = 0.0, None
            await other.perform()
            self.takes_s, self.meanwhile = takes_s, other
        if not self.is_down:
            self.told.append(msgspec.json.decode(body, type=Told))
        return not self.is_down


class House:
    """Budgets, and workers that tell of them."""

    def __init__(self, database: Database) -> None:
        self.clock = StoppedClock(NOON_US)
        self.table = LeaseTable(database, self.clock, lease_s=400 * 86_400.0)
        self.receiver = Receiver(self.clock)
        self._database = database
        self._spent: dict[tuple[BudgetKey, int], int] = {}

    def worker(self) -> Alerting:
        """One that was just started."""
        alerts = AlertTable(self._database, self.clock)
        return Alerting(BudgetAlerts(self.table, alerts, PERCENTS, self.clock), self.receiver)

    async def spend(self, account: str, microusd: int, window: WindowKind = "day") -> None:
        """What some worker reports, whatever the limit is."""
        key, holder = BudgetKey(account, window), LeaseHolder("w0", "run")
        (grant,) = await self.table.exchange(holder, [Claim(key, -1, 0, 0, 0, wanted_microusd=1)])
        start_us = grant.window_start_us
        spent = self._spent[key, start_us] = self._spent.get((key, start_us), 0) + microusd
        (grant,) = await self.table.exchange(
            holder, [Claim(key, start_us, grant.amount_microusd, spent, 0)]
        )
        assert not grant.is_gone

    @property
    def shares(self) -> list[int]:
        return [each.percent for each in self.receiver.told]


@pytest.fixture
def house(database: Database) -> House:
    return House(database)


async def test_a_day_that_was_used_up_before_midnight_is_told_after_it(house: House) -> None:
    """A window that is over was looked at no more, and its alerts went with it."""
    await house.table.set_limit(Limit("org:acme", 1000, "day"))
    await house.spend("org:acme", 900)
    house.clock.advance(12 * 3600.0)
    await house.worker().perform()
    house.clock.advance(60.0)
    await house.worker().perform()

    start_us = NOON_US - DAY_US // 2
    assert house.receiver.told == [
        Told("org:acme", "day", start_us, percent, 1000, 900) for percent in (50, 80)
    ]


async def test_a_claim_of_a_clock_that_was_set_back_holds_no_alert_up(house: House) -> None:
    """Who claimed it was stopped before anybody took it."""
    await house.table.set_limit(Limit("org:acme", 1000, "day"))
    await house.spend("org:acme", 600)
    house.receiver.is_down = True
    house.clock.advance(2 * 3600.0)
    await house.worker().perform()
    house.receiver.is_down = False
    house.clock.advance(-2 * 3600.0)
    await house.worker().perform()

    assert house.shares == [50]


async def test_a_share_of_a_window_long_over_is_told_to_nobody(house: House) -> None:
    """As where a web hook is set up for the first time."""
    await house.table.set_limit(Limit("org:acme", 1000, "day"))
    await house.spend("org:acme", 900)
    house.clock.advance(37 * 3600.0)
    await house.worker().perform()

    assert house.shares == []


async def test_a_new_limit_says_nothing_of_a_window_that_is_over(house: House) -> None:
    await house.table.set_limit(Limit("org:acme", 1000, "day"))
    await house.spend("org:acme", 600)
    await house.worker().perform()
    house.clock.advance(13 * 3600.0)
    await house.table.set_limit(Limit("org:acme", 100, "day"))
    await house.worker().perform()

    assert house.shares == [50]


async def test_a_receiver_that_was_down_over_midnight_hears_all_of_it_once(house: House) -> None:
    await house.table.set_limit(Limit("org:acme", 1000, "day"))
    house.receiver.is_down = True
    house.clock.advance(11.5 * 3600.0)
    await house.spend("org:acme", 850)
    one, other = house.worker(), house.worker()
    for quarter in range(4):
        await one.perform()
        await other.perform()
        house.clock.advance(900.0)
        if quarter == 2:
            await house.spend("org:acme", 600)  # Of the new day.
    house.receiver.is_down = False
    for _ in range(5):
        await house.worker().perform()
        await other.perform()
        house.clock.advance(CLAIM_US / 1e6)

    first_us = NOON_US - DAY_US // 2
    assert sorted(house.receiver.told, key=lambda told: (told.window_start_us, told.percent)) == [
        Told("org:acme", "day", first_us, 50, 1000, 850),
        Told("org:acme", "day", first_us, 80, 1000, 850),
        Told("org:acme", "day", first_us + DAY_US, 50, 1000, 600),
    ]


async def test_a_limit_that_is_raised_and_taken_back_tells_nothing_twice(house: House) -> None:
    """Each way up forgot what had been told, and each way down told it anew."""
    await house.table.set_limit(Limit("org:acme", 1000, "month"))
    await house.spend("org:acme", 1000, "month")
    await house.worker().perform()
    for limit in (10_000, 1000, 4000, 1000, 900, 1000):
        await house.table.set_limit(Limit("org:acme", limit, "month"))
        await house.worker().perform()
    assert house.shares == [50, 80, 100]
    await house.table.set_limit(Limit("org:acme", 1200, "month"))
    await house.worker().perform()
    await house.spend("org:acme", 200, "month")
    await house.worker().perform()

    assert [(told.percent, told.limit_microusd) for told in house.receiver.told[3:]] == [
        (100, 1200)
    ]


async def test_two_workers_before_a_slow_receiver_tell_each_share_once(house: House) -> None:
    """What one had claimed was given up after a minute, while it still waited for its turn."""
    accounts = [f"ws:acme/team{number:02d}" for number in range(12)]
    for account in accounts:
        await house.table.set_limit(Limit(account, 100, "month"))
        await house.spend(account, 60, "month")
    house.receiver.takes_s = 10.0
    house.receiver.meanwhile = house.worker()
    await house.worker().perform()

    assert sorted(told.account for told in house.receiver.told) == accounts


async def test_whatever_happens_each_share_is_told_once_in_each_window_under_each_limit(
    house: House,
) -> None:
    draw = random.Random(1)
    limit, reached = 1000, set[tuple[int, int]]()
    await house.table.set_limit(Limit("org:acme", limit, "day"))
    workers = [house.worker(), house.worker()]
    spent: Counter[int] = Counter()
    for step in range(90):
        day_us = house.clock.utc_us() // DAY_US * DAY_US
        match draw.choice(["spend", "spend", "limit", "down", "restart", "time", "tell", "tell"]):
            case "spend":
                amount = draw.randrange(250)
                await house.spend("org:acme", amount)
                spent[day_us] += amount
            case "limit":
                limit = draw.choice([500, 1000, 1000, 2000])
                await house.table.set_limit(Limit("org:acme", limit, "day"))
            case "down":
                house.receiver.is_down = not house.receiver.is_down
            case "restart":
                workers[step % 2] = house.worker()
            case "time":
                house.clock.advance(draw.choice([1.0, 70.0, 3 * 3600.0]))
            case "tell":
                await workers[step % 2].perform()
        if not house.receiver.is_down:
            await workers[0].perform()
            today_us = house.clock.utc_us() // DAY_US * DAY_US
            reached |= {
                (today_us, percent)
                for percent in PERCENTS
                if spent[today_us] * 100 >= percent * limit
            }
    house.receiver.is_down = False
    for _ in range(3):
        house.clock.advance(CLAIM_US / 1e6)
        await workers[1].perform()

    told = house.receiver.told
    times = Counter((each.window_start_us, each.percent, each.limit_microusd) for each in told)
    assert set(times.values()) == {1}
    assert reached <= {(each.window_start_us, each.percent) for each in told}
    assert all(each.spent_microusd * 100 >= each.percent * each.limit_microusd for each in told)
