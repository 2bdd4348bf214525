"""Incidents: what was noticed and when, whom it concerns, what was reported, and who closed it.

The reporting deadlines run from the moment it was noticed. A report that was made stops its clock;
closing takes two people. Each step is a deed in the audit log, recorded before it takes effect.
"""

import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    ForeignKey,
    Index,
    RowMapping,
    String,
    Table,
    Text,
    case,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from gateway.clock import Clock
from gateway.errors import RequestInvalid
from gateway.obligations import ReportClock, clocks_of
from gateway.store.engine import Database
from gateway.store.pages import Order, Part, part_behind
from gateway.store.schema.tables import metadata


KINDS: Final = ("disclosure", "access", "loss", "unavailable", "integrity", "other")
TITLE_CHARS_MAX: Final = 120
TEXT_CHARS_MAX: Final = 2_000
SHOWN_MAX: Final = 200
AHEAD_US_MAX: Final = 366 * 86_400_000_000
"""The latest end of an incident that may be stated."""
_ID_BYTES: Final = 6

incidents = Table(
    "incidents",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("organisation", String(63), ForeignKey("organisations.name"), nullable=False),
    Column("title", String(TITLE_CHARS_MAX), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("ticket", String(200), nullable=False),
    Column("filter", Text, nullable=False),
    Column("since_us", BigInteger, nullable=False),
    Column("until_us", BigInteger, nullable=False),
    Column("noticed_us", BigInteger, nullable=False),
    Column("regimes", String(200), nullable=False),
    Column("opened_by", String(200), nullable=False),
    Column("opened_us", BigInteger, nullable=False),
    Column("conclusion", Text, nullable=False),
    Column("closing_by", String(200), nullable=False),
    Column("closed_by", String(200), nullable=False),
    Column("closed_us", BigInteger, nullable=False),
    Index(None, "organisation", "closed_us"),
)
"""`until_us` is 0 while an incident goes on; `regimes` are those in force when it was opened."""
_LISTED: Final = Order(
    (
        case((incidents.c.closed_us > 0, 1), else_=0).label("is_closed"),
        incidents.c.noticed_us,
        incidents.c.id,
    ),
    frozenset({1}),
)
"""Open ones first, then the newest."""

incident_reports = Table(
    "incident_reports",
    metadata,
    Column("incident", String(12), ForeignKey("incidents.id"), primary_key=True),
    Column("clock", String(30), primary_key=True),
    Column("reported_us", BigInteger, nullable=False),
    Column("reference", String(200), nullable=False),
    Column("marked_by", String(200), nullable=False),
    Column("marked_us", BigInteger, nullable=False),
)


class Incident(Struct, frozen=True):
    """Something that went wrong, or may have."""

    id: str
    organisation: str
    title: str
    kind: str
    ticket: str
    filter: str
    """The records it concerns, as a filter of their list."""
    since_us: int
    until_us: int
    noticed_us: int
    regimes: str
    """Separated by spaces."""
    opened_by: str
    opened_us: int
    conclusion: str = ""
    closing_by: str = ""
    """Who requested to close it; somebody else closes it."""
    closed_by: str = ""
    closed_us: int = 0

    @property
    def scope(self) -> str:
        """Its times and filter in one text, by which a change states what it was based on.

        Without a filter the text has no trailing characters that a form would strip.
        """
        return f"{self.since_us} {self.until_us} {self.filter}".rstrip()

    @property
    def state(self) -> str:
        return "closed" if self.closed_us else "closing" if self.closing_by else "open"


class Report(Struct, frozen=True):
    """A report on an incident that was made."""

    incident: str
    clock: str
    reported_us: int
    reference: str
    marked_by: str
    marked_us: int


class Running(Struct, frozen=True):
    """A clock of an incident in its present state."""

    clock: ReportClock
    due_us: int
    """0 if the rule says without delay."""
    state: str
    """`running`, `overdue`, `due now`, `reported` or `reported late`."""
    report: Report | None = None

    @property
    def is_stopped(self) -> bool:
        return self.report is not None


def clocks(incident: Incident, reports: Sequence[Report], now_us: int) -> list[Running]:
    """The clocks of an incident, running ones first."""
    made = {report.clock: report for report in reports if report.incident == incident.id}
    found = []
    for clock in clocks_of(incident.regimes.split()):
        report = made.get(clock.name)
        due_us = incident.noticed_us + clock.within_us if clock.within_us else 0
        at_us = report.reported_us if report is not None else now_us
        is_late = bool(due_us) and at_us > due_us
        if report is not None:
            state = "reported late" if is_late else "reported"
        else:
            state = "overdue" if is_late else "running" if due_us else "due now"
        found.append(Running(clock, due_us, state, report))
    return sorted(found, key=lambda each: (each.is_stopped, each.due_us, each.clock.name))


class IncidentStore:
    """Incidents of all organisations of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    @staticmethod
    def new_id() -> str:
        return secrets.token_hex(_ID_BYTES)

    async def open(self, incident: Incident) -> None:
        async with self._database.writing() as connection:
            await connection.execute(insert(incidents).values(asdict(incident)))

    async def listed(self, organisation: str) -> list[Incident]:
        """An organisation's incidents, open ones first, then the newest; at most `SHOWN_MAX`."""
        query = _LISTED.reading(select(incidents).where(incidents.c.organisation == organisation))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query.limit(SHOWN_MAX))).mappings().all()
        return [_incident_of(row) for row in rows]

    async def page(
        self, organisation: str, first: int, limit: int, after: str = ""
    ) -> Part[Incident]:
        """A page of all of them in the same order; `after` is the key of the last one before it."""
        query = select(incidents).where(incidents.c.organisation == organisation)
        async with self._database.reading() as connection:
            place = (first, after)
            return await part_behind(connection, query, _LISTED, place, limit, _incident_of)

    async def one(self, organisation: str, incident_id: str) -> Incident | None:
        columns = incidents.c
        query = select(incidents).where(
            columns.id == incident_id, columns.organisation == organisation
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return Incident(**row) if row is not None else None

    async def reports(self, found: Sequence[Incident]) -> list[Report]:
        """The reports on these incidents, in the order in which they were made."""
        columns = incident_reports.c
        query = select(incident_reports).where(columns.incident.in_([each.id for each in found]))
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(columns.reported_us, columns.clock))
            return [Report(**row) for row in rows.mappings().all()]

    async def standing(
        self, organisations: Collection[str] | None
    ) -> list[tuple[Incident, list[Running]]]:
        """Open incidents with their clocks, newest first: all, since the oldest are late."""
        found = await self._open(organisations)
        reports, now_us = await self.reports(found), self._clock.utc_us()
        return [(each, clocks(each, reports, now_us)) for each in found]

    async def mark(self, report: Report) -> bool:
        """Note that a report was made; False if that was noted before."""
        try:
            async with self._database.writing() as connection:
                await connection.execute(insert(incident_reports).values(asdict(report)))
        except IntegrityError:
            return False
        return True

    async def ask_close(self, incident: Incident, actor: str, conclusion: str) -> bool:
        """The first of two people requests closing; False if it is no longer open."""
        values = {"closing_by": actor, "conclusion": conclusion}
        return await self._change(incident, values, closing_by="")

    async def close(self, incident: Incident, actor: str) -> bool:
        """The second person closes; False if it does not wait for that, with this conclusion."""
        values = {"closed_by": actor, "closed_us": self._clock.utc_us()}
        same = incidents.c.conclusion == incident.conclusion
        return await self._change(incident, values, same, closing_by=incident.closing_by)

    async def keep_open(self, incident: Incident) -> bool:
        """Decline or withdraw the request to close; the conclusion is kept for the next one."""
        return await self._change(incident, {"closing_by": ""}, closing_by=incident.closing_by)

    async def rescope(self, before: Incident, after: Incident) -> bool:
        """Change the requests concerned; False if somebody changed them, or closed it."""
        columns, names = incidents.c, ("filter", "since_us", "until_us")
        same = [columns[name] == getattr(before, name) for name in names]
        changed = (
            update(incidents)
            .where(columns.id == before.id, columns.closed_us == 0, *same)
            .values({name: getattr(after, name) for name in names})
        )
        async with self._database.writing() as connection:
            return bool((await connection.execute(changed)).rowcount)

    async def _open(self, organisations: Collection[str] | None) -> list[Incident]:
        """Open incidents; None means every organisation."""
        columns, query = incidents.c, _LISTED.reading(select(incidents))
        if organisations is not None:
            query = query.where(columns.organisation.in_(sorted(organisations)))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query.where(columns.closed_us == 0))).mappings().all()
        return [_incident_of(row) for row in rows]

    async def _change(
        self,
        incident: Incident,
        values: Mapping[str, object],
        *same: ColumnElement[bool],
        closing_by: str,
    ) -> bool:
        columns = incidents.c
        changed = update(incidents).where(
            columns.id == incident.id,
            columns.closed_us == 0,
            columns.closing_by == closing_by,
            *same,
        )
        async with self._database.writing() as connection:
            return bool((await connection.execute(changed.values(**values))).rowcount)


