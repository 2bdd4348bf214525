"""Signing in and out: by password, by an OpenID provider, or with the token of the settings."""

import hmac
from collections import OrderedDict
from typing import Annotated, Any, Final

from litestar import Response, get, post, route
from litestar.datastructures import Cookie
from litestar.enums import HttpMethod, MediaType, RequestEncodingType
from litestar.params import Body
from litestar.response import Redirect
from msgspec import Struct

from admin.access import (
    COOKIE,
    PUBLIC,
    SIGNED_IN,
    csrf_of,
    recording,
    session_of,
    unkept,
)
from admin.asking import Asking
from admin.interrupted import Draft, carried_in, is_own_path
from admin.refusals import Refusals
from admin.screens import Screens
from admin.services import Services
from admin.sign_in.group_roles import GroupRoles
from admin.sign_in.groups import GroupsUnread
from admin.sign_in.oidc import OpenIdClient
from admin.sign_in.protection import came_encrypted
from admin.sign_in.token_sessions import TokenSessions
from gateway.clock import Clock
from gateway.errors import Unauthenticated
from gateway.oversight.access import TOKEN_PERSON
from gateway.secrets.secret import Secret
from gateway.store.identity.group_grants import GroupGrants
from gateway.store.identity.people import PeopleStore, Proved
from gateway.telemetry import Event, logger


SEE_OTHER: Final = 303
READING: Final = (HttpMethod.GET, HttpMethod.HEAD)
TICKET_COOKIE: Final = "gatewright_oidc"
LEAVING: Final = "/sign-out/there"
LEAVING_COOKIE: Final = "gatewright_leaving"
WRONG: Final = "That is not correct, or there were too many attempts: wait a little and try again."
TRIES_MAX: Final = 10
TRIES_FOR_S: Final = 300.0
NAMES_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 64
BEGINNING: Final = recording(PUBLIC, "session.began")
PROVING: Final = unkept(recording(SIGNED_IN, "session.proved"))


class SignIn(Struct, frozen=True):
    """The sign-in form: a token, or a name and a password; and what it leads back to."""

    token: str = ""
    name: str = ""
    password: str = ""
    to: str = ""


