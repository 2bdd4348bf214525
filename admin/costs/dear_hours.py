"""Unusually expensive hours of a team or a key, for pages; a worker found them."""

from collections.abc import Collection
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from admin.services import Services
from gateway.clock import HOUR_US
from gateway.oversight.searching import Filter, Term, render
from gateway.store.traffic.unusual_hours import HourKind, UnusualHour, UnusualHours


LISTED_MAX: Final = 1_000
_FIELDS: Final[dict[HourKind, str]] = {"team": "workspace", "key": "key"}
"""What traffic is filtered by."""


class DearHour(Struct, frozen=True):
    """One hour of one team or key, with the figures that it was judged by."""

    organisation: str
    hour_us: int
    kind: HourKind
    value: str
    label: str
    cost_microusd: int
    usual_microusd: int
    """The median of the same hour on days of the same kind of the three weeks before."""
    spread_microusd: int
    """The median distance from it."""
    bound_microusd: int
    """From here on it counts as unusual."""
    samples: int
    """So many days say what is usual."""
    times: float
    words: str
    told_us: int
    """When the web hook took it; 0 where it did not, or there is none."""
    traffic: str
    """The filter that finds what was asked in that hour."""


class DearHourReader:
    """Reads what workers found; bounded."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._hours = UnusualHours(services.database, services.clock)

    async def found(
        self, organisation: str, since: date, until: date, zone: ZoneInfo
    ) -> tuple[DearHour, ...]:
        """Of the days of an organisation's time zone, both included; the newest first."""
        following = until + timedelta(days=1)
        first, end = (
            int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()) * 1_000_000
            for day in (since, following)
        )
        return await self._told([organisation], first, end, LISTED_MAX)

    async def fresh(
        self, organisations: Collection[str] | None, since_us: int, count_max: int
    ) -> tuple[DearHour, ...]:
        """Since then, of these organisations or of all."""
        end_us = self._services.clock.utc_us() + HOUR_US
        return await self._told(organisations, since_us, end_us, count_max)

    async def _told(
        self, organisations: Collection[str] | None, since_us: int, until_us: int, count_max: int
    ) -> tuple[DearHour, ...]:
        found = await self._hours.found(organisations, since_us, until_us, count_max)
        names: dict[str, dict[str, str]] = {}
        for each in {hour.organisation for hour in found}:
            keys = {hour.value for hour in found if (hour.organisation, hour.kind) == (each, "key")}
            names[each] = await self._services.key_names.names(each, keys) if keys else {}
        return tuple(_hour_of(each, names[each.organisation]) for each in found)


def _hour_of(found: UnusualHour, names: dict[str, str]) -> DearHour:
    label = names.get(found.value, found.value) if found.kind == "key" else found.value
    times = (
        Term("since", (_moment(found.hour_us),)),
        Term("until", (_moment(found.hour_us + HOUR_US),)),
    )
    words = f"{found.times:,.1f} times the usual cost of this hour"
    return DearHour(
        found.organisation,
        found.hour_us,
        found.kind,
        found.value,
        label,
        found.cost_microusd,
        found.usual_microusd,
        found.spread_microusd,
        found.bound_microusd,
        found.samples,
        found.times,
        words if found.usual_microusd else "this hour usually costs nothing",
        found.told_us,
        render(Filter((Term(_FIELDS[found.kind], (found.value,)), *times))),
    )


def _moment(utc_us: int) -> str:
    return datetime.fromtimestamp(utc_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%MZ")
