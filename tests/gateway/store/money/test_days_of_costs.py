"""Days of a report touch: what ends at midnight, to the microsecond, stands in one of two."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gateway.cli.costs import _midnight, _period
from gateway.clock import SECOND_US, StoppedClock
from gateway.identity import Peppers
from gateway.money.costs import Days
from gateway.oversight.homes import BY_LABEL
from gateway.store.engine import Database
from gateway.store.identity.keys import KeyStore, Place
from gateway.store.money.leases import LeaseTable
from gateway.store.money.spending import SpendingReader
from tests.gateway.store.money.test_dimensions import HOUR_US, outcome, store


pytestmark = [pytest.mark.anyio, pytest.mark.either]
DAY = timedelta(days=1)
FIRST, LAST = date(2026, 1, 1), date(2026, 12, 31)
BESIDE_US = (-HOUR_US, -HOUR_US // 2, -1, 0, 1, HOUR_US // 2, HOUR_US)


def turning(zone: ZoneInfo) -> list[date]:
    """The ends of a month, and days on which clocks are set, with those beside them."""
    days = [FIRST + each * DAY for each in range((LAST - FIRST).days)]
    offsets = [datetime(each.year, each.month, each.day, 12, tzinfo=zone) for each in days]
    turned = [
        day
        for day, before, after in zip(days[1:], offsets, offsets[1:], strict=False)
        if before.utcoffset() != after.utcoffset()
    ]
    return sorted({each + by * DAY for each in [*turned, date(2026, 2, 1)] for by in (-1, 0, 1)})


@pytest.mark.parametrize(
    "zone",
    [
        *("UTC", "America/New_York", "America/Santiago", "America/Havana", "Africa/Cairo"),
        *("Asia/Kathmandu", "Australia/Lord_Howe", "Atlantic/Azores"),
    ],
)
async def test_lines_of_a_batch_that_end_at_the_turn_of_a_day_are_exported_once(
    database: Database, zone: str
) -> None:
    """Also where there is no midnight on that day, or there are two."""
    keys = KeyStore(database, Peppers({1: b"x" * 32}), StoppedClock())
    await keys.ensure_place(Place("acme", "research", "bot"))
    await LeaseTable(database, StoppedClock()).set_time_zone("acme", zone)
    here, detail = ZoneInfo(zone), {"batch": "batch_1", "line": "1"}
    days = turning(here)
    moments = sorted({_midnight(day, here) + by_us for day in days for by_us in BESIDE_US})
    records = [outcome(n, utc_us=us, detail=detail) for n, us in enumerate(moments)]
    await store(database, *records)
    reader = SpendingReader(database, BY_LABEL)

    async def exported(first: date, last: date, *by: str) -> dict[str, int]:
        rows = await reader.totals(_period(Days(first, last, zone), "acme"), ("batch", *by))
        return {" ".join(row.group): row.cost_microusd for row in rows}

    expected: dict[str, int] = {}
    for us in moments:
        seconds, rest_us = divmod(us, SECOND_US)
        moment = datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=rest_us)
        name = f"batch_1 {moment.astimezone(here).date()}"
        expected[name] = expected.get(name, 0) + 1
    assert await exported(FIRST - DAY, LAST + DAY, "day") == expected
    for day in {each + by * DAY for each in days for by in (-1, 0, 1)}:
        of_day = await exported(day, day)
        assert of_day.get("batch_1", 0) == expected.get(f"batch_1 {day}", 0), day
    middle = days[len(days) // 2]
    halves = [await exported(FIRST - DAY, middle - DAY), await exported(middle, LAST + DAY)]
    assert sum(each["batch_1"] for each in halves) == len(moments)
