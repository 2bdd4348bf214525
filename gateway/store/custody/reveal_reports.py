"""Weekly reports of reveals: one per organisation and week, whichever worker makes and sends it.

A week begins on Monday at midnight in the organisation's time zone.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import ColumnElement, and_, func, or_, select, update

from gateway.clock import SECOND_US, Clock
from gateway.money.alerting import AT_ONCE, CLAIM_US
from gateway.store.claims import is_unclaimed
from gateway.store.custody.orders import REVEAL_MINUTES_MAX, Reveal
from gateway.store.engine import Database
from gateway.store.schema.custody import audit_reveals, reveal_reports
from gateway.store.schema.tables import organisations
from gateway.store.speech import insert_into


SENT_US: Final = 7 * 86_400_000_000
"""Older reports are not sent: a new web hook needs no old weeks."""
SETTLED_US: Final = (REVEAL_MINUTES_MAX + 5) * 60_000_000
"""This long after a week nobody reads with its approvals any more, by any process's clock."""
WEEKS_BACK: Final = 4
"""How many weeks are reported late if no worker ran."""
SHOWN_MAX: Final = 53
SKEW_US: Final = 5 * 60_000_000
"""Workers' clocks differ by less than this; a report from further ahead was made before its week
was over."""
_HALF_WEEK_US: Final = SENT_US // 2
_T = reveal_reports.c


class Week(Struct, frozen=True):
    """A finished week of an organisation."""

    organisation: str
    since_us: int
    until_us: int
    """Exclusive."""
    day: str
    """Its Monday in the organisation's zone: `2027-01-11`."""


class RevealReport(Struct, frozen=True):
    """What was requested and approved in a week, and how often it was read until it closed."""

    organisation: str
    since_us: int
    until_us: int
    claimed_us: int
    made_us: int
    sent_us: int
    """0 if the web hook has not accepted it, or there is none."""
    asked: int
    approved: int
    readings: int
    people: int
    """How many people made the requests."""


