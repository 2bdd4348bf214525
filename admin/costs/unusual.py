"""Finds days that were unusually expensive for an organisation, team, model or key.

It only reads, within bounds. The past is read only for groups that cost enough to be looked at, and
only the weekdays that they are compared with.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, Literal
from zoneinfo import ZoneInfo

from msgspec import Struct

from admin.services import Services
from gateway.drift.anomalies import EXCESS_MIN_MICROUSD, Unusual, unusual, weeks_before
from gateway.oversight.searching import Filter, Term, render


Kind = Literal["organisation", "team", "model", "key"]
DAYS_MAX: Final = 62
"""Of a longer question its last days are looked at."""
LOOKED_AT_MAX: Final = 200
"""So many dear days of each kind of group, the dearest."""
FRESH: Final = timedelta(days=1)
KEPT_US: Final = 600_000_000
"""Days that are over are not read again for so long: they are many rows where there are many keys.
What a page compares with is a week old at least."""
KEPT_MAX: Final = 64
_DIMENSIONS: Final[dict[Kind, str]] = {
    "organisation": "",
    "team": "workspace",
    "model": "target",
    "key": "key_id",
}
_FIELDS: Final[dict[Kind, str]] = {"team": "workspace", "model": "target", "key": "key"}
"""What traffic is filtered by."""
_NARROWEST: Final[tuple[Kind, ...]] = ("key", "model", "team", "organisation")


class UnusualDay(Struct, frozen=True):
    """One day of one group."""

    kind: Kind
    value: str
    label: str
    day: str
    start_s: int
    cost_microusd: int
    usual_microusd: int
    """The median of the same weekday in the weeks before."""
    bound_microusd: int
    """From here on it counts as unusual."""
    samples: int
    """So many weekdays say what is usual."""
    times: float
    words: str
    traffic: str
    """The filter that finds what was asked on that day."""

    @property
    def excess_microusd(self) -> int:
        return self.cost_microusd - self.usual_microusd


class UnusualReader:
    """Of one organisation at a time."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._past: dict[tuple[str, str], tuple[int, dict[str, dict[str, int]]]] = {}
        """By organisation and dimension: since when it is kept, and costs by day and value."""

    async def found(
        self, organisation: str, since: date, until: date, zone: ZoneInfo
    ) -> tuple[UnusualDay, ...]:
        """Unusual days, newest first; of one day the organisation, teams, models, keys."""
        since = max(since, until - timedelta(days=DAYS_MAX - 1))
        every: list[UnusualDay] = []
        for kind in _DIMENSIONS:
            found = await self._of_kind(organisation, since, until, kind)
            names = await self._names(organisation, kind, [value for value, _ in found])
            every += [
                _day_of(kind, value, names.get(value, value or organisation), each, zone)
                for value, each in found
            ]
        kinds = list(_DIMENSIONS)
        every.sort(key=lambda each: (kinds.index(each.kind), -each.excess_microusd, each.value))
        return tuple(sorted(every, key=lambda each: each.day, reverse=True))

    async def fresh(self, organisation: str) -> tuple[UnusualDay, ...]:
        """Those of today and yesterday."""
        zone = ZoneInfo(await self._services.spending.zone_of(organisation))
        today = datetime.fromtimestamp(self._services.clock.utc_us() / 1e6, UTC).astimezone(zone)
        return await self.found(organisation, today.date() - FRESH, today.date(), zone)

    async def _of_kind(
        self, organisation: str, since: date, until: date, kind: Kind
    ) -> list[tuple[str, Unusual]]:
        figures, dimension = self._services.figures, _DIMENSIONS[kind]
        period = (str(since), str(until))
        dear = await figures.dear_days(
            organisation, period, dimension, EXCESS_MIN_MICROUSD, LOOKED_AT_MAX
        )
        if not dear:
            return []
        groups = [(date.fromisoformat(row.group[0]), "".join(row.group[1:])) for row in dear]
        before = {str(past) for day in {day for day, _ in groups} for past in weeks_before(day)}
        values = {value for _, value in groups}
        costs = await self._costs(organisation, dimension, before, values)
        found = []
        for (day, value), row in zip(groups, dear, strict=True):
            past = [costs.get((str(each), value), 0) for each in weeks_before(day)]
            odd = unusual(day, row.cost_microusd, past)
            if odd is not None:
                found.append((value, odd))
        return found

    async def _costs(
        self, organisation: str, dimension: str, days: set[str], values: set[str]
    ) -> dict[tuple[str, str], int]:
        """Costs by day and value; those of keys, which may be many, are read each time."""
        figures = self._services.figures
        if dimension == _DIMENSIONS["key"]:
            return await figures.cost_on(organisation, days, dimension, values)
        now_us, place = self._services.clock.utc_us(), (organisation, dimension)
        since_us, known = self._past.get(place, (0, {}))
        if not 0 <= now_us - since_us < KEPT_US:
            since_us, known = now_us, {}
        missing = days - known.keys()
        if missing:
            known = known | {day: {} for day in missing}
            found = await figures.cost_on(organisation, missing, dimension)
            for (day, value), cost in found.items():
                known[day][value] = cost
        if place not in self._past and len(self._past) >= KEPT_MAX:
            self._past.clear()
        self._past[place] = (since_us, known)
        return {(day, value): cost for day in days for value, cost in known[day].items()}

    async def _names(self, organisation: str, kind: Kind, values: Sequence[str]) -> dict[str, str]:
        if kind != "key" or not values:
            return {}
        return await self._services.key_names.names(organisation, values)


def foremost(found: Sequence[UnusualDay]) -> UnusualDay | None:
    """The one that says most of why: the narrowest group that alone explains half of the excess."""
    most = max((each.excess_microusd for each in found), default=0)
    large = [each for each in found if 2 * each.excess_microusd >= most]
    return min(
        large,
        key=lambda each: (_NARROWEST.index(each.kind), -each.excess_microusd),
        default=None,
    )


def _day_of(kind: Kind, value: str, label: str, found: Unusual, zone: ZoneInfo) -> UnusualDay:
    start = datetime(found.day.year, found.day.month, found.day.day, tzinfo=zone)
    following = found.day + timedelta(days=1)
    end = datetime(following.year, following.month, following.day, tzinfo=zone)
    field = _FIELDS.get(kind)
    group = (Term(field, (value,)),) if field else ()
    times = (Term("since", (_moment(start),)), Term("until", (_moment(end),)))
    return UnusualDay(
        kind,
        value,
        label,
        str(found.day),
        int(start.timestamp()),
        found.cost_microusd,
        found.usual_microusd,
        found.bound_microusd,
        found.samples,
        found.times,
        found.words,
        render(Filter((*group, *times))),
    )


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")
