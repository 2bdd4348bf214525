"""Undo: for two minutes after a deed its reversal is offered, once, to the sitting that did it.

The reversal is nothing new: a form for the ordinary inverse deed, with its own permission, its own
record, and its own check whether somebody changed things meanwhile. An offer only names that form
and fills it in. It travels in a cookie that the sitting signs, so it needs no storage, and any
other deed ends it. Deeds that cannot be undone, or take two people, come with no offer.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from litestar import Request
from litestar.datastructures import Cookie, MutableScopeHeaders
from litestar.types import HTTPResponseStartEvent, Message, Scope
from msgspec import Struct

from admin.access import COOKIE as SITTING
from admin.asking import Asking
from admin.interrupted import is_own_path
from admin.sign_in.protection import SAFE_METHODS, came_encrypted
from gateway.clock import Clock


COOKIE: Final = "gatewright_undo"
KEPT_S: Final = 120
COOKIE_LENGTH_MAX: Final = 3_000
"""A longer cookie is not offered: browsers limit the length of cookies."""
MARK: Final = "undo=1"
"""In the form's address: a request with it uses up the offer, whatever comes of it."""
EXPECTS: Final = "expects"
"""A field for reversals of things without a revision: what must still be the case."""
PRESENT: Final = "present"
ABSENT: Final = "absent"
MEANWHILE: Final = (
    "Somebody else changed this meanwhile, so nothing was undone. Below is the current state."
)
REFUSED: Final = 400
_OFFERED: Final = "gatewright.undo"


def holds(expected: str, *, is_present: bool) -> bool:
    """Whether a thing is still as a reversal expects it; any other form expects nothing."""
    return not expected or is_present == (expected == PRESENT)


class Undo(Struct, frozen=True):
    """The reversal of a deed."""

    said: str
    """The deed, as a sentence."""
    path: str
    fields: Mapping[str, str] = {}
    until_us: int = 0

    @property
    def action(self) -> str:
        """The form's address, before the mark of the session."""
        return f"{self.path}?{MARK}"


def offer(request: Asking, clock: Clock, undo: Undo) -> None:
    """Offer a reversal with the answer to this request."""
    until_us = clock.utc_us() + KEPT_S * 1_000_000
    kept = msgspec.structs.replace(undo, until_us=until_us)
    body = urlsafe_b64encode(msgspec.json.encode(kept)).decode()
    value = f"{body}.{_mark(request, body)}"
    if len(value) <= COOKIE_LENGTH_MAX:
        request.scope[_OFFERED] = value  # type: ignore[typeddict-unknown-key]


def offered(request: Asking, now_us: int) -> Undo | None:
    """The deed that this sitting may undo, for a page that it reads."""
    body, _, mark = request.cookies.get(COOKIE, "").partition(".")
    if request.scope["method"] not in SAFE_METHODS or not body:
        return None
    if not hmac.compare_digest(mark.encode(), _mark(request, body).encode()):
        return None
    try:
        found = msgspec.json.decode(urlsafe_b64decode(body), type=Undo)
    except ValueError:
        return None
    return found if now_us < found.until_us and is_own_path(found.path) else None


async def carry_undo(message: Message, scope: Scope) -> None:
    """A hook on every answer: the cookie comes with an offer, and goes with the next deed."""
    if message["type"] != "http.response.start":
        return
    request = Request[Any, Any, Any](scope)
    value = scope.get(_OFFERED)
    is_change = request.method not in SAFE_METHODS
    is_over = message["status"] < REFUSED or MARK in request.url.query.split("&")
    if isinstance(value, str):
        _add(message, request, value, KEPT_S)
    elif is_change and is_over and COOKIE in request.cookies:
        _add(message, request, "", 0)


def _add(message: HTTPResponseStartEvent, request: Asking, value: str, max_age_s: int) -> None:
    cookie = Cookie(
        COOKIE,
        value=value,
        max_age=max_age_s,
        path="/",
        httponly=True,
        samesite="strict",
        secure=came_encrypted(request),
    )
    headers = MutableScopeHeaders.from_message(message)
    headers.add("set-cookie", cookie.to_header(header=""))


def _mark(request: Asking, body: str) -> str:
    """A signature that only the holder of the sitting's cookie can make."""
    sitting = request.cookies.get(SITTING, "")
    return hmac.new(sitting.encode(), f"undo {body}".encode(), hashlib.sha256).hexdigest()
