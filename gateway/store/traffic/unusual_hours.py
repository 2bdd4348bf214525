"""Hours that cost a team or a key unusually much: found from the rollup, and kept.

They are kept with the figures they were judged by: the hours themselves are forgotten sooner.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, Literal, get_args

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import ColumnElement, FromClause, and_, delete, func, select, update

from gateway.clock import HOUR_US, Clock, UnhurriedClock
from gateway.drift.hours import Judged
from gateway.money.alerting import AT_ONCE, CLAIM_US
from gateway.store.claims import is_unclaimed
from gateway.store.engine import Database
from gateway.store.schema.rollup import rollup_cursors, traffic_hours
from gateway.store.schema.tables import organisations, virtual_keys
from gateway.store.schema.unusual_hours import unusual_hours
from gateway.store.speech import insert_into


HourKind = Literal["team", "key"]
KINDS: Final[tuple[HourKind, ...]] = get_args(HourKind)
TOLD_US: Final = 24 * HOUR_US
"""Older hours are not sent to a web hook: it may be a new one, which needs no old news."""
LOOKED_AT_MAX: Final = 300
KEPT_US: Final = 400 * 24 * HOUR_US
_NAMES_AT_ONCE: Final = 200
_VALUES_AT_ONCE: Final = 32
"""Fewer, as each comes with dozens of hours, and a worker serves requests meanwhile."""
_H: Final = traffic_hours.c
_U: Final = unusual_hours.c


class UnusualHour(Struct, frozen=True):
    """An unusual hour of one team or key."""

    organisation: str
    hour_us: int
    kind: HourKind
    value: str
    """A workspace, or a key's id."""
    cost_microusd: int
    """So far, if the hour was not over at the last look."""
    usual_microusd: int
    spread_microusd: int
    bound_microusd: int
    samples: int
    found_us: int
    claimed_us: int = 0
    told_us: int = 0
    """When the web hook accepted it."""

    @property
    def account(self) -> str:
        """The account as budgets name it."""
        return f"key:{self.value}" if self.kind == "key" else f"ws:{self.organisation}/{self.value}"

    @property
    def excess_microusd(self) -> int:
        return self.cost_microusd - self.usual_microusd

    @property
    def times(self) -> float:
        """How many times the usual cost; 0 if none is usual."""
        return self.cost_microusd / self.usual_microusd if self.usual_microusd else 0.0


