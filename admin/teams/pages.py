"""The pages of teams: the list, one team, and what may be done to it."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from litestar import MediaType, Response, post, route
from litestar.params import FromPath
from litestar.response import Redirect

from admin.access import needs, session_of
from admin.asking import Asking
from admin.forms import Form, form_of
from admin.keys.issuing import EXPIRES_DAYS
from admin.queries import after_of, first_of
from admin.screens import CONFLICT
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from admin.teams.desk import TeamDesk
from admin.teams.reader import KEYS_SHOWN, TeamReader
from admin.teams.undoing import WAYS_BACK, Way
from admin.undo import EXPECTS, holds, offer
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.money.budgets import WINDOWS, WindowKind
from gateway.oversight.access import Permission, Person, allows
from gateway.store.identity.team_lists import STATES
from gateway.store.identity.teams import COUNT_MAX, EXPIRES_DAYS_MAX, KeyDefaults, Team


MEANWHILE: Final = (
    "Somebody else changed this team meanwhile, so nothing was done. Below is its current state."
)
WINDOW_WORDS: Final = {"day": "each day", "month": "each month", "total": "in total"}
NAMES_MAX: Final = 500
"""Of people that a field suggests; others are typed."""
_P = Permission
_PATH: Final = "/o/{organisation:str}/teams"
_TEAM: Final = f"{_PATH}/{{team:str}}"
_NEW: Final = "/o/{organisation:str}/new-team"
"""Not below the teams: one of them may be called `new`."""
_HTML: Final = MediaType.HTML
_ISSUE: Final = needs(_P.KEYS_ISSUE)
Deed = Callable[[Person, Team, Form], Awaitable[None]]


def team_page_routes(services: Services) -> list[Any]:
    """Reading, making and changing."""
    room = TeamRoom(services)
    return [*_reading(services, room), *_making(services, room), *_changing(room)]


class TeamRoom:
    """One team's page, also with what was wrong about a form."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.reader = TeamReader(services)
        self.desk = TeamDesk(services)

    async def page(
        self,
        request: Asking,
        place: tuple[str, str],
        form: Form | None = None,
        wrong: dict[str, str] | None = None,
        status: int = 200,
    ) -> Response[str]:
        """The page of a team, by its organisation and name."""
        detail = await self.reader.detail(*place)
        return await self._services.shell.page(
            request,
            "teams/team.html",
            "teams",
            status,
            detail=detail,
            line=detail.line,
            team=detail.line.team,
            form=form or Form(),
            wrong=wrong or {},
            is_stale=status == CONFLICT,
            people=await self.people(session_of(request).person, place[0]),
            windows=[(window, WINDOW_WORDS[window]) for window in reversed(WINDOWS)],
            keys_shown=KEYS_SHOWN,
        )

    async def people(self, reader: Person, organisation: str) -> list[Person]:
        """Who can be named; for who may not read the list of people there is none to choose."""
        if not allows(reader, _P.PEOPLE_READ, organisation):
            return []
        return await self._services.people_lists.named_in(organisation, NAMES_MAX)

    async def done(
        self, request: Asking, place: tuple[str, str], deed: Deed, back: Way
    ) -> Response[Any]:
        """Do something to a team, and show its page: what is wrong is said there."""
        form, (organisation, name) = await form_of(request), place
        team = await self.reader.team(organisation, name)
        try:
            await deed(session_of(request).person, team, form)
        except ChangedMeanwhile as error:
            return await self.page(request, place, form, {"team": MEANWHILE}, error.status)
        except RequestInvalid as error:
            wrong = {error.parameter or "team": error.message}
            return await self.page(request, place, form, wrong, 400)
        if undo := back(team, form):
            offer(request, self._services.clock, undo)
        return Redirect(f"/o/{organisation}/teams/{name}", status_code=SEE_OTHER)

    async def require_unchanged(self, team: Team, member: str, form: Form) -> None:
        """Raises ChangedMeanwhile where a member is not as a way back expects."""
        if not (expected := form.text(EXPECTS)):
            return
        members = (await self.reader.detail(team.organisation, team.name)).members
        if not holds(expected, is_present=any(each.name == member for each in members)):
            raise ChangedMeanwhile(MEANWHILE)


def _reading(services: Services, room: TeamRoom) -> list[Any]:
    shell = services.shell

    @route(_PATH, http_method=READING, media_type=_HTML, opt=needs(_P.KEYS_READ))
    async def team_list(request: Asking, organisation: FromPath[str]) -> Response[str]:
        said = request.query_params.get("state", "")
        state = said if said in STATES else ""
        counts = await room.reader.lists.states(organisation)
        return await shell.page(
            request,
            "teams/teams.html",
            "teams",
            lines=await room.reader.page(
                organisation, state, first_of(request), after=after_of(request)
            ),
            total=counts.total(),
            states=[(name, counts[name]) for name in STATES],
            state=state,
        )

    @route(_TEAM, http_method=READING, media_type=_HTML, opt=needs(_P.KEYS_READ))
    async def team_page(
        request: Asking, organisation: FromPath[str], team: FromPath[str]
    ) -> Response[str]:
        return await room.page(request, (organisation, team))

    @route(f"{_TEAM}/archive", http_method=READING, media_type=_HTML, opt=_ISSUE)
    async def archive_page(
        request: Asking, organisation: FromPath[str], team: FromPath[str]
    ) -> Response[str]:
        line = await room.reader.line(organisation, team)
        return await shell.page(request, "teams/archive.html", "teams", line=line, team=line.team)

    return [team_list, team_page, archive_page]


