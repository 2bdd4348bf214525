"""Costs over the JSON API: what an organisation spent, by any dimension, and what is to come."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from litestar import get
from litestar.params import FromPath

from admin.access import needs
from admin.asking import Asking
from admin.costs.pages import days_of
from admin.costs.reader import BASIS_DAYS, ROLLUP_BATCHES, value_of
from admin.queries import Query
from admin.services import Services
from gateway.clock import SECOND_US, Clock
from gateway.configuration.settings import Settings
from gateway.money import costs as arithmetic
from gateway.oversight.access import Permission
from gateway.store.money.dimensions import DIMENSIONS, Only, check, holds, read_only
from gateway.store.money.spending import Period


ROLLED: Final[dict[str, tuple[str, ...]]] = {
    **{name: (name,) for name in ("workspace", "project", "target", "provider", "jurisdiction")},
    "key": ("key_id",),
    "policy": ("policy_digest",),
    "app": ("workspace", "project"),
    "day": ("day",),
    "month": ("day",),
}
"""Words of `DIMENSIONS` that the sums by day know, and their columns."""
DIMENSION: Final = Query(
    "by",
    "What to group by; named again for each further dimension. Projects where it is not named.",
    choices=tuple(DIMENSIONS),
    is_many=True,
)
ONLY: Final = Query(
    "only",
    "`DIMENSION=VALUE` that has to hold; of one dimension that is named again, one of its values.",
    is_many=True,
)
GROUPS_MAX: Final = 100_000
"""So many groups make an answer; of some dimensions callers say the values."""
CURRENCY: Final = Query(
    "currency",
    "What costs are also written in: `USD`, or one that the settings have a rate for.",
    length_max=8,
    default="USD",
)
_READS: Final = needs(Permission.COSTS_READ)
_PATH: Final = "/api/organisations/{organisation:str}/costs"


def report_routes(services: Services) -> list[Any]:
    """The routes; a query names groups (`by`), days (`since`, `until`) and a `currency`."""
    settings, reader, clock = services.settings, services.spending, services.clock

    @get(_PATH, opt=_READS)
    async def report(request: Asking, organisation: FromPath[str]) -> dict[str, Any]:
        by, only = DIMENSION.all_of(request) or ["project"], read_only(ONLY.all_of(request))
        check(by, only)
        currency = CURRENCY.of(request)
        zone = ZoneInfo(await reader.zone_of(organisation))
        today = _today(clock, zone)
        since, until = days_of(request, today)
        rows = await _added_up(services, organisation, (since, until), by, only)
        if rows is None:
            period = _period(since, until, zone, organisation)
            rows = await reader.totals(period, by, only, groups_max=GROUPS_MAX)
        return {
            "since": str(since),
            "until": str(until),
            "time_zone": str(zone),
            "rows": _lines(settings, by, rows, currency),
        }

    @get(f"{_PATH}/forecast", opt=_READS)
    async def forecast(request: Asking, organisation: FromPath[str]) -> dict[str, Any]:
        currency = CURRENCY.of(request)
        zone = ZoneInfo(await reader.zone_of(organisation))
        today = _today(clock, zone)
        first = today - timedelta(days=BASIS_DAYS)
        rows = await _added_up(services, organisation, (first, today), ["day"], {})
        if rows is None:
            rows = await reader.totals(_period(first, today, zone, organisation), ["day"])
        days = {date.fromisoformat(row.group[0]): row.cost_microusd for row in rows}
        found = arithmetic.forecast(days, today)
        return {
            "spent_microusd": found.spent_microusd,
            "expected_microusd": found.expected_microusd,
            "expected": arithmetic.shown(found.expected_microusd, currency, settings.currencies),
            "days_left": found.days_left,
            "method": found.method,
        }

    return [report, forecast]


async def _added_up(
    services: Services,
    organisation: str,
    days: tuple[date, date],
    by: Sequence[str],
    only: Only,
) -> list[arithmetic.CostRow] | None:
    """The same sums from those that were made before; None where those cannot tell.

    Records are millions, their sums by day some thousands.
    """
    names = {*by, *only}
    if not names <= set(ROLLED):
        return None
    if await services.rollup.catch_up(ROLLUP_BATCHES):
        return None
    wanted = list(dict.fromkeys(column for name in sorted(names) for column in ROLLED[name]))
    merged: dict[tuple[str, ...], list[int]] = {}
    for row in await services.figures.by_day(organisation, str(days[0]), str(days[1]), wanted):
        found = dict(zip(wanted, row.group, strict=True))
        values = {name: _value(name, found) for name in names}
        if not holds(values, only):
            continue
        added = merged.setdefault(tuple(values[name] for name in by), [0, 0, 0, 0])
        counted = (row.requests, row.input_tokens, row.output_tokens, row.cost_microusd)
        for index, number in enumerate(counted):
            added[index] += number
    groups = [arithmetic.CostRow(group, *numbers) for group, numbers in merged.items()]
    groups = [row for row in groups if row.requests]
    return sorted(groups, key=lambda row: (-row.cost_microusd, row.group))


def _value(name: str, values: Mapping[str, Any]) -> str:
    if name == "month":
        return str(values["day"])[:7]
    return value_of([values[dimension] for dimension in ROLLED[name]])


def _lines(
    settings: Settings, by: Sequence[str], rows: Sequence[arithmetic.CostRow], currency: str
) -> list[dict[str, Any]]:
    costs = [row.cost_microusd for row in rows]
    said = arithmetic.shown_together(costs, currency, settings.currencies)
    return [
        dict(zip(by, row.group, strict=True))
        | {
            "requests": row.requests,
            "input_tokens": row.input_tokens,
            "output_tokens": row.output_tokens,
            "cost_microusd": row.cost_microusd,
            "cost": cost,
        }
        for row, cost in zip(rows, said, strict=True)
    ]


def _period(since: date, until: date, zone: ZoneInfo, organisation: str) -> Period:
    return Period(_midnight(since, zone), _midnight(until + timedelta(days=1), zone), organisation)


def _today(clock: Clock, zone: ZoneInfo) -> date:
    return datetime.fromtimestamp(clock.utc_us() // SECOND_US, UTC).astimezone(zone).date()


def _midnight(day: date, zone: ZoneInfo) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()) * SECOND_US
