"""Access control: every handler declares what it needs, and one guard checks every request.

A handler is public, open to anybody who is signed in, or needs a permission: in the organisation
that its path names, in some organisation, or everywhere. If a handler declares nothing, the
listener does not start.
"""

import hashlib
import hmac
from typing import Any, Literal

from litestar import Litestar, Request
from litestar.connection import ASGIConnection
from litestar.exceptions import (
    NotAuthorizedException,
    NotFoundException,
    PermissionDeniedException,
)
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler

from admin.asking import Asking
from admin.interrupted import Draft, back_to, carried_in, draft_of, mark_in
from admin.sign_in.protection import SAFE_METHODS
from admin.sign_in.token_sessions import TokenSessions
from gateway.actors import NOBODYS
from gateway.clock import Clock
from gateway.errors import Forbidden, StartupRefused
from gateway.oversight.access import (
    STEP_UP,
    TOKEN_PERSON,
    Permission,
    Person,
    allows,
    organisations_of,
)
from gateway.store.identity.people import PeopleStore, Session


COOKIE = "gatewright_admin"
CSRF_HEADER = "x-gatewright-csrf"
STEP_UP_S = 300.0

BY_PEOPLE = frozenset(
    {"policy.drafted", "policy.approve", "prices.proposed", "prices.approved", "key.widened"}
    | {"reveal.asked", "reveal.approved", "hold.released", "erasure.asked", "content.erased"}
    | {"incident.closed", "worker.retirement_asked", "worker.retired"}
    | {"budget.raise_asked", "budget.raised"}
)
"""Deeds that take two people: a session of the admin token is nobody's, and may do no part."""

Where = Literal["organisation", "some", "everywhere"]
PUBLIC: dict[str, Any] = {"access": "public"}
SIGNED_IN: dict[str, Any] = {"access": "signed in"}
_SESSION = "gatewright.session"
_DRAFT = "gatewright.draft"


def needs(
    permission: Permission, where: Where = "organisation", records: str = ""
) -> dict[str, Any]:
    """Declares a handler that needs a permission; `records` names the record that it leaves."""
    return {"access": permission, "where": where, "records": records}


def taking(access: dict[str, Any], body: type) -> dict[str, Any]:
    """Declares the type of a handler's body, for a handler that does not name it itself."""
    return access | {"body": body}


def recording(access: dict[str, Any], records: str) -> dict[str, Any]:
    """Declares that a handler changes something, and the record that it leaves."""
    return access | {"records": records}


def unkept(access: dict[str, Any]) -> dict[str, Any]:
    """Declares that a handler's form holds a secret, so that no page ever carries it along."""
    return access | {"keeps_form": False}


class SignInRequired(NotAuthorizedException):
    """Nobody is signed in; `draft` is the form that was being sent."""

    def __init__(self, draft: Draft | None = None) -> None:
        super().__init__()
        self.draft = draft


class StepUpRequired(PermissionDeniedException):
    """The person must prove again who they are; nothing was done. `to` is the wanted page."""

    def __init__(self, draft: Draft | None = None, csrf: str = "", to: str = "") -> None:
        super().__init__("prove again who you are")
        self.draft = draft
        self.csrf = csrf
        self.to = to


class EarlierPage(PermissionDeniedException):
    """The form is from our own page, but of an earlier session than the browser has now."""

    def __init__(self, draft: Draft | None, csrf: str, name: str) -> None:
        super().__init__("this page is of an earlier session")
        self.draft = draft
        self.csrf = csrf
        self.name = name


def session_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Session:
    """The session of a request; only behind the guard."""
    session: Session = connection.scope[_SESSION]  # type: ignore[literal-required]
    return session


def actor_of(request: Asking) -> str:
    """The sender of a request, by the name used in records."""
    return session_of(request).person.name


def session_in(connection: ASGIConnection[Any, Any, Any, Any]) -> Session | None:
    """The session of a request, if the guard has got that far."""
    return connection.scope.get(_SESSION)  # type: ignore[return-value]


def csrf_of(session_id: str) -> str:
    """The mark that a change must send along: only a reader of the session's pages has it."""
    return hmac.new(session_id.encode(), b"csrf", hashlib.sha256).hexdigest()


