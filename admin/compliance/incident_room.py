"""Incidents as they stand, whom the log shows to be concerned, and the deeds that handle them."""

from collections.abc import Collection, Sequence
from typing import Final

from litestar.exceptions import NotFoundException
from msgspec import Struct, structs
from msgspec.structs import asdict

from admin.queries import PAGE_ROWS
from admin.services import Services
from gateway.actors import same_person
from gateway.clock import DAY_US
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.obligations import BY_NAME
from gateway.oversight.access import Permission, Person, allows
from gateway.oversight.deeds import OPERATORS
from gateway.oversight.searching import parse, render, timeless
from gateway.store.custody.incidents import (
    TEXT_CHARS_MAX,
    TITLE_CHARS_MAX,
    Incident,
    IncidentStore,
    Report,
    Running,
    checked,
    clocks,
)
from gateway.store.custody.regimes import RegimeTable
from gateway.store.evidence.sink import AuditQuery
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.pages import Part
from gateway.store.traffic.conditions import Search, Source
from gateway.store.traffic.explorer import Explorer
from gateway.store.traffic.lists import Row


COUNTED_MAX: Final = 10_000
"""Records of the scope that are counted; beyond, figures are at least so much."""
LOOKED_AT_MAX: Final = 40_000
DEEDS_MAX: Final = 50
DUE_STATES: Final = ("overdue", "due now")
_BEFORE_US: Final = DAY_US
"""So long before it was noticed the scope begins, where nobody says otherwise."""


class IncidentOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """What was noticed; times are microseconds UTC, 0 leaves them to us."""

    title: str
    kind: str = "other"
    ticket: str = ""
    filter: str = ""
    noticed_us: int = 0
    since_us: int = 0
    until_us: int = 0


class ReportOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Which report was made, when (0 is now), and what the receiver calls it."""

    clock: str
    reported_us: int = 0
    reference: str = ""


class CloseOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """What came of it, as the first person says it.

    `agreed` is the conclusion that the second person read; refused (409) where another one stands.
    """

    conclusion: str = ""
    agreed: str | None = None


class Counted(Struct, frozen=True):
    """Something of the scope, and how many of its requests."""

    name: str
    requests: int


class Scope(Struct, frozen=True):
    """Whom an incident concerns, counted from the log."""

    requests: int
    subjects: int
    """End users named by these requests, as keyed digests; how many different ones."""
    unnamed: int
    """Requests that name no end user."""
    keys: tuple[Counted, ...]
    targets: tuple[Counted, ...]
    jurisdictions: tuple[Counted, ...]
    findings: tuple[Counted, ...]
    """Kinds of what was found in them, never values."""
    is_all: bool
    """Whether everything was counted; otherwise there is at least so much."""


class IncidentLine(Struct, frozen=True):
    """One incident in a list."""

    incident: Incident
    clocks: tuple[Running, ...]


class IncidentDetail(Struct, frozen=True):
    """All that an incident's page and its report show."""

    incident: Incident
    clocks: tuple[Running, ...]
    scope: Scope
    deeds: tuple[Row, ...]
    """What was done in the organisation since it was noticed, the newest first."""
    are_all_deeds: bool
    """Whether that is everything; otherwise the log has earlier ones."""
    checkpoint_size: int
    checkpoint_root: str
    checkpoint_us: int
    now_us: int