def _making(services: Services, room: TeamRoom) -> list[Any]:
    async def form_page(
        request: Asking, organisation: str, form: Form, wrong: dict[str, str] | None = None
    ) -> Response[str]:
        return await services.shell.page(
            request,
            "teams/new.html",
            "teams",
            400 if wrong else 200,
            form=form,
            wrong=wrong or {},
            people=await room.people(session_of(request).person, organisation),
            expires_days=EXPIRES_DAYS,
        )

    @route(_NEW, http_method=READING, media_type=_HTML, opt=_ISSUE)
    async def new_team(request: Asking, organisation: FromPath[str]) -> Response[str]:
        return await form_page(request, organisation, Form())

    @post(
        _NEW,
        media_type=_HTML,
        opt=needs(_P.KEYS_ISSUE, records="team.created"),
        status_code=SEE_OTHER,
    )
    async def create_team(request: Asking, organisation: FromPath[str]) -> Response[Any]:
        form, person = await form_of(request), session_of(request).person
        name, title, owner = (form.text(field) for field in ("name", "title", "owner"))
        try:
            await room.desk.create(person, organisation, name, title, owner)
        except RequestInvalid as error:
            # The store knows the name of a team as that of a workspace and of a project.
            field = error.parameter or "name"
            field = "name" if field in ("workspace", "project") else field
            message = error.message.removeprefix("workspace: ")
            return await form_page(request, organisation, form, {field: message})
        return Redirect(f"/o/{organisation}/teams/{name}", status_code=SEE_OTHER)

    return [new_team, create_team]


def _changing(room: TeamRoom) -> list[Any]:
    desk = room.desk

    async def change(person: Person, team: Team, form: Form) -> None:
        title, owner = form.text("title"), form.text("owner")
        await desk.change(person, team, title, owner, _revision(form))

    async def defaults(person: Person, team: Team, form: Form) -> None:
        await desk.set_defaults(person, team, defaults_of(form), _revision(form))

    async def archive(person: Person, team: Team, form: Form) -> None:
        await desk.archive(person, team, _revision(form))

    async def restore(person: Person, team: Team, form: Form) -> None:
        await desk.restore(person, team, _revision(form))

    async def add_member(person: Person, team: Team, form: Form) -> None:
        member = form.text("person")
        await room.require_unchanged(team, member, form)
        await desk.add_member(person, team, member)

    async def remove_member(person: Person, team: Team, form: Form) -> None:
        member = form.text("person")
        await room.require_unchanged(team, member, form)
        await desk.remove_member(person, team, member)

    return [
        _posting(room, "change", _P.KEYS_ISSUE, "team.changed", change),
        _posting(room, "defaults", _P.BUDGETS_SET, "team.defaults_set", defaults),
        _posting(room, "archive", _P.KEYS_ISSUE, "team.archived", archive),
        _posting(room, "restore", _P.KEYS_ISSUE, "team.restored", restore),
        _posting(room, "members", _P.KEYS_ISSUE, "team.member_added", add_member),
        _posting(room, "members/remove", _P.KEYS_ISSUE, "team.member_removed", remove_member),
    ]


def _posting(room: TeamRoom, part: str, permission: Permission, records: str, deed: Deed) -> Any:
    opt = needs(permission, records=records)

    @post(f"{_TEAM}/{part}", media_type=_HTML, opt=opt, status_code=SEE_OTHER)
    async def handler(
        request: Asking, organisation: FromPath[str], team: FromPath[str]
    ) -> Response[Any]:
        return await room.done(request, (organisation, team), deed, WAYS_BACK[records])

    return handler


def defaults_of(form: Form) -> KeyDefaults:
    """What a form says that new keys get.

    Raises:
        RequestInvalid: with the field that is wrong.
    """
    said = form.text("budget_window", "month")
    window: WindowKind | None = next((each for each in WINDOWS if each == said), None)
    if window is None:
        raise RequestInvalid("this form is not complete", parameter="budget_window")
    return KeyDefaults(
        expires_days=form.whole("expires_days", EXPIRES_DAYS_MAX) or None,
        budget_microusd=form.microusd("budget_microusd"),
        budget_window=window,
        requests_per_minute=form.whole("requests_per_minute", COUNT_MAX),
        tokens_per_minute=form.whole("tokens_per_minute", COUNT_MAX),
        concurrent_requests=form.whole("concurrent_requests", COUNT_MAX),
    )


def _revision(form: Form) -> int | None:
    return form.whole("revision", 2**62)