class AccessGuard:
    """The guard of the whole application."""

    def __init__(self, people: PeopleStore, tokens: TokenSessions, clock: Clock) -> None:
        self._people = people
        self._tokens = tokens
        self._clock = clock

    async def __call__(
        self, connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
    ) -> None:
        if _is_options(handler):
            return  # It only lists the methods, and does nothing else, whoever asks.
        access = handler.opt["access"]
        if access == "public":
            return
        session_id = connection.cookies.get(COOKIE, "")
        known = [TOKEN_PERSON] if self._tokens.is_ours(session_id) else []
        session = await self._people.session(session_id, known)
        if session is None:
            raise SignInRequired(draft_in(connection))
        connection.scope[_SESSION] = session  # type: ignore[literal-required]
        if connection.scope["method"] not in SAFE_METHODS:  # type: ignore[typeddict-item]
            await _check_csrf(connection, session_id, session.person.name)
        if access == "signed in":
            return
        where: Where = handler.opt["where"]
        if where == "organisation":
            organisation = str(connection.path_params["organisation"])
            await self._check_there(session.person, access, organisation)
        elif not _allows_beyond(session.person, access, where):
            raise PermissionDeniedException("no role permits this")
        if session.person.of_token and handler.opt.get("records") in BY_PEOPLE:
            raise Forbidden(NOBODYS)
        age_us = self._clock.utc_us() - session.proved_us
        if access in STEP_UP and not 0 <= age_us <= STEP_UP_S * 1_000_000:
            draft = draft_in(connection)
            raise StepUpRequired(draft, csrf_of(session_id), "" if draft else back_to(connection))

    async def _check_there(self, person: Person, permission: Permission, organisation: str) -> None:
        # People do not even learn whether another organisation exists.
        if not _belongs(person, organisation) or not await self._people.has_organisation(
            organisation
        ):
            raise NotFoundException
        if not allows(person, permission, organisation):
            raise PermissionDeniedException("no role permits this")


async def keep_form(
    connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
) -> None:
    """Keeps a request's form, before anything makes it wait: a sign-in, a proof, the database."""
    if not isinstance(connection, Request) or connection.method in SAFE_METHODS:
        return
    if handler.opt.get("keeps_form", handler.opt["access"] != "public"):
        connection.scope[_DRAFT] = await draft_of(connection)  # type: ignore[literal-required]
    else:
        # The form with the secret is not kept, but another form carried in it is.
        draft = carried_in(await connection.body())
        connection.scope[_DRAFT] = draft  # type: ignore[literal-required]


def draft_in(connection: ASGIConnection[Any, Any, Any, Any]) -> Draft | None:
    """The form that a request sends, as `keep_form` kept it."""
    draft: Draft | None = connection.scope.get(_DRAFT)  # type: ignore[assignment]
    return draft


def _allows_beyond(person: Person, permission: Permission, where: Where) -> bool:
    """Whether a person is allowed it everywhere or, for "some", in any organisation."""
    if where == "everywhere":
        return allows(person, permission)
    visible = organisations_of(person, permission)
    return visible is None or bool(visible)


def _belongs(person: Person, organisation: str) -> bool:
    return any(grant.organisation in ("*", organisation) for grant in person.grants)


async def _check_csrf(
    connection: ASGIConnection[Any, Any, Any, Any], session_id: str, name: str
) -> None:
    sent = connection.headers.get(CSRF_HEADER, "")
    if not sent and isinstance(connection, Request):
        sent = await mark_in(connection)
    mark = csrf_of(session_id)
    if hmac.compare_digest(sent.encode(), mark.encode()):
        return
    # They may have signed in again in another tab. The form's origin was checked before, if the
    # browser names it; nothing is done until they press once more.
    if {"origin", "sec-fetch-site"} & set(connection.headers):
        raise EarlierPage(draft_in(connection), mark, name)
    raise PermissionDeniedException("sent from another site")


def require_declarations(application: Litestar) -> None:
    """Check that every handler says who may use it.

    Raises:
        StartupRefused: one does not, asks for an organisation that its path does not name, or
            changes something without saying which admin record it leaves.
    """
    for route in application.routes:
        for handler in getattr(route, "route_handlers", [getattr(route, "route_handler", None)]):
            if not isinstance(handler, HTTPRouteHandler) or _is_options(handler):
                continue
            access, where = handler.opt.get("access"), handler.opt.get("where")
            named = "{organisation" in route.path_format or "{organisation" in route.path
            is_declared = access in ("public", "signed in") or (
                isinstance(access, Permission) and where in ("organisation", "some", "everywhere")
            )
            if not is_declared or (where == "organisation") != named:
                raise StartupRefused(f"{route.path}: a handler does not say who may use it")
            methods = {str(method) for method in handler.http_methods}
            if not methods <= SAFE_METHODS and not handler.opt.get("records"):
                raise StartupRefused(f"{route.path}: a handler does not say what it records")


def _is_options(handler: BaseRouteHandler) -> bool:
    """Whether it is the handler that Litestar adds to every route, without any declaration."""
    methods = getattr(handler, "http_methods", ())
    return {str(method) for method in methods} == {"OPTIONS"}
