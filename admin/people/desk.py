"""Lets people in and keeps them out, for the signed-in person; each step is recorded first."""

from collections.abc import Iterable
from typing import Final

from admin.asking import Asking
from admin.forms import Form
from admin.services import Services
from gateway.errors import Forbidden, RequestInvalid
from gateway.oversight.access import EVERYWHERE, ROLES, Grant, Person, Role, may_grant
from gateway.store.identity.invitations import GOOD_FOR_S, Invitations
from gateway.store.identity.names import check_place_of, checked_name, visible


GOOD_FOR_HOURS: Final = round(GOOD_FOR_S / 3600)


class PeopleDesk:
    """What may be done to people; what is wrong comes as RequestInvalid or Forbidden."""

    def __init__(self, services: Services) -> None:
        self._people = services.people
        self._deeds = services.deeds
        self._invitations = Invitations(services.database, services.clock)

    async def invite(
        self, by: Person, name: str, title: str = "", grant: Grant | None = None
    ) -> str:
        """Make somebody known, with a role if one is named; the code of their link, told once."""
        after = {
            "name": checked_name(name),
            "title": visible(title, "title")[:200],
            "link_hours": GOOD_FOR_HOURS,
        }
        if grant is not None:
            check_place_of(grant)
            if not may_grant(by, grant):
                raise Forbidden("You cannot give permissions that you do not have.")
        async with self._deeds.doing(by.name, "person.added", "", after=after):
            await self._people.add(name, title=title)
            code = await self._invitations.make(name, by.name, by)
        if grant is not None:
            given = {"person": name, "role": grant.role, "organisation": grant.organisation}
            about = "" if grant.organisation == EVERYWHERE else grant.organisation
            async with self._deeds.doing(by.name, "role.granted", about, after=given):
                await self._people.grant(name, grant, by)
        return code

    async def link(self, by: Person, person: Person) -> str:
        """Another link for somebody, in place of any before it; its code is told once."""
        after = {"person": person.name, "link_hours": GOOD_FOR_HOURS}
        async with self._deeds.doing(by.name, "person.link_made", "", after=after):
            return await self._invitations.make(person.name, by.name, by)

    async def withdraw(self, by: Person, person: Person) -> None:
        """The link that somebody has is good no more."""
        after = {"person": person.name}
        async with self._deeds.doing(by.name, "person.link_withdrawn", "", after=after):
            await self._invitations.withdraw(person.name)

    async def sign_out(self, by: Person, person: Person) -> None:
        """End all sessions of somebody, who may sign in again at once."""
        after = {"person": person.name}
        async with self._deeds.doing(by.name, "person.signed_out", "", after=after):
            await self._people.sign_out(person.name)

    async def disable(self, by: Person, person: Person) -> None:
        """Sign somebody out, until they are enabled."""
        async with self._deeds.doing(
            by.name, "person.disabled", "", before=_before(person), after={"person": person.name}
        ):
            await self._people.disable(person.name, by)

    async def enable(self, by: Person, person: Person, since_us: int | None = None) -> None:
        """Let somebody sign in again, who was disabled at `since_us` if that is named."""
        async with self._deeds.doing(
            by.name, "person.enabled", "", before=_before(person), after={"person": person.name}
        ):
            await self._people.enable(person.name, by, since_us)


def grant_in(form: Form) -> Grant:
    """The role that a form names, and where it holds: a form that says no place means none.

    Raises:
        RequestInvalid: it names none of ours, or no place.
    """
    role: Role | None = next((each for each in ROLES if each == form.text("role")), None)
    if role is None or not form.text("organisation"):
        raise RequestInvalid("choose a role and where it holds", parameter="role")
    return Grant(role, form.text("organisation"))


def roles_to_give(by: Person, organisations: Iterable[str]) -> frozenset[Role]:
    """The roles that somebody may give, everywhere or in one of these organisations."""
    places = (EVERYWHERE, *organisations)
    return frozenset(
        role for role in ROLES if any(may_grant(by, Grant(role, place)) for place in places)
    )


def link_of(request: Asking, admin_url: str, code: str) -> str:
    """The address to hand over; no server is sent the code: it stands behind `#`."""
    base = admin_url.rstrip("/") or str(request.base_url).rstrip("/")
    return f"{base}/invitation#{code}"


def _before(person: Person) -> dict[str, object]:
    roles = [[grant.role, grant.organisation] for grant in sorted(person.grants)]
    return {"person": person.name, "disabled": person.is_disabled, "roles": roles}