class Brake:
    """How often a name may be tried; a list of passwords would take years."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tries: OrderedDict[str, list[float]] = OrderedDict()

    def may_try(self, name: str) -> bool:
        """Count a try; False when there were too many lately."""
        now_s = self._clock.monotonic_s()
        recent = [tried for tried in self._tries.pop(name, []) if now_s - tried < TRIES_FOR_S]
        is_free = len(recent) < TRIES_MAX
        self._tries[name] = [*recent, now_s] if is_free else recent
        if len(self._tries) > NAMES_MAX:
            self._tries.popitem(last=False)
        return is_free

    def forget(self, name: str) -> None:
        self._tries.pop(name, None)


class Credentials:
    """Checks what people sign in with."""

    def __init__(self, people: PeopleStore, token: Secret[str], clock: Clock) -> None:
        self._people = people
        self._token = token
        self._brake = Brake(clock)

    async def known(self, name: str) -> str:
        """The name again where somebody is called so; empty where nobody is."""
        is_known = name == TOKEN_PERSON.name or await self._people.facts(name) is not None
        return name if is_known else ""

    async def person_of(self, form: SignIn) -> Proved | None:
        """Whoever the form proves."""
        # Nobody's name is longer, and the brake remembers what was tried.
        name = form.name.strip()[:NAME_CHARS_MAX] or TOKEN_PERSON.name
        if not self._brake.may_try(name):
            return None
        if form.name:
            proved = await self._people.by_password(name, Secret(form.password))
        else:
            token = form.token.strip().encode()
            is_right = hmac.compare_digest(token, self._token.reveal().encode())
            proved = Proved(TOKEN_PERSON) if is_right else None
        if proved:
            self._brake.forget(name)
        return proved

    async def proves(self, form: SignIn, name: str) -> bool:
        """Whether it is this person whom the form proves."""
        proved = await self.person_of(form)
        return proved is not None and proved.person.name == name


def sign_in_routes(
    services: Services,
    credentials: Credentials,
    tokens: TokenSessions,
    openid: OpenIdClient | None,
) -> list[Any]:
    """The routes that end with a session, or end one."""
    routes = [
        *_form_routes(services, credentials, tokens),
        _ending_route(services, openid),
    ]
    if openid is None:
        return routes
    return [*routes, _leaving_route(openid), *_openid_routes(services, openid)]


async def _refused(
    screens: Screens,
    refusals: Refusals,
    name: str,
    *,
    draft: Draft | None = None,
    to: str = "",
) -> Response[str]:
    await _note_refused(refusals, name)
    return screens.page("sign_in.html", 401, problem=WRONG, draft=draft, to=to)


async def _note_refused(refusals: Refusals, known: str) -> None:
    """What was typed as a name may be a password: only of somebody there is it written down."""
    await refusals.note(known or "-")


def _onward(screens: Screens, draft: Draft | None, to: str, csrf: str) -> Response[Any]:
    """Back to what was wanted; what was being sent is sent only when they say so."""
    if draft is not None:
        return screens.page("continue.html", problem="", draft=draft, csrf=csrf)
    return Redirect(to or "/", status_code=SEE_OTHER)


def _own(path: str) -> str:
    return path if is_own_path(path) else ""


def _form_routes(services: Services, credentials: Credentials, tokens: TokenSessions) -> list[Any]:
    people, screens, deeds = services.people, services.screens, services.deeds

    @route("/sign-in", http_method=READING, opt=PUBLIC, media_type=MediaType.HTML)
    async def sign_in_page(request: Asking) -> Response[str]:
        to = request.query_params.get("to", "")
        return screens.page("sign_in.html", problem="", draft=None, to=_own(to))

    @post("/sign-in", opt=BEGINNING, media_type=MediaType.HTML, status_code=SEE_OTHER)
    async def sign_in(
        request: Asking,
        data: Annotated[SignIn, Body(media_type=RequestEncodingType.URL_ENCODED)],
    ) -> Response[Any]:
        if not data.token and not data.name:
            return screens.page("problem.html", 400, problem="This form is not complete.")
        draft, to = carried_in(await request.body()), _own(data.to)
        proved = await credentials.person_of(data)
        if proved is None:
            known = await credentials.known(data.name.strip())
            return await _refused(screens, services.refusals, known, draft=draft, to=to)
        name = proved.person.name
        await deeds.record(name, "session.began", "")
        logger().info(Event.ADMIN_SIGNED_IN, component="admin")
        # Always a new id: one that somebody planted before signing in is worth nothing.
        of_token = tokens.new_id() if name == TOKEN_PERSON.name else ""
        try:
            session_id = await people.begin(name, session_id=of_token, mark=proved.mark)
        except Unauthenticated:
            return await _refused(screens, services.refusals, name, draft=draft, to=to)
        # What they had before is not left behind, open and out of their reach.
        await people.end(request.cookies.get(COOKIE, ""))
        answer = _onward(screens, draft, to, csrf_of(session_id))
        answer.cookies.append(session_cookie(request, COOKIE, session_id, "strict"))
        return answer

    @post("/prove", opt=PROVING, media_type=MediaType.HTML, status_code=SEE_OTHER)
    async def prove(
        request: Asking,
        data: Annotated[SignIn, Body(media_type=RequestEncodingType.URL_ENCODED)],
    ) -> Response[Any]:
        signed_in, session_id = session_of(request).person.name, request.cookies.get(COOKIE, "")
        draft, mark, to = carried_in(await request.body()), csrf_of(session_id), _own(data.to)
        form = SignIn(data.token, "" if data.token else signed_in, data.password)
        if not await credentials.proves(form, signed_in):
            await _note_refused(services.refusals, signed_in)
            return screens.page("prove.html", 403, problem=WRONG, draft=draft, to=to, csrf=mark)
        await deeds.record(signed_in, "session.proved", "")
        await people.prove(session_id)
        return _onward(screens, draft, to, mark)

    return [sign_in_page, sign_in, prove]


def _ending_route(services: Services, openid: OpenIdClient | None) -> Any:
    people, provided = services.people, services.provided
    opt = recording(SIGNED_IN, "session.ended")

    @post("/sign-out", opt=opt, media_type=MediaType.HTML, status_code=SEE_OTHER)
    async def sign_out(request: Asking) -> Response[Any]:
        name, session_id = session_of(request).person.name, request.cookies.get(COOKIE, "")
        id_token = await provided.id_token(session_id)
        await services.deeds.record(name, "session.ended", "")
        # First of all, and whatever the provider does: here they are signed out.
        await people.end(session_id)
        ticket = ""
        if openid is not None and id_token is not None:
            ticket = await openid.leave(id_token)
        answer: Response[Any] = Redirect("/sign-in", status_code=SEE_OTHER)
        if ticket:
            # A page, not a redirect: a form's own may not lead to another site.
            answer = services.screens.page("signed_out.html", there=LEAVING)
            answer.cookies.append(session_cookie(request, LEAVING_COOKIE, ticket, "strict"))
        answer.delete_cookie(COOKIE)
        return answer

    return sign_out


def _leaving_route(openid: OpenIdClient) -> Any:
    @get(LEAVING, opt=PUBLIC)
    async def leave(request: Asking) -> Redirect:
        """On to the provider: whose session ended here a moment ago, and once."""
        url = openid.way_out(request.cookies.get(LEAVING_COOKIE, ""))
        answer = Redirect(url or "/sign-in", status_code=SEE_OTHER)
        answer.delete_cookie(LEAVING_COOKIE)
        return answer

    return leave


def _group_roles(services: Services) -> GroupRoles:
    grants, mapping = GroupGrants(services.database), services.settings.oidc.group_roles
    return GroupRoles(services.people, grants, services.deeds, mapping)


def _openid_routes(services: Services, openid: OpenIdClient) -> list[Any]:
    people, screens, deeds = services.people, services.screens, services.deeds
    roles = _group_roles(services)

    async def sent(request: Asking, *, anew: bool) -> Redirect:
        # Asked for now: on the way back, from the provider's site, it does not come along.
        former = request.cookies.get(COOKIE, "")
        to = _own(request.query_params.get("to", ""))
        url, ticket = await openid.begin(anew=anew, former=former, to=to)
        # Lax, because the way back comes from the provider's site.
        cookie = session_cookie(request, TICKET_COOKIE, ticket, "lax")
        return Redirect(url, status_code=SEE_OTHER, cookies=[cookie])

    @get("/sign-in/openid", opt=PUBLIC)
    async def begin(request: Asking) -> Redirect:
        return await sent(request, anew=False)

    @get("/sign-in/openid/again", opt=PUBLIC)
    async def begin_anew(request: Asking) -> Redirect:
        """For a fresh proof: the provider asks them again, although it knows the browser."""
        return await sent(request, anew=True)

    @get("/sign-in/openid/back", opt=PUBLIC, media_type=MediaType.HTML)
    async def finish(request: Asking) -> Response[Any]:
        ticket, query = request.cookies.get(TICKET_COOKIE, ""), request.query_params
        given = (query.get(name, "") for name in ("state", "code", "iss"))
        try:
            vouched = await openid.finish(ticket, *given)
        except GroupsUnread as unread:
            await _note_refused(services.refusals, "")
            return screens.page("problem.html", 403, problem=unread.message)
        except Unauthenticated:
            return await _refused(screens, services.refusals, "")
        person = await roles.person(vouched.subject, vouched.name, vouched.groups)
        if person is None:
            return await _refused(screens, services.refusals, "")
        await deeds.record(person.name, "session.began", "")
        session_id = await services.provided.begin(
            person.name, vouched.vouching, vouched.proved_ago_s
        )
        if session_id is None:
            return await _refused(screens, services.refusals, person.name)
        await people.end(vouched.former.reveal())
        logger().info(Event.ADMIN_SIGNED_IN, component="admin")
        # A page, not a redirect: a strict cookie would not follow one that began elsewhere.
        answer = screens.page("signed_in.html", to=vouched.to or "/")
        answer.cookies.append(session_cookie(request, COOKIE, session_id, "strict"))
        answer.delete_cookie(TICKET_COOKIE)
        return answer

    return [begin, begin_anew, finish]


def session_cookie(request: Asking, name: str, value: str, samesite: Any) -> Cookie:
    """A cookie that no script reads and that goes back over TLS where it came over TLS."""
    return Cookie(
        name,
        value=value,
        httponly=True,
        samesite=samesite,
        secure=came_encrypted(request),
        path="/",
    )