class RevealReports:
    """Reports of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def owed(self) -> list[Week]:
        """Weeks without a report, each organisation's oldest first.

        An organisation without any report yet gets the last week's; others get those they missed. A
        week has to wait until what was approved at its end has closed: each reading counts in the
        week of its approval only.
        """
        now_us = self._clock.utc_us()
        names = select(organisations.c.name, organisations.c.time_zone, organisations.c.created_us)
        done = select(_T.organisation, func.max(_T.until_us)).where(
            _T.made_us > 0, _T.made_us <= now_us + SKEW_US
        )
        begun = select(_T.organisation, _T.since_us, _T.until_us).where(_T.made_us == 0)
        async with self._database.reading() as connection:
            all_names = (await connection.execute(names)).all()
            rows = (await connection.execute(done.group_by(_T.organisation))).all()
            open_rows = (await connection.execute(begun)).all()
        ended: dict[str, int] = {row[0]: row[1] for row in rows}
        ends = {(row.organisation, row.since_us): row.until_us for row in open_rows}
        owed: list[Week] = []
        for name, zone, created_us in all_names:
            weeks = weeks_after(name, ended.get(name), now_us - SETTLED_US, zone)
            # A week that was begun keeps its length, whatever the zone is by now.
            owed += [
                replace(week, until_us=ends.get((name, week.since_us), week.until_us))
                for week in weeks
                if week.until_us > created_us
            ]
        return owed

    async def claim(self, week: Week) -> str:
        """`new`, `again` if somebody began it and did not finish, or empty if it is not ours."""
        now_us = self._clock.utc_us()
        row = {
            "organisation": week.organisation,
            "since_us": week.since_us,
            "until_us": week.until_us,
            "claimed_us": now_us,
            **dict.fromkeys(("made_us", "sent_us", "asked", "approved", "readings", "people"), 0),
        }
        new = insert_into(self._database.kind, reveal_reports).values(row).on_conflict_do_nothing()
        this = _is(week.organisation, week.since_us)
        late = (
            update(reveal_reports)
            .where(this, _T.made_us == 0, is_unclaimed(_T.claimed_us, now_us, CLAIM_US))
            .values(claimed_us=now_us)
        )
        # A clock that was ahead made it before the week was over: it is made again.
        early = update(reveal_reports).where(this, _T.made_us > now_us + SKEW_US).values(row)
        async with self._database.writing() as connection:
            for change in (new, early):
                if (await connection.execute(change)).rowcount > 0:
                    return "new"
            return "again" if (await connection.execute(late)).rowcount else ""

    async def made(self, report: RevealReport) -> None:
        """Note that it is in the log."""
        names = ("asked", "approved", "readings", "people")
        values = {name: getattr(report, name) for name in names}
        change = update(reveal_reports).where(_is(report.organisation, report.since_us))
        # Any worker may send it at once.
        values |= {"made_us": self._clock.utc_us(), "claimed_us": 0}
        async with self._database.writing() as connection:
            await connection.execute(change.values(values))

    async def due(self) -> list[RevealReport]:
        """See `gateway.money.alerting.Alerts`: reports that nobody sends, claimed for a minute."""
        now_us = self._clock.utc_us()
        late = (_T.made_us > now_us - SENT_US) & (_T.sent_us == 0)
        late &= is_unclaimed(_T.claimed_us, now_us, CLAIM_US)
        query = select(reveal_reports).where(late).order_by(_T.since_us).limit(AT_ONCE)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        found = []
        for report in [RevealReport(**row) for row in rows]:
            mine = (
                update(reveal_reports)
                .where(
                    _is(report.organisation, report.since_us),
                    _T.sent_us == 0,
                    _T.claimed_us == report.claimed_us,
                )
                .values(claimed_us=now_us)
            )
            async with self._database.writing() as connection:
                if (await connection.execute(mine)).rowcount:
                    found.append(report)
        return found

    async def sent(self, alert: RevealReport) -> None:
        """Note that the web hook accepted it."""
        change = update(reveal_reports).where(_is(alert.organisation, alert.since_us))
        async with self._database.writing() as connection:
            await connection.execute(change.values(sent_us=self._clock.utc_us()))

    async def of(self, organisation: str) -> Sequence[RevealReport]:
        """An organisation's reports, newest first; at most a year's."""
        return await self._read(_T.organisation == organisation)

    async def since(self, made_us: int, visible: Collection[str] | None) -> Sequence[RevealReport]:
        """Non-empty reports made since then, of these organisations or of all."""
        where = (_T.made_us >= made_us) & (_T.asked + _T.approved > 0)
        if visible is not None:
            where &= _T.organisation.in_(sorted(visible))
        return await self._read(where)

    async def _read(self, where: ColumnElement[bool]) -> Sequence[RevealReport]:
        query = (
            select(reveal_reports)
            .where(where, _T.made_us > 0)
            .order_by(_T.since_us.desc(), _T.organisation)
            .limit(SHOWN_MAX)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [RevealReport(**row) for row in rows]


async def reveals_between(
    database: Database, organisation: str, since_us: int, until_us: int
) -> Sequence[Reveal]:
    """Reveals requested or approved in a span (the end is exclusive), oldest first.

    A request does not go stale while it waits: it may be approved, and read, weeks later.
    """
    columns = audit_reveals.c
    was_then = [
        and_(moment >= since_us, moment < until_us)
        for moment in (columns.asked_us, columns.approved_us)
    ]
    query = (
        select(audit_reveals)
        .where(columns.organisation == organisation, or_(*was_then))
        .order_by(columns.asked_us, columns.id)
    )
    async with database.reading() as connection:
        rows = (await connection.execute(query)).mappings().all()
    return [Reveal(**row) for row in rows]


def weeks_before(organisation: str, now_us: int, time_zone: str, count: int) -> list[Week]:
    """The last finished weeks, oldest first."""
    moment = datetime.fromtimestamp(now_us // SECOND_US, ZoneInfo(time_zone))
    monday = moment.replace(hour=0, minute=0, second=0, fold=0) - timedelta(days=moment.weekday())
    # Days follow the wall clock: a week in which clocks change has an hour more or less.
    starts = [monday - timedelta(weeks=back) for back in range(count, -1, -1)]
    return [
        Week(organisation, _us(since), _us(until), str(since.date()))
        for since, until in pairwise(starts)
    ]


def weeks_after(organisation: str, ended_us: int | None, now_us: int, time_zone: str) -> list[Week]:
    """Weeks finished since the last report, each beginning where the previous one ended.

    So each moment is in one report, even if the organisation moved to another time zone: that week
    lasts from the old Monday to the new one, and not less than half a week.
    """
    if ended_us is None:
        return weeks_before(organisation, now_us, time_zone, 1)
    found: list[Week] = []
    for week in weeks_before(organisation, now_us, time_zone, WEEKS_BACK):
        if week.until_us - ended_us >= _HALF_WEEK_US:
            is_next = week.since_us - ended_us < _HALF_WEEK_US
            found.append(replace(week, since_us=ended_us) if is_next else week)
            ended_us = week.until_us
    return found


def _us(moment: datetime) -> int:
    return int(moment.timestamp()) * SECOND_US


def _is(organisation: str, since_us: int) -> ColumnElement[bool]:
    return (_T.organisation == organisation) & (_T.since_us == since_us)
