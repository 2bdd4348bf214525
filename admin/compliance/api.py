"""The compliance room as JSON: the same readers and deeds as its pages, typed in and out."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Literal

from litestar import Response, get, post
from litestar.params import FromPath
from litestar.response import File
from msgspec import Struct

from admin.access import actor_of, needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.compliance.desk import Wish
from admin.compliance.erasures_api import case_routes
from admin.compliance.office import Office, Revealed, Standing, in_words
from admin.compliance.packs import file_of
from admin.long_lists import list_of
from admin.second_person import require_asker
from admin.services import Services
from admin.wrong_fields import taken_as
from gateway.clock import SECOND_US
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission, allows
from gateway.store.custody.orders import Hold, Reveal
from gateway.store.evidence.packing import EvidencePack
from gateway.store.retention.reports import FolderRetentionStanding


AT: Final = "/api/organisations/{organisation:str}/compliance"
_P = Permission
NO_CONTENT: Final = 204
_READS: Final = needs(_P.AUDIT_READ)


class RevealOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Leave to read content of one request, or of all, for so many minutes once it is approved."""

    reason: str
    ticket: str
    request_id: str = ""
    minutes: int = 30


class EndOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a reveal is declined; empty where that needs no reason."""

    comment: str = ""


class KeepOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a release is declined, and whom its sender saw asking for it; None where nobody says."""

    comment: str = ""
    asked_by: str | None = None


class HoldOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A hold; `user` is an end user as requests name them, empty for everybody."""

    reason: str
    user: str = ""


class ReleaseOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A release; refused where somebody else than `asked_by`, empty for nobody, asks for it.

    It has to be said: the same order asks for a release, or makes one that is for good.
    """

    asked_by: str


class RetainedFolder(Struct, frozen=True):
    """How retention stood in one audit folder when it was last looked at."""

    folder: str
    workers: tuple[str, ...]
    looked_us: int
    due: int
    held: int
    unsure: int
    gone: int
    """How many keys were destroyed when some last were, at `gone_us`."""
    gone_us: int
    overdue_s: int
    """How long the oldest key there that no hold is on is past its time; 0 where none is."""
    is_lost: bool


class RetentionView(Struct, frozen=True):
    """What the next run of retention would destroy beside this listener, and all folders."""

    retention_class: str
    days: int
    keys: int
    held: int
    unsure: int
    """Past their time by this machine's clock, on a date that the log does not bear out."""
    run: Literal["typed", "daily"] = "typed"
    folders: tuple[RetainedFolder, ...] = ()


class Release(Struct, frozen=True):
    """Whether the hold is released now, or waits for a second person."""

    released: bool


def api_routes(services: Services, office: Office) -> list[Any]:
    """All JSON routes of the room."""
    return [
        *_reading(services, office),
        *_reveals(office),
        *_holds(office),
        *case_routes(office),
        *_packs(services, office),
    ]


def _reading(services: Services, office: Office) -> list[Any]:
    run = services.settings.retention.run

    @get(AT, opt=_READS)
    async def standing(organisation: FromPath[str]) -> Standing:
        return await office.standing(organisation)

    @get(AT + "/retention", opt=_READS)
    async def retention(organisation: FromPath[str]) -> RetentionView:
        due = await office.due(organisation)
        if due is None:
            return RetentionView("", 0, 0, 0, 0, run)
        counts = len(due.due), len(due.held), len(due.unsure)
        now_us, found = services.clock.utc_us(), await office.retained(organisation)
        folders = tuple(_folder(each, now_us) for each in found)
        return RetentionView(due.retention_class, due.days, *counts, run, folders)

    return [standing, retention]


def _folder(known: FolderRetentionStanding, now_us: int) -> RetainedFolder:
    report = known.report
    return RetainedFolder(
        report.folder,
        known.workers,
        report.looked_us,
        due=report.due,
        held=report.held,
        unsure=report.unsure,
        gone=report.gone,
        gone_us=report.gone_us,
        overdue_s=report.overdue_us(now_us) // SECOND_US,
        is_lost=known.is_lost,
    )


