"""What the compliance room works with: custody, erasures and packs of one organisation at a time.

Whatever is asked for by its id is looked up in the organisation of the path, so that nobody reaches
another organisation's; what custody refuses comes back as an error of the form, in its own words.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from litestar.exceptions import NotFoundException
from msgspec import Struct
from msgspec.structs import replace

from admin.compliance.desk import PackDesk
from admin.compliance.incident_room import IncidentLine
from admin.forms import as_sentence
from admin.services import Services
from gateway.actors import same_person
from gateway.audit.projecting.export import export_records
from gateway.audit.projecting.projector import ProjectionBroken
from gateway.audit.proving.exported import SignedCheckpoint
from gateway.clock import DAY_US, WEEK_US
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.identity import Peppers
from gateway.money.budgets import end_user_subject
from gateway.oversight.access import Permission
from gateway.secrets.credentials import all_peppers, master_key
from gateway.store.custody.custody_lists import CustodyLists, RevealFigures
from gateway.store.custody.incidents import IncidentStore
from gateway.store.custody.orders import Custody, CustodyChanged, CustodyRefused, Hold, Reveal
from gateway.store.custody.reveal_reports import RevealReport, RevealReports
from gateway.store.custody.reviews import Review, ReviewStore
from gateway.store.erasure.cases import ErasureCase
from gateway.store.erasure.certificates import certified
from gateway.store.erasure.erasing import Consequences, Erasures
from gateway.store.erasure.outstanding import Reach
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.packing import EvidencePack
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.sink import AuditQuery
from gateway.store.pages import Part
from gateway.store.retention.keeping import Expired, content_keys, expired_of, retention_of
from gateway.store.retention.reports import FolderRetentionStanding, RetentionReports


REVEALED_MAX: Final = 50
DUE_SHOWN: Final = 10
"""The most shown of each kind on the room's home page; the kind's own list has all."""
REVEALED_CHARS_MAX: Final = 65_536
UNKNOWN_REQUEST: Final = (
    "No record of this organisation has such an id. A request that has just been answered is known "
    "within seconds."
)
_Found = TypeVar("_Found")


class Standing(Struct, frozen=True):
    """Everything due in an organisation, and recent events."""

    organisation: str
    waiting: Part[Reveal]
    """The oldest ones; like every list here it holds only the first, but counts all."""
    releases: Part[Hold]
    """Holds to be released."""
    cases: Part[ErasureCase]
    """Open ones, the most urgent first."""
    late_cases: int
    holds: int
    reveals: RevealFigures
    """Figures for now and for the last week."""
    packs: Sequence[EvidencePack]
    signed_us: int
    """When its log was last signed; 0 before the first time."""
    signed_records: int
    retention_class: str
    retention_days: int
    """0 keeps content for ever."""
    reviews: Sequence[Review]
    """Reviews to be signed now, the longest due first."""
    incidents: Sequence[IncidentLine]
    """Open incidents, with their clocks."""
    reports: Sequence[RevealReport]
    """Weekly reports of reveals, the newest first."""


class Revealed(Struct, frozen=True):
    """One record with its content."""

    sequence: int
    stage: str
    request_id: str
    utc_us: int
    content: str
    """Empty if it cannot be read; then `problem` says why."""
    problem: str
    left_out: int
    """How many characters are not shown."""


class Office:
    """The office: one for all pages of the room."""

    def __init__(self, services: Services) -> None:
        settings, clock = services.settings, services.clock
        self._services = services
        self._wrapper = master_key(settings)
        self.custody = Custody(services.database, services.log, clock)
        self.lists = CustodyLists(services.database, clock)
        self.parts = Integration(settings, services.database, clock, self._wrapper)
        self.erasures = erasures_of(services, self.parts)
        self.desk = PackDesk(services, self.parts)
        self._incidents = IncidentStore(services.database, clock)

    async def standing(self, organisation: str) -> Standing:
        """The contents of the room's home page."""
        services = self._services
        since_us = services.clock.utc_us() - WEEK_US
        cases, late = await self.erasures.cases.urgent(organisation, DUE_SHOWN)
        newest: SignedCheckpoint | None = await self.parts.trees.newest(organisation)
        name, days = retention_of(self._services.settings, organisation)
        return Standing(
            organisation=organisation,
            waiting=await self.lists.waiting_reveals(organisation, 0, DUE_SHOWN),
            releases=await self.lists.releases(organisation, 0, DUE_SHOWN),
            cases=cases,
            late_cases=late,
            holds=(await self.lists.holds(organisation, 0, 0)).count,
            reveals=await self.lists.figures(organisation, since_us),
            packs=await self.desk.packs(organisation),
            signed_us=newest.signed_us if newest else 0,
            signed_records=newest.size if newest else 0,
            retention_class=name,
            retention_days=days,
            reviews=await ReviewStore(services.database, services.clock).due([organisation]),
            incidents=[
                IncidentLine(each, tuple(running))
                for each, running in await self._incidents.standing([organisation])
            ],
            reports=await RevealReports(services.database, services.clock).of(organisation),
        )

    async def reveals(self, organisation: str) -> list[Reveal]:
        """All of them, the newest first."""
        return [*await self.custody.reveals(0, organisation)][::-1]

    async def reveal(self, organisation: str, reveal_id: str) -> Reveal:
        return _there(await self.custody.reveal(organisation, reveal_id))

    async def ask_reveal(
        self,
        actor: str,
        organisation: str,
        request_id: str,
        *,
        reason: str,
        ticket: str,
        minutes: int,
    ) -> Reveal:
        """Ask to read the content of one of the organisation's requests or, without an id, of all.

        Raises:
            RequestInvalid: no record here has such an id, or custody refuses it. Then nothing is
                recorded: it would be approved, and show nothing.
        """
        wanted = request_id.strip()
        if wanted and not await self._is_recorded(organisation, wanted):
            raise RequestInvalid(UNKNOWN_REQUEST, parameter="request_id")
        with in_words():
            return await self.custody.ask_reveal(
                actor, organisation, request_id, reason=reason, ticket=ticket, minutes=minutes
            )

    async def hold(self, organisation: str, hold_id: str) -> Hold:
        return _there(await self.custody.hold(organisation, hold_id))

    async def covered(self, hold: Hold) -> int:
        """Keys of content that a hold keeps, here and in the database; raises OSError."""
        settings, database = self._services.settings, self._services.database
        return len(await content_keys(settings, database, hold.organisation, hold.subject or None))

    async def case(self, organisation: str, case_id: str) -> ErasureCase:
        return _there(await self.erasures.cases.case(organisation, case_id))

    async def due(self, organisation: str) -> Expired | None:
        """What the next run of retention would destroy; None if nothing is ever destroyed."""
        today = self._services.clock.utc_us() // DAY_US
        settings, database = self._services.settings, self._services.database
        return await expired_of(settings, database, self.custody, organisation, today)

    async def retained(self, organisation: str) -> Sequence[FolderRetentionStanding]:
        """The state of its retention in each audit folder, the one furthest behind first."""
        _, days = retention_of(self._services.settings, organisation)
        return await RetentionReports(self._services.database).of(organisation, days)

    async def reach(self, case: ErasureCase) -> Reach:
        """How far a case has come; nowhere before it was carried out."""
        return (await self.erasures.reach.of([case])).get(case.id, Reach())

    async def told(self, cases: Sequence[ErasureCase]) -> list[ErasureCase]:
        """The same, each with its certificate as it stands now."""
        reached = await self.erasures.reach.of(cases)
        return [
            replace(each, certificate=certified(each, reached[each.id]).decode())
            if each.id in reached
            else each
            for each in cases
        ]

    async def consequences(self, case: ErasureCase) -> Consequences:
        return await self.erasures.consequences(case.organisation, case.subject or None)

    async def others(self, may: Permission, organisation: str, asked_by: str) -> list[str]:
        """Who may agree, by this permission, to what somebody asks for."""
        able = await self._services.people_lists.able(may, organisation)
        return [each.name for each in able if not same_person(each.name, asked_by)]

    async def search(
        self, actor: str, organisation: str, reference: str
    ) -> tuple[str, Consequences]:
        """An end user's digest, and what is kept of them; the search is recorded."""
        subject = self.subject_of(organisation, reference)
        if not subject:
            raise RequestInvalid("Whose content is it?", parameter="user")
        found = await self.erasures.consequences(organisation, subject)
        detail = {"subject": subject, "found": str(found.records)}
        await self.custody.record(actor, "subject.searched", organisation, **detail)
        return subject, found

    def subject_of(self, organisation: str, reference: str) -> str:
        """The keyed digest of an end user, as requests name them; empty if none is named.

        Raises:
            RequestInvalid: it is only blanks, which is neither somebody nor everybody.
        """
        settings = self._services.settings
        if not reference:
            return ""
        if not reference.strip():
            raise RequestInvalid("Whose content is it?", parameter="user")
        peppers = Peppers(all_peppers(settings), settings.secrets.pepper_version)
        return end_user_subject(organisation, reference.strip(), peppers.keyed)

    async def _is_recorded(self, organisation: str, request_id: str) -> bool:
        """Whether a record of the organisation has this id; a damaged log may have lost one."""
        query = AuditQuery(organisation=organisation, request_id=request_id)
        if await self.parts.sink.newest(query, 1):
            return True
        try:
            await self.parts.projector.catch_up()
        except (ProjectionBroken, OSError):
            return True
        return bool(await self.parts.sink.newest(query, 1))

    async def content(self, actor: str, reveal: Reveal) -> list[Revealed]:
        """Content, for the person who asked and while the reveal is open; counted and recorded."""
        await self.parts.projector.catch_up()
        with in_words():
            await self.custody.use_reveal(actor, reveal.id)
            await self._services.erasures.require_done(reveal.organisation)
        request_id = reveal.request_id or None
        query = AuditQuery(organisation=reveal.organisation, request_id=request_id)
        found: list[Revealed] = []
        async for line in export_records(
            self.parts.sink.records(query),
            directory=self.parts.directory,
            keys=self._wrapper,
            second=SecondContents(self._services.database),
        ):
            if "content" not in line and "content_error" not in line:
                continue
            found.append(_revealed(line))
            if len(found) >= REVEALED_MAX:
                break
        return found


