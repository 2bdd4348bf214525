"""The pages of people: who there is, what they may do, and roles given and taken."""

from typing import Any, Final

from litestar import MediaType, Response, get, post, route
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.forms import Form, form_of
from admin.interrupted import is_own_path
from admin.people.desk import grant_in
from admin.people.permission_words import PERMISSION_WORDS
from admin.people.verdicts import Verdict, verdict
from admin.queries import PAGE_ROWS, Query, after_of, first_of
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from admin.undo import ABSENT, EXPECTS, MEANWHILE, PRESENT, Undo, holds, offer
from gateway.errors import ChangedMeanwhile, GatewrightError, RequestInvalid
from gateway.oversight.access import (
    EVERYWHERE,
    ROLE_PERMISSIONS,
    ROLES,
    Grant,
    Permission,
)
from gateway.store.identity.invitations import Invitations


AT: Final = "/people"
_READS: Final = needs(Permission.PEOPLE_READ, "everywhere")
_GIVES: Final = needs(Permission.PEOPLE_MANAGE, "everywhere", records="role.granted")
_TAKES: Final = needs(Permission.PEOPLE_MANAGE, "everywhere", records="role.revoked")


PERSON: Final = Query("person", "Who; needed for a verdict.")
PERMISSION: Final = Query(
    "permission", "What; needed for a verdict.", choices=tuple(each.value for each in Permission)
)
FIND: Final = Query("q", "Words of a name, or of what somebody is called.", length_max=200)
WORDS_MAX: Final = 10
ORGANISATION: Final = Query("organisation", "Where; empty is everywhere.")


class Question(Struct, frozen=True):
    """Can somebody do something somewhere; empty while nobody asks."""

    person: str = ""
    permission: str = ""
    organisation: str = ""


def list_routes(services: Services) -> list[Any]:
    """The list with its question, and what gives and takes a role."""
    desk = Desk(services)

    @route(AT, http_method=READING, media_type=MediaType.HTML, opt=_READS)
    async def listing(request: Asking) -> Response[str]:
        return await desk.page(request, Form())

    @get("/api/people/verdict", opt=_READS)
    async def verdict_api(request: Asking) -> Verdict:
        found = await desk.verdict(_question(request))
        if found is None:
            raise RequestInvalid("name a person and a permission", parameter="permission")
        return found

    @post(f"{AT}/grant", media_type=MediaType.HTML, opt=_GIVES, status_code=SEE_OTHER)
    async def grant(request: Asking) -> Response[Any]:
        return await desk.change(request, "role.granted")

    @post(f"{AT}/revoke", media_type=MediaType.HTML, opt=_TAKES, status_code=SEE_OTHER)
    async def revoke(request: Asking) -> Response[Any]:
        return await desk.change(request, "role.revoked")

    return [listing, verdict_api, grant, revoke]


class Desk:
    """Shows people, and changes their roles for whoever is signed in."""

    def __init__(self, services: Services) -> None:
        self._shell = services.shell
        self._people = services.people
        self._deeds = services.deeds
        self._clock = services.clock
        self._lists = services.people_lists
        self._invitations = Invitations(services.database, services.clock)

    async def page(self, request: Asking, form: Form, wrong: str = "") -> Response[str]:
        """The list; with what was wrong about a form, and the form as it was."""
        question, sought = _question(request), FIND.of(request).strip()
        words = sought.split()[:WORDS_MAX]
        part = await self._lists.page(words, first_of(request), PAGE_ROWS, after_of(request))
        names = [each.name for each in part.rows]
        return await self._shell.page(
            request,
            "people/people.html",
            "people",
            400 if wrong else 200,
            people=part,
            sought=sought,
            pending=await self._invitations.pending(),
            shut=await self._invitations.shut(names),
            organisations=sorted(await self._people.organisations()),
            roles=ROLES,
            permission_words=PERMISSION_WORDS,
            role_permissions=ROLE_PERMISSIONS,
            question=question,
            verdict=await self.verdict(question),
            form=form,
            wrong=wrong,
        )

    async def verdict(self, question: Question) -> Verdict | None:
        """The answer to a question; None where it names nobody or no permission."""
        permission = next((each for each in Permission if each == question.permission), None)
        person = await self._lists.person(question.person) if permission else None
        if person is None or permission is None:
            return None
        return verdict(person, permission, question.organisation)

    async def change(self, request: Asking, action: str) -> Response[Any]:
        """Give or take the role that a form names; nobody gives more than they have."""
        form, grantor = await form_of(request), session_of(request).person
        try:
            given = grant_in(form)
            name = form.text("person")
            after = {"person": name, "role": given.role, "organisation": given.organisation}
            about = "" if given.organisation == EVERYWHERE else given.organisation
            await self._require_unchanged(name, given, form)
            async with self._deeds.doing(grantor.name, action, about, after=after):
                step = self._people.grant if action == "role.granted" else self._people.revoke
                is_done = await step(name, given, grantor)
        except GatewrightError as error:
            return await self.page(request, form, error.message)
        if is_done:  # Else the way back would take what was not given here.
            offer(request, self._clock, _way_back(form, name, given, action))
        to = form.text("to")
        return Redirect(to if is_own_path(to) else AT, status_code=SEE_OTHER)

    async def _require_unchanged(self, name: str, given: Grant, form: Form) -> None:
        """Raises ChangedMeanwhile where a role is not as a way back expects."""
        person = await self._lists.person(name) if form.text(EXPECTS) else None
        has_it = person is not None and given in person.grants
        if not holds(form.text(EXPECTS), is_present=has_it):
            raise ChangedMeanwhile(MEANWHILE)


def _question(request: Asking) -> Question:
    return Question(PERSON.of(request), PERMISSION.of(request), ORGANISATION.of(request))


def _way_back(form: Form, name: str, given: Grant, action: str) -> Undo:
    """A role that was given is taken, and one that was taken is given."""
    is_given = action == "role.granted"
    role = given.role.replace("_", " ")
    said = (
        f"The role {role} was given to {name}."
        if is_given
        else f"The role {role} was removed from {name}."
    )
    fields = {"person": name, "role": given.role, "organisation": given.organisation}
    fields |= {"to": form.text("to"), EXPECTS: PRESENT if is_given else ABSENT}
    return Undo(said, f"{AT}/{'revoke' if is_given else 'grant'}", fields)
