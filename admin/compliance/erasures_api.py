"""Erasures as JSON: a search by digest, cases, one person's request and another's decision."""

from collections.abc import Sequence
from typing import Any, Final

from litestar import Response, get, post
from litestar.params import FromPath
from msgspec import Struct

from admin.access import actor_of, needs
from admin.asking import Asking
from admin.bodies import body_of
from admin.compliance.office import Office, in_words
from admin.long_lists import list_of
from admin.second_person import require_asker
from admin.wrong_fields import taken_as
from gateway.oversight.access import Permission
from gateway.store.erasure.cases import ErasureCase
from gateway.store.erasure.erasing import Consequences
from gateway.store.pages import Part


_ROOM: Final = "/api/organisations/{organisation:str}/compliance"
_ALL: Final = f"{_ROOM}/erasures"
ONE: Final = _ALL + "/{case:str}"
_P = Permission
_READS: Final = needs(_P.AUDIT_READ)


class CaseOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A case; `user` empty is the whole organisation."""

    ticket: str
    law: str = "gdpr"
    user: str = ""


class CaseVerdict(Struct, frozen=True, forbid_unknown_fields=True):
    """What is said with a verdict; refused where somebody else than `asked_by` asks for it."""

    comment: str
    asked_by: str | None = None


class SubjectOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """An end user, as requests name them."""

    user: str


class SubjectFound(Struct, frozen=True):
    """The keyed digest of an end user, and what is kept of them."""

    subject: str
    kept: Consequences


def case_routes(office: Office) -> list[Any]:
    """The search for an end user, the cases, and all that is done with one."""
    return [*_cases(office), *_asking(office), *_deciding(office)]


def _cases(office: Office) -> list[Any]:
    opens = needs(_P.CONTENT_ERASE, records="erasure.opened")
    searches = needs(_P.CONTENT_ERASE, records="subject.searched")

    @get(_ALL, opt=_READS)
    async def list_cases(
        request: Asking, organisation: FromPath[str]
    ) -> Response[Sequence[ErasureCase]]:
        async def whole() -> Sequence[ErasureCase]:
            return await office.told(await office.erasures.cases.of(organisation))

        async def part(first: int, limit: int, after: str) -> Part[ErasureCase]:
            found = await office.erasures.cases.page(organisation, first, limit, after)
            return found.of(await office.told(found.rows))

        return await list_of(request, whole, part)

    @post(_ALL, opt=opens)
    async def open_case(request: Asking, organisation: FromPath[str]) -> ErasureCase:
        order = await body_of(request, CaseOrder)
        subject = office.subject_of(organisation, order.user)
        with in_words():
            return await office.erasures.cases.open(
                actor_of(request), organisation, subject, order.law, order.ticket
            )

    @get(ONE, opt=_READS)
    async def one_case(organisation: FromPath[str], case: FromPath[str]) -> ErasureCase:
        return (await office.told([await office.case(organisation, case)]))[0]

    @post(f"{_ROOM}/subjects", opt=searches)
    async def search(request: Asking, organisation: FromPath[str]) -> SubjectFound:
        order = await body_of(request, SubjectOrder)
        return SubjectFound(*await office.search(actor_of(request), organisation, order.user))

    return [list_cases, open_case, one_case, search]


def _asking(office: Office) -> list[Any]:
    """What of a case one person may do: ask, take it back, end it without erasing."""
    asks = needs(_P.CONTENT_ERASE, records="erasure.asked")
    recalls = needs(_P.CONTENT_ERASE, records="erasure.recalled")
    withdraws = needs(_P.CONTENT_ERASE, records="erasure.withdrawn")

    @post(ONE + "/ask", opt=asks, status_code=200)
    async def ask(request: Asking, organisation: FromPath[str], case: FromPath[str]) -> ErasureCase:
        found = await office.case(organisation, case)
        with taken_as("case"), in_words():
            await office.erasures.ask(actor_of(request), found)
        return await office.case(organisation, case)

    @post(ONE + "/recall", opt=recalls, status_code=200)
    async def recall(
        request: Asking, organisation: FromPath[str], case: FromPath[str]
    ) -> ErasureCase:
        found = await office.case(organisation, case)
        with taken_as("case"), in_words():
            await office.erasures.cases.recall(actor_of(request), found)
        return await office.case(organisation, case)

    @post(ONE + "/withdraw", opt=withdraws, status_code=200)
    async def withdraw(
        request: Asking, organisation: FromPath[str], case: FromPath[str]
    ) -> ErasureCase:
        found = await office.case(organisation, case)
        with taken_as("case"), in_words():
            await office.erasures.cases.withdraw(actor_of(request), found)
        return await office.case(organisation, case)

    return [ask, recall, withdraw]


def _deciding(office: Office) -> list[Any]:
    """What another person says to it."""
    approves = needs(_P.CONTENT_APPROVE_ERASURE, records="content.erased")
    declines = needs(_P.CONTENT_APPROVE_ERASURE, records="erasure.declined")

    @post(ONE + "/approve", opt=approves, status_code=200)
    async def approve(
        request: Asking,
        organisation: FromPath[str],
        case: FromPath[str],
    ) -> ErasureCase:
        order = await body_of(request, CaseVerdict)
        found = await office.case(organisation, case)
        with taken_as("case"), in_words():
            require_asker(order.asked_by, found.asked_by)
            done = await office.erasures.approve(actor_of(request), found, order.comment)
        return (await office.told([done]))[0]

    @post(ONE + "/decline", opt=declines, status_code=200)
    async def decline(
        request: Asking,
        organisation: FromPath[str],
        case: FromPath[str],
    ) -> ErasureCase:
        order = await body_of(request, CaseVerdict)
        found = await office.case(organisation, case)
        with taken_as("case"), in_words():
            require_asker(order.asked_by, found.asked_by)
            await office.erasures.cases.decline(actor_of(request), found, order.comment)
        return await office.case(organisation, case)

    return [approve, decline]