def _reveals(office: Office) -> list[Any]:
    one = AT + "/reveals/{reveal:str}"

    @get(AT + "/reveals", opt=_READS)
    async def list_reveals(
        request: Asking, organisation: FromPath[str]
    ) -> Response[Sequence[Reveal]]:
        whole = partial(office.reveals, organisation)
        return await list_of(request, whole, partial(office.lists.reveals, organisation))

    @post(AT + "/reveals", opt=needs(_P.CONTENT_REVEAL, records="reveal.asked"))
    async def ask(request: Asking, organisation: FromPath[str]) -> Reveal:
        order = await body_of(request, RevealOrder)
        return await office.ask_reveal(
            actor_of(request),
            organisation,
            order.request_id,
            reason=order.reason,
            ticket=order.ticket,
            minutes=order.minutes,
        )

    @get(one, opt=_READS)
    async def one_reveal(organisation: FromPath[str], reveal: FromPath[str]) -> Reveal:
        return await office.reveal(organisation, reveal)

    @post(one + "/approve", opt=needs(_P.CONTENT_APPROVE_REVEAL, records="reveal.approved"))
    async def approve(
        request: Asking, organisation: FromPath[str], reveal: FromPath[str]
    ) -> Reveal:
        await office.reveal(organisation, reveal)
        with taken_as("reveal"), in_words():
            return await office.custody.approve_reveal(actor_of(request), reveal)

    @post(one + "/end", opt=needs(_P.CONTENT_APPROVE_REVEAL, records="reveal.ended"))
    async def end(request: Asking, organisation: FromPath[str], reveal: FromPath[str]) -> Reveal:
        order = await body_of(request, EndOrder)
        await office.reveal(organisation, reveal)
        with taken_as("reveal"), in_words():
            return await office.custody.end_reveal(actor_of(request), reveal, order.comment)

    @post(one + "/content", opt=needs(_P.CONTENT_REVEAL, records="reveal.used"))
    async def content(
        request: Asking, organisation: FromPath[str], reveal: FromPath[str]
    ) -> list[Revealed]:
        found = await office.reveal(organisation, reveal)
        with taken_as("reveal"):
            return await office.content(actor_of(request), found)

    return [list_reveals, ask, one_reveal, approve, end, content]


def _holds(office: Office) -> list[Any]:
    sets = needs(_P.HOLDS_SET, records="hold.set")
    releases = needs(_P.HOLDS_SET, records="hold.released")
    keeps = needs(_P.HOLDS_SET, records="hold.release_declined")

    @get(AT + "/holds", opt=_READS)
    async def list_holds(request: Asking, organisation: FromPath[str]) -> Response[Sequence[Hold]]:
        whole = partial(office.custody.holds, organisation)
        return await list_of(request, whole, partial(office.lists.holds, organisation))

    @post(AT + "/holds", opt=sets)
    async def set_hold(request: Asking, organisation: FromPath[str]) -> Hold:
        order = await body_of(request, HoldOrder)
        if not order.reason.strip():
            raise RequestInvalid("A hold needs a reason.", parameter="reason")
        subject = office.subject_of(organisation, order.user)
        with in_words():
            actor = actor_of(request)
            return await office.custody.set_hold(actor, organisation, subject, order.reason)

    @post(AT + "/holds/{hold:str}/release", opt=releases)
    async def release(request: Asking, organisation: FromPath[str], hold: FromPath[str]) -> Release:
        order = await body_of(request, ReleaseOrder)
        await office.hold(organisation, hold)
        with taken_as("hold"), in_words():
            released = await office.custody.release_hold(actor_of(request), hold, order.asked_by)
        return Release(released)

    @post(AT + "/holds/{hold:str}/keep", opt=keeps, status_code=NO_CONTENT)
    async def keep(request: Asking, organisation: FromPath[str], hold: FromPath[str]) -> None:
        order = await body_of(request, KeepOrder)
        found = await office.hold(organisation, hold)
        with taken_as("hold"), in_words():
            require_asker(order.asked_by, found.release_by)
            await office.custody.keep_hold(actor_of(request), hold, order.comment)

    return [list_holds, set_hold, release, keep]


def _packs(services: Services, office: Office) -> list[Any]:
    @get(AT + "/packs", opt=_READS)
    async def list_packs(
        request: Asking, organisation: FromPath[str]
    ) -> Response[Sequence[EvidencePack]]:
        whole = partial(office.desk.packs, organisation)
        return await list_of(request, whole, partial(office.desk.page, organisation))

    @post(AT + "/packs", opt=needs(_P.AUDIT_EXPORT, records="pack.asked"))
    async def make(request: Asking, organisation: FromPath[str]) -> EvidencePack:
        order = await body_of(request, Wish)
        person = session_of(request).person
        if order.log == "deeds" and not allows(person, _P.AUDIT_EXPORT):
            raise RequestInvalid("What operators did is of all organisations.", parameter="log")
        with taken_as(since="since_us", until="until_us"):
            return await office.desk.ask(person.name, organisation, order)

    @get(AT + "/packs/{pack:str}", opt=_READS)
    async def one_pack(organisation: FromPath[str], pack: FromPath[str]) -> EvidencePack:
        return await office.desk.pack(organisation, pack)

    @get(AT + "/packs/{pack:str}/file", opt=needs(_P.AUDIT_EXPORT))
    async def fetch(request: Asking, organisation: FromPath[str], pack: FromPath[str]) -> File:
        return await file_of(services, office, request, organisation, pack)

    return [list_packs, make, one_pack, fetch]
