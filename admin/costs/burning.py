"""The course of a month: what was spent day by day, what is expected, and when a limit ends."""

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from msgspec import Struct

from gateway.money import costs as arithmetic


class BurnDay(Struct, frozen=True):
    """One day of the month: spent until its end, or expected to be; None where not known."""

    day: str
    start_s: int
    spent_microusd: int | None
    expected_microusd: int | None


def exhausted_on(days: dict[date, int], today: date, left: int | None) -> str:
    """The day on which what is left is expected to be used up; empty where not in this month."""
    if left is None:
        return ""
    found = arithmetic.exhausted_on(days, today, left, arithmetic.end_of_month(today))
    return str(found) if found else ""


def burn(days: dict[date, int], today: date, zone: ZoneInfo) -> list[BurnDay]:
    """Every day of this month: what was spent until its end, and what is expected to be."""
    expected = arithmetic.expected(days, today, arithmetic.end_of_month(today))
    day, spent, found = today.replace(day=1), 0, []
    while day <= arithmetic.end_of_month(today):
        spent += days.get(day, 0) if day <= today else 0
        ahead = sum(cost for each, cost in expected.items() if each <= day)
        start = datetime(day.year, day.month, day.day, tzinfo=zone)
        found.append(
            BurnDay(
                str(day),
                int(start.timestamp()),
                spent if day <= today else None,
                spent + ahead if day >= today else None,
            )
        )
        day += timedelta(days=1)
    return found