def _incident_of(row: RowMapping) -> Incident:
    return Incident(**{column.name: row[column.name] for column in incidents.c})


def checked(incident: Incident, now_us: int) -> Incident:
    """The incident, if its fields make sense; otherwise raises RequestInvalid naming the field."""
    if not 1 <= len(incident.title) <= TITLE_CHARS_MAX:
        reason = f"a title has between 1 and {TITLE_CHARS_MAX} characters"
        raise RequestInvalid(reason, parameter="title")
    if incident.kind not in KINDS:
        raise RequestInvalid(f"the kind is one of {', '.join(KINDS)}", parameter="kind")
    _check_times(incident, now_us)
    if len(incident.ticket) > TITLE_CHARS_MAX:
        raise RequestInvalid("the ticket is too long", parameter="ticket")
    return incident


def _check_times(incident: Incident, now_us: int) -> None:
    """Refuse times that cannot be shown in every zone and counted with, such as nanoseconds."""
    if incident.noticed_us > now_us:
        raise RequestInvalid("nobody can have noticed it in the future", parameter="noticed")
    if incident.noticed_us < 0:
        raise RequestInvalid("nothing is on record from before 1970", parameter="noticed")
    if incident.since_us < 0:
        raise RequestInvalid("nothing is on record from before 1970", parameter="since")
    if incident.since_us > now_us:
        raise RequestInvalid("nothing is on record of the future", parameter="since")
    if incident.until_us and incident.until_us <= incident.since_us:
        raise RequestInvalid("it ends before it begins", parameter="until")
    if incident.until_us > now_us + AHEAD_US_MAX:
        raise RequestInvalid("it ends more than a year ahead", parameter="until")
