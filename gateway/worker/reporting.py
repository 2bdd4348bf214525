"""Makes the weekly report of reveals: once per organisation, by whichever worker comes first.

It counts as made once it is an admin record, so it goes out through the sinks of the settings with
every other record; the web hook for alerts gets it too.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from gateway.clock import Clock
from gateway.money.alerting import Alerting, Hook, Told, told
from gateway.oversight.deeds import OPERATORS, Deeds
from gateway.pacing.upkeep import Duty
from gateway.store.custody.orders import Reveal
from gateway.store.custody.reveal_reports import RevealReport, RevealReports, Week, reveals_between
from gateway.store.engine import Database
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.telemetry import Event


ACTOR: Final = "gateway"
ACTION: Final = "reveal.reported"
PERIOD_S: Final = 60.0
LISTED_MAX: Final = 50
"""Reveals that a record names individually; it counts all of them."""
_LOOKED_AT: Final = 1_000


class ReportMessage(Struct, frozen=True):
    """What a web hook gets: names of people and numbers, no content."""

    event: str
    organisation: str
    since_us: int
    until_us: int
    asked: int
    approved: int
    readings: int
    people: int


def report_message(report: RevealReport) -> Told:
    """The message about a week's reveals."""
    message = ReportMessage(
        event="reveals.reported",
        organisation=report.organisation,
        since_us=report.since_us,
        until_us=report.until_us,
        asked=report.asked,
        approved=report.approved,
        readings=report.readings,
        people=report.people,
    )
    return told(message.event, (report.organisation, report.since_us), message)


class RevealReporting:
    """Call `tend` every minute."""

    def __init__(
        self,
        database: Database,
        sink: DatabaseAuditSink,
        deeds: Deeds,
        clock: Clock,
        hook: Hook | None = None,
    ) -> None:
        self._database = database
        self._sink = sink
        self._deeds = deeds
        self._reports = RevealReports(database, clock)
        self._alerting = (
            None if hook is None else Alerting(self._reports, hook, message=report_message)
        )

    async def tend(self) -> None:
        """Make reports that are due, and send those that were made.

        Raises:
            AuditUnavailable: a report could not be recorded; it is made again after a minute.
            NotReady: the database does not answer.
        """
        others: set[str] = set()
        for week in await self._reports.owed():
            # In order: a week that somebody else is at must not be passed over by the next one.
            if week.organisation in others:
                continue
            if claim := await self._reports.claim(week):
                await self._make(week, is_again=claim == "again")
            else:
                others.add(week.organisation)
        if self._alerting is not None:
            await self._alerting.perform()

    async def _make(self, week: Week, *, is_again: bool) -> None:
        reveals = await reveals_between(
            self._database, week.organisation, week.since_us, week.until_us
        )
        report = _summed(week, reveals)
        if not (is_again and await self._is_recorded(week)):
            await self._record(week, report, reveals)
        await self._reports.made(report)

    async def _record(self, week: Week, report: RevealReport, reveals: Sequence[Reveal]) -> None:
        names = ("id", "request_id", "ticket", "asked_by", "approved_by", "used")
        listed = [{name: getattr(each, name) for name in names} for each in reveals[:LISTED_MAX]]
        counts = {
            name: str(getattr(report, name)) for name in ("asked", "approved", "readings", "people")
        }
        span = {"since_us": str(week.since_us), "until_us": str(week.until_us)}
        detail = {"week": week.day} | counts | span
        await self._deeds.record(ACTOR, ACTION, week.organisation, after=listed, **detail)

    async def _is_recorded(self, week: Week) -> bool:
        """Whether a worker that claimed it before got as far as the log."""
        query = AuditQuery(
            organisation=OPERATORS, stage="admin", action=ACTION, since_us=week.until_us
        )
        wanted = (week.organisation, str(week.since_us))
        for row in await self._sink.newest(query, _LOOKED_AT):
            detail = row.projected.record.detail
            if (detail.get("organisation"), detail.get("since_us")) == wanted:
                return True
        return False


def _summed(week: Week, reveals: Sequence[Reveal]) -> RevealReport:
    asked = [each for each in reveals if week.since_us <= each.asked_us < week.until_us]
    approved = [each for each in reveals if week.since_us <= each.approved_us < week.until_us]
    return RevealReport(
        organisation=week.organisation,
        since_us=week.since_us,
        until_us=week.until_us,
        claimed_us=0,
        made_us=0,
        sent_us=0,
        asked=len(asked),
        approved=len(approved),
        readings=sum([each.used for each in approved]),
        people=len({each.asked_by for each in reveals}),
    )


def reveal_reporting(
    database: Database, sink: DatabaseAuditSink, deeds: Deeds, clock: Clock, hook: Hook | None
) -> Duty:
    """The duty of a worker."""
    reporting = RevealReporting(database, sink, deeds, clock, hook)
    return Duty("reveal reports", PERIOD_S, reporting.tend, Event.UPKEEP_FAILED)