def erasures_of(services: Services, parts: Integration | None = None) -> Erasures:
    """The object that carries out erasures, for the compliance room and the approvals inbox."""
    settings, database, clock = services.settings, services.database, services.clock
    master = master_key(settings)
    custody = Custody(database, services.log, clock)
    parts = parts or Integration(settings, database, clock, master)
    return Erasures(settings, database, custody, parts, master, clock)


@contextmanager
def in_words() -> Iterator[None]:
    """Turns custody's refusals into errors for the person who asked."""
    try:
        yield
    except CustodyChanged as error:
        raise ChangedMeanwhile(as_sentence(str(error))) from error
    except CustodyRefused as error:
        raise RequestInvalid(as_sentence(str(error)), parameter=error.field) from error


def _revealed(line: dict[str, object]) -> Revealed:
    content = str(line.get("content", ""))
    return Revealed(
        sequence=int(str(line["sequence"])),
        stage=str(line["stage"]),
        request_id=str(line["request_id"]),
        utc_us=int(str(line["utc_us"])),
        content=content[:REVEALED_CHARS_MAX],
        problem=str(line.get("content_error", "")),
        left_out=max(0, len(content) - REVEALED_CHARS_MAX),
    )


def _there(found: _Found | None) -> _Found:
    if found is None:
        raise NotFoundException
    return found
