"""Teams over the JSON API: what the pages of teams show and do, typed in and out."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from litestar import Response, get, post
from litestar.params import FromPath
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.long_lists import list_of
from admin.services import Services
from admin.teams.desk import TeamDesk
from admin.teams.reader import TeamDetail, TeamLine, TeamReader
from admin.wrong_fields import taken_as
from gateway.oversight.access import Permission
from gateway.store.identity.teams import KeyDefaults


NO_CONTENT: Final = 204
_P = Permission
_PATH: Final = "/api/organisations/{organisation:str}/teams"
_TEAM: Final = f"{_PATH}/{{team:str}}"


class TeamOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A team to be made; its organisation is the path's."""

    name: str
    title: str = ""
    owner: str = ""


class TeamChange(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be different; what is not named stays."""

    title: str | None = None
    owner: str | None = None
    revision: int | None = None
    """Where it is given, nothing is done if the team was changed after it."""


class Ending(Struct, frozen=True, forbid_unknown_fields=True):
    """A team to be archived or restored."""

    revision: int | None = None


class DefaultsOrder(KeyDefaults, frozen=True, forbid_unknown_fields=True):
    """What new keys get from now on, all of it."""

    revision: int | None = None
    """As of a change."""

    @property
    def defaults(self) -> KeyDefaults:
        return KeyDefaults(*(getattr(self, name) for name in KeyDefaults.__struct_fields__))


class MemberOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Who belongs to a team, or does no more."""

    person: str


def team_api_routes(services: Services) -> list[Any]:
    """All routes; each says what it needs, and what it records."""
    reader, desk = TeamReader(services), TeamDesk(services)

    @get(_PATH, opt=needs(_P.KEYS_READ))
    async def list_teams(
        request: Asking, organisation: FromPath[str]
    ) -> Response[Sequence[TeamLine]]:
        whole = partial(reader.listed, organisation)
        return await list_of(request, whole, partial(reader.page, organisation, ""))

    @get(_TEAM, opt=needs(_P.KEYS_READ))
    async def show_team(organisation: FromPath[str], team: FromPath[str]) -> TeamDetail:
        return await reader.detail(organisation, team)

    @post(_PATH, opt=needs(_P.KEYS_ISSUE, records="team.created"))
    async def create_team(request: Asking, organisation: FromPath[str]) -> TeamLine:
        order = await body_of(request, TeamOrder)
        person = session_of(request).person
        with taken_as(workspace="name", project="name"):
            await desk.create(person, organisation, order.name, order.title, order.owner)
        return await reader.line(organisation, order.name)

    @post(
        f"{_TEAM}/members",
        opt=needs(_P.KEYS_ISSUE, records="team.member_added"),
        status_code=NO_CONTENT,
    )
    async def add_member(request: Asking, organisation: FromPath[str], team: FromPath[str]) -> None:
        found = await reader.team(organisation, team)
        order = await body_of(request, MemberOrder)
        await desk.add_member(session_of(request).person, found, order.person)

    @post(
        f"{_TEAM}/members/remove",
        opt=needs(_P.KEYS_ISSUE, records="team.member_removed"),
        status_code=NO_CONTENT,
    )
    async def remove_member(
        request: Asking, organisation: FromPath[str], team: FromPath[str]
    ) -> None:
        found = await reader.team(organisation, team)
        order = await body_of(request, MemberOrder)
        await desk.remove_member(session_of(request).person, found, order.person)

    return [list_teams, show_team, create_team, add_member, remove_member, *_changing(reader, desk)]


def _changing(reader: TeamReader, desk: TeamDesk) -> list[Any]:
    @post(f"{_TEAM}/change", opt=needs(_P.KEYS_ISSUE, records="team.changed"))
    async def change_team(
        request: Asking, organisation: FromPath[str], team: FromPath[str]
    ) -> TeamLine:
        found = await reader.team(organisation, team)
        order, person = await body_of(request, TeamChange), session_of(request).person
        title = found.title if order.title is None else order.title
        owner = found.owner if order.owner is None else order.owner
        await desk.change(person, found, title, owner, order.revision)
        return await reader.line(organisation, team)

    @post(f"{_TEAM}/archive", opt=needs(_P.KEYS_ISSUE, records="team.archived"))
    async def archive_team(
        request: Asking, organisation: FromPath[str], team: FromPath[str]
    ) -> TeamLine:
        found = await reader.team(organisation, team)
        order = await body_of(request, Ending)
        with taken_as("team"):
            await desk.archive(session_of(request).person, found, order.revision)
        return await reader.line(organisation, team)

    @post(f"{_TEAM}/restore", opt=needs(_P.KEYS_ISSUE, records="team.restored"))
    async def restore_team(
        request: Asking, organisation: FromPath[str], team: FromPath[str]
    ) -> TeamLine:
        found = await reader.team(organisation, team)
        order = await body_of(request, Ending)
        with taken_as("team"):
            await desk.restore(session_of(request).person, found, order.revision)
        return await reader.line(organisation, team)

    @post(f"{_TEAM}/defaults", opt=needs(_P.BUDGETS_SET, records="team.defaults_set"))
    async def set_defaults(
        request: Asking, organisation: FromPath[str], team: FromPath[str]
    ) -> TeamLine:
        found = await reader.team(organisation, team)
        order, person = await body_of(request, DefaultsOrder), session_of(request).person
        await desk.set_defaults(person, found, order.defaults, order.revision)
        return await reader.line(organisation, team)

    return [change_team, archive_team, restore_team, set_defaults]