class IncidentRoom:
    """Incidents of one organisation at a time."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._explorer = Explorer(services.traffic)
        self._trees = DatabaseAuditTrees(services.database)
        self.store = IncidentStore(services.database, services.clock)
        self._regimes = RegimeTable(
            services.database, services.settings.obligations, services.clock
        )

    async def regimes(self, organisation: str) -> tuple[str, ...]:
        """The rules that hold for an organisation now."""
        return (await self._regimes.standing(organisation)).names

    async def lines(self, organisation: str) -> list[IncidentLine]:
        """Open ones first, then the newest."""
        return await self._lines(await self.store.listed(organisation))

    async def page(
        self, organisation: str, first: int, limit: int = PAGE_ROWS, after: str = ""
    ) -> Part[IncidentLine]:
        """Some of all of them, in the same order."""
        part = await self.store.page(organisation, first, limit, after)
        return part.of(await self._lines(part.rows))

    async def _lines(self, found: Sequence[Incident]) -> list[IncidentLine]:
        reports, now_us = await self.store.reports(found), self._services.clock.utc_us()
        return [IncidentLine(each, tuple(clocks(each, reports, now_us))) for each in found]

    async def incident(self, organisation: str, incident_id: str) -> Incident:
        """Raises NotFoundException where there is none."""
        found = await self.store.one(organisation, incident_id)
        if found is None:
            raise NotFoundException
        return found

    async def detail(self, organisation: str, incident_id: str) -> IncidentDetail:
        """Raises NotFoundException where there is none."""
        incident = await self.incident(organisation, incident_id)
        now_us = self._services.clock.utc_us()
        newest = await self._trees.newest(organisation)
        about = Search(
            Source(OPERATORS, "admin", organisation),
            parse(""),
            now_us,
            since_us=min(incident.noticed_us, incident.opened_us),
            until_us=incident.closed_us + DAY_US if incident.closed_us else now_us + DAY_US,
        )
        page = await self._explorer.page([about], limit=DEEDS_MAX)
        return IncidentDetail(
            incident=incident,
            clocks=tuple(clocks(incident, await self.store.reports([incident]), now_us)),
            scope=await self.scope(incident),
            deeds=page.rows,
            are_all_deeds=not page.is_more and page.looked_back_us is None,
            checkpoint_size=newest.size if newest else 0,
            checkpoint_root=newest.root.hex() if newest else "",
            checkpoint_us=newest.signed_us if newest else 0,
            now_us=now_us,
        )

    async def scope(self, incident: Incident) -> Scope:
        """Counts of the requests that its filter finds in its time."""
        now_us = self._services.clock.utc_us()
        until_us = incident.until_us or now_us + 1
        found = parse(incident.filter)
        source = Source(incident.organisation, "outcome")
        search = Search(source, found, now_us, since_us=incident.since_us, until_us=until_us)
        rows: list[Row] = []
        async for row in self._explorer.rows([search]):
            if len(rows) >= COUNTED_MAX:
                break
            rows.append(row)
        subjects, unnamed, is_all = await self._subjects(incident, rows, until_us)
        return Scope(
            requests=len(rows),
            subjects=subjects,
            unnamed=unnamed,
            keys=_counted([row.key_id for row in rows]),
            targets=_counted([row.target for row in rows]),
            jurisdictions=_counted([row.jurisdiction for row in rows]),
            findings=_counted([name for row in rows for name, _ in row.findings]),
            is_all=is_all and len(rows) < COUNTED_MAX,
        )

    async def _subjects(
        self, incident: Incident, rows: Sequence[Row], until_us: int
    ) -> tuple[int, int, bool]:
        """End users of these requests, requests without one, and if all records were read."""
        wanted = {row.sequence for row in rows}
        named: set[str] = set()
        unnamed = looked_at = 0
        query = AuditQuery(
            organisation=incident.organisation,
            stage="outcome",
            since_us=incident.since_us,
            until_us=until_us,
        )
        async for each in self._services.records.records(query):
            looked_at += 1
            if looked_at > LOOKED_AT_MAX:
                return len(named), unnamed, False
            if each.sequence not in wanted:
                continue
            subject = each.projected.record.subject if each.projected.raw_json else ""
            unnamed += not subject
            named |= {subject} if subject else set()
        return len(named), unnamed, True

    async def open(self, person: Person, organisation: str, order: IncidentOrder) -> Incident:
        """Raises RequestInvalid with the field that is wrong."""
        now_us = self._services.clock.utc_us()
        noticed_us = order.noticed_us or now_us
        incident = checked(
            Incident(
                id=self.store.new_id(),
                organisation=organisation,
                title=" ".join(order.title.split()),
                kind=order.kind,
                ticket=" ".join(order.ticket.split()),
                filter=filter_of(order.filter),
                since_us=order.since_us or noticed_us - _BEFORE_US,
                until_us=order.until_us,
                noticed_us=noticed_us,
                regimes=" ".join(await self.regimes(organisation)),
                opened_by=person.name,
                opened_us=now_us,
            ),
            now_us,
        )
        fields = ("title", "kind", "ticket", "filter", "noticed_us", "regimes")
        after = {"incident": incident.id} | {name: getattr(incident, name) for name in fields}
        async with self._services.deeds.doing(
            person.name, "incident.opened", organisation, after=after
        ):
            await self.store.open(incident)
        return incident

    async def mark(self, person: Person, incident: Incident, order: ReportOrder) -> Report:
        """Say that a report was made: its clock stops.

        Raises:
            RequestInvalid: the incident has no such clock, or the time cannot be.
            ChangedMeanwhile: it was marked before, or the incident is closed.
        """
        now_us = self._services.clock.utc_us()
        reported_us = order.reported_us or now_us
        names = {each.clock.name for each in clocks(incident, [], now_us)}
        if order.clock not in names or order.clock not in BY_NAME:
            raise RequestInvalid("this incident has no such report", parameter="clock")
        if not incident.noticed_us <= reported_us <= now_us:
            reason = "a report is made after the incident was noticed, and not in the future"
            raise RequestInvalid(reason, parameter="reported")
        if len(order.reference) > TITLE_CHARS_MAX:
            raise RequestInvalid("the reference is too long", parameter="reference")
        if incident.closed_us:
            raise ChangedMeanwhile("the incident is closed")
        report = Report(
            *(incident.id, order.clock, reported_us, " ".join(order.reference.split())),
            *(person.name, now_us),
        )
        async with self._services.deeds.doing(
            person.name, "incident.reported", incident.organisation, after=asdict(report)
        ):
            if not await self.store.mark(report):
                raise ChangedMeanwhile("this was already recorded")
        return report

    async def close(self, person: Person, incident: Incident, order: CloseOrder) -> Incident:
        """The first person says what came of it, a second one closes.

        Raises:
            RequestInvalid: nothing is said of what came of it, or the same person came twice.
            ChangedMeanwhile: somebody was faster, or the second person read something else.
        """
        organisation, said = incident.organisation, {"incident": incident.id}
        if not incident.closing_by:
            if order.agreed:
                raise ChangedMeanwhile("the request to close it was withdrawn")
            conclusion = order.conclusion.strip()
            if not 1 <= len(conclusion) <= TEXT_CHARS_MAX:
                reason = f"enter a conclusion of at most {TEXT_CHARS_MAX} characters"
                raise RequestInvalid(reason, parameter="conclusion")
            said["conclusion"] = conclusion
            async with self._services.deeds.doing(
                person.name, "incident.close_asked", organisation, after=said
            ):
                if not await self.store.ask_close(incident, person.name, conclusion):
                    raise ChangedMeanwhile("somebody else was faster")
            return structs.replace(incident, closing_by=person.name, conclusion=conclusion)
        if same_person(person.name, incident.closing_by):
            raise RequestInvalid("an incident is closed by a second person", parameter="incident")
        # Their own words are no agreement either: they did not see that somebody asks.
        agreed = order.conclusion or None if order.agreed is None else order.agreed
        if agreed is not None and agreed.split() != incident.conclusion.split():
            raise ChangedMeanwhile("the conclusion was changed meanwhile")
        async with self._services.deeds.doing(
            person.name, "incident.closed", organisation, after=said
        ):
            if not await self.store.close(incident, person.name):
                raise ChangedMeanwhile("somebody else was faster")
        return await self.incident(organisation, incident.id)

    async def keep_open(self, person: Person, incident: Incident) -> None:
        """Decline that it is closed, or take back having asked; raises ChangedMeanwhile."""
        if not incident.closing_by or incident.closed_us:
            raise ChangedMeanwhile("there is no request to close it")
        async with self._services.deeds.doing(
            person.name, "incident.kept_open", incident.organisation, after={"id": incident.id}
        ):
            if not await self.store.keep_open(incident):
                raise ChangedMeanwhile("there is no request to close it")


async def incidents_due(
    services: Services, person: Person, visible: Collection[str] | None
) -> list[tuple[str, str, int, int]]:
    """Open incidents that somebody leads: organisation, title, reports due by now, the next due."""
    found = []
    for incident, running in await IncidentStore(services.database, services.clock).standing(
        visible
    ):
        if not allows(person, Permission.INCIDENTS_LEAD, incident.organisation):
            continue
        open_ = [each for each in running if not each.is_stopped]
        late = sum(each.state in DUE_STATES for each in open_)
        next_us = min((each.due_us for each in open_ if each.due_us), default=0)
        found.append((incident.organisation, incident.title, late, next_us))
    return sorted(found, key=lambda each: (-each[2], each[3]))


def _counted(names: Sequence[str]) -> tuple[Counted, ...]:
    """How often each name stands there, the most frequent first."""
    counts: dict[str, int] = {}
    for name in names:
        if name:
            counts[name] = counts.get(name, 0) + 1
    found = [Counted(name, count) for name, count in counts.items()]
    return tuple(sorted(found, key=lambda each: (-each.requests, each.name)))


def filter_of(text: str) -> str:
    """A filter in its normal form, without the times that an incident has of its own.

    Raises:
        RequestInvalid: it cannot be read.
    """
    return render(timeless(text))