class HourCosts:
    """Costs of teams and keys by the hour, as far as the rollup has come."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def zones(self) -> dict[str, str]:
        """Organisations in the rollup, and their time zones."""
        query = select(rollup_cursors.c.organisation, organisations.c.time_zone).join(
            organisations, organisations.c.name == rollup_cursors.c.organisation
        )
        async with self._database.reading() as connection:
            return {str(name): str(zone) for name, zone in await connection.execute(query)}

    async def dear(
        self, kind: HourKind, names: Collection[str], since_us: int, least_microusd: int
    ) -> list[tuple[str, int, str, int]]:
        """Organisation, hour, value and cost of hours since then with at least this cost.

        The dearest `LOOKED_AT_MAX` of them, for a number of organisations at once.
        """
        value, source = _grouped(kind)
        cost = func.sum(_H.cost_microusd)
        found: list[tuple[str, int, str, int]] = []
        async with self._database.reading() as connection:
            for some in _parts(names, _NAMES_AT_ONCE):
                query = (
                    select(_H.organisation, _H.hour_us, value, cost)
                    .select_from(source)
                    .where(_H.organisation.in_(some), _H.hour_us >= since_us)
                    .group_by(_H.organisation, _H.hour_us, value)
                    .having(cost >= least_microusd)
                    .order_by(cost.desc(), _H.organisation, _H.hour_us, value)
                    .limit(LOOKED_AT_MAX)
                )
                rows = (await connection.execute(query)).all()
                found += [(row[0], int(row[1]), row[2], int(row[3])) for row in rows]
        return found

    async def past(
        self, kind: HourKind, organisation: str, hours: Collection[int], values: Collection[str]
    ) -> dict[tuple[int, str], int]:
        """Micro-dollars by hour and value; without requests there is no entry."""
        value, source = _grouped(kind)
        found: dict[tuple[int, str], int] = {}
        async with self._database.reading() as connection:
            for some in _parts(values, _VALUES_AT_ONCE):
                query = (
                    select(_H.hour_us, value, func.sum(_H.cost_microusd))
                    .select_from(source)
                    .where(
                        _H.organisation == organisation,
                        _H.hour_us.in_(sorted(hours)),
                        value.in_(some),
                    )
                    .group_by(_H.hour_us, value)
                )
                for hour_us, name, cost in await connection.execute(query):
                    found[int(hour_us), name] = int(cost)
        return found


class UnusualHours:
    """What was found; see `gateway.money.alerting.Alerts` for `due` and `sent`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock, self._unhurried = clock, UnhurriedClock(clock)

    async def put(
        self, organisation: str, hour_us: int, kind: HourKind, value: str, found: Judged
    ) -> bool:
        """Store an hour, or its present cost; returns whether it was new."""
        now_us = self._clock.utc_us()
        row = UnusualHour(
            organisation,
            hour_us,
            kind,
            value,
            found.cost_microusd,
            found.usual_microusd,
            found.spread_microusd,
            found.bound_microusd,
            found.samples,
            now_us,
        )
        insert = insert_into(self._database.kind, unusual_hours).values(asdict(row))
        async with self._database.writing() as connection:
            done = await connection.execute(insert.on_conflict_do_nothing())
            if done.rowcount:
                return True
            change = update(unusual_hours).where(_is(row), _U.cost_microusd < found.cost_microusd)
            await connection.execute(change.values(cost_microusd=found.cost_microusd))
        return False

    async def found(
        self, names: Collection[str] | None, since_us: int, until_us: int, count_max: int
    ) -> list[UnusualHour]:
        """Unusual hours in a span, of these organisations or of all, newest first."""
        query = select(unusual_hours).where(_U.hour_us >= since_us, _U.hour_us < until_us)
        if names is not None:
            query = query.where(_U.organisation.in_(sorted(names)))
        order = (_U.hour_us.desc(), _U.organisation, _U.kind, _U.value)
        return await self._read(query.order_by(*order).limit(count_max))

    async def due(self) -> list[UnusualHour]:
        """Hours that were not sent to a web hook, each claimed for a minute."""
        now_us = self._clock.utc_us()
        is_fresh = _U.hour_us > now_us - HOUR_US - TOLD_US
        untold = and_(_U.told_us == 0, is_unclaimed(_U.claimed_us, now_us, CLAIM_US), is_fresh)
        found = await self._read(
            select(unusual_hours).where(untold).order_by(_U.hour_us).limit(AT_ONCE)
        )
        return [each for each in found if await self._claimed(each, now_us)]

    async def sent(self, alert: UnusualHour) -> None:
        change = update(unusual_hours).where(_is(alert)).values(told_us=self._clock.utc_us())
        async with self._database.writing() as connection:
            await connection.execute(change)

    async def tidy(self) -> None:
        """Forget what is older than somewhat more than a year."""
        first_us = self._unhurried.utc_us() - KEPT_US
        async with self._database.writing() as connection:
            await connection.execute(delete(unusual_hours).where(_U.hour_us < first_us))

    async def _claimed(self, alert: UnusualHour, now_us: int) -> bool:
        change = update(unusual_hours).where(_is(alert), _U.claimed_us == alert.claimed_us)
        async with self._database.writing() as connection:
            return bool((await connection.execute(change.values(claimed_us=now_us))).rowcount)

    async def _read(self, query: Any) -> list[UnusualHour]:
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [UnusualHour(**row) for row in rows]


def _grouped(kind: HourKind) -> tuple[Any, FromClause]:
    """The column of a kind's values, and its source: hours have keys, and keys their team."""
    if kind == "key":
        return _H.key_id, traffic_hours
    home = virtual_keys.c
    return home.workspace, traffic_hours.join(virtual_keys, home.id == _H.key_id)


def _is(hour: UnusualHour) -> ColumnElement[bool]:
    return and_(
        _U.organisation == hour.organisation,
        _U.hour_us == hour.hour_us,
        _U.kind == hour.kind,
        _U.value == hour.value,
    )


def _parts(names: Collection[str], count: int) -> Iterator[Sequence[str]]:
    every = sorted(names)
    for first in range(0, len(every), count):
        yield every[first : first + count]
