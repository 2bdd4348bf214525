"""Ids of another organisation, in every place of every route: answered as if they never existed.

Two organisations have one of everything. Whoever has roles in one of them sends ids of the other
wherever a route takes an id, in its path, its form, its body or its query, and beside each the
same request with an id that never was one. Both have the same answer, nothing of the other
organisation stands in it, and afterwards nothing of the other organisation is changed. A parameter,
a field or a query that is not known here fails: nothing is left out in silence.
"""

import html
import inspect
import os
import random
import re
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, get_args
from urllib.parse import quote, unquote_plus, urlencode

import msgspec
import pytest
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from msgspec import Struct

import admin
from admin.queries import queries_of, reached_from
from admin.sign_in.protection import SAFE_METHODS
from gateway.oversight.access import ROLE_PERMISSIONS, ROLES, Grant, Permission, Role
from tests.admin.listener import Browser, Listener
from tests.admin.names_of_routes import (
    FIELDS_WITH_IDS,
    ID_BY_ROUTE,
    NO_FIELDS,
    OTHER_FIELDS,
    PATH_IDS,
    PATH_OTHERS,
    QUERIES,
)
from tests.admin.test_access import PASSWORD
from tests.admin.test_access_of_pages import PUBLIC, SIGNED_IN, Handler, handlers
from tests.admin.two_organisations import OWN, employ, furnished, never, rows_about


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
SEED = 20_261_123
EVERY_ROLE = bool(os.environ.get("GATEWRIGHT_TEST_EVERY_ROLE"))
ALONE: tuple[Role, ...] = ("viewer", "compliance", "platform_admin")
"""Who walks by himself in the short run: who may least, who reads most, and who changes most. All
roles together walk in each run, and each by itself in `make faults`."""
_PARAMETER = re.compile(r"\{([a-z_]+):[a-z]+\}")
_IN_CODE = re.compile(r'form, "([a-z_]+)"|(?:form|data|query|query_params)\.[a-z]+\(\s*"([a-z_]+)"')
_IN_PAGE = re.compile(r'<(?:input|select|textarea)[^>]*? name="([a-z_]+)"')
_DRAWN = re.compile(
    r'<form class="undo".*?</form>|(?<=name="key_id" value=")[0-9A-Za-z]{12}|gw_live_\w+'
    r'|(?<="key_id":")[0-9A-Za-z]{12}'
    r'|(?<=name="once" value=")[\w-]+'
    r"|(?<=/keys/)[0-9A-Za-z]{12}\b|[0-9a-f]{12,}|[0-9.]+ [mµ]s\b|[0-9]+| selected\b",
    re.DOTALL,
)
"""What is drawn or counted anew each time, and the way back from the deed before."""
NOT_SEEN_AT_HOME = {
    "/api/organisations/{organisation:str}/audit/{log:str}/{sequence:int}/proof": "not signed yet",
    "/api/organisations/{organisation:str}/proofs/{sequence:int}": "not signed yet",
    "/o/{organisation:str}/compliance/erasures/{case:str}/certificate": "nothing is erased yet",
    "/o/{organisation:str}/files/{file:str}/delete": "deleted over the API just before",
}
"""Routes that answer of our own thing as of none, and why."""
PEOPLE_ARE_OF_NO_ORGANISATION = {"/api/organisations/{organisation:str}/grants"}
"""Who may give roles names people of the whole installation, and is told of one that is not."""
_READ: dict[tuple[Handler, ...], dict[tuple[str, str], set[str]]] = {}
Ids = dict[str, str]


class Attempt(Struct, frozen=True):
    """One request."""

    method: str
    target: str
    body: str = ""
    is_json: bool = False


def subject(found: list[Handler]) -> list[Handler]:
    return [each for each in found if each[1] not in PUBLIC | SIGNED_IN]


def words_of(code: CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from words_of(constant)
        elif isinstance(constant, (str, tuple)):
            yield from (constant,) if isinstance(constant, str) else map(str, constant)


def read_by(handler: HTTPRouteHandler) -> set[str]:
    """The names of fields that stand in a handler's code, in what it calls, or in its form."""
    function = handler.fn
    words = {word for each in reached_from(function) for word in words_of(each.__code__)}
    words |= {each.name for each in queries_of(function)}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        for part in (parameter.annotation, *get_args(parameter.annotation)):
            words |= set(getattr(part, "__struct_fields__", ()))
    return words


def reading(application: Litestar) -> dict[tuple[str, str], set[str]]:
    """What each route reads, by its method and path: once for all listeners of the same routes."""
    routes = tuple(handlers(application))
    if routes not in _READ:
        _READ[routes] = _reading(application)
    return _READ[routes]


def _reading(application: Litestar) -> dict[tuple[str, str], set[str]]:
    return {
        (str(method), route.path): read_by(handler)
        for route in application.routes
        for handler in getattr(route, "route_handlers", ())
        if route.path not in PUBLIC | SIGNED_IN
        for method in set(handler.http_methods) - {"OPTIONS", "HEAD"}
    }


def path_with(path: str, ids: Ids) -> str:
    values = PATH_OTHERS | ids | {"organisation": OWN}
    if "{number" in path:
        # Of the organisation itself: the numbers of its versions are known, and ours are fewer.
        values["level"] = "organisation"
    return _PARAMETER.sub(lambda found: quote(values[found[1]], safe=""), path)


def fields_of(document: dict[str, Any], path: str) -> list[str]:
    """The fields of a JSON body, as the API describes it."""
    plain = _PARAMETER.sub(r"{\1}", path)
    content = document["paths"][plain]["post"].get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    name = schema.get("$ref", "").rpartition("/")[2]
    return list(document["components"]["schemas"].get(name, schema).get("properties", {}))


def templates(path: str) -> dict[str, tuple[str, ...]]:
    last = path.rpartition("/")[2]
    if path in PEOPLE_ARE_OF_NO_ORGANISATION:
        return {"person": ("{person}",)}
    return FIELDS_WITH_IDS | ({"id": (ID_BY_ROUTE[last],)} if last in ID_BY_ROUTE else {})


def filled(template: str, ids: Ids, field: str) -> Any:
    text = template.format(**ids)
    return int(text) if field == "to" and text.isdigit() else text


class Asking:
    """Makes the requests of a route, with ids in one of its places and our own in all others."""

    def __init__(
        self, document: dict[str, Any], read: dict[tuple[str, str], set[str]], own: Ids
    ) -> None:
        self._document = document
        self._read = read
        self._own = own

    def by_path(self, method: str, path: str, ids: Ids) -> Attempt:
        return self._attempt(method, path_with(path, ids), path, {})

    def by_fields(self, method: str, path: str, ids: Ids, *, apart: bool) -> Iterator[Attempt]:
        """All fields at once, or each `apart`; queries of what is read, bodies of what changes."""
        target = path_with(path, self._own)
        names = self._read[(method, path)]
        if path.startswith("/api/") and method not in SAFE_METHODS:
            names = set(fields_of(self._document, path))
        if path in PEOPLE_ARE_OF_NO_ORGANISATION:
            return
        known = {name: each for name, each in templates(path).items() if name in names}
        if not known:
            return
        if not apart:
            given = {name: filled(each[0], ids, name) for name, each in known.items()}
            yield self._attempt(method, target, path, given)
            return
        for name, many in known.items():
            for template in many:
                given = {name: filled(template, ids, name)}
                yield self._attempt(method, target, path, given)

    def _attempt(self, method: str, target: str, path: str, given: dict[str, Any]) -> Attempt:
        if method in SAFE_METHODS:
            return Attempt(method, f"{target}?{urlencode(given)}" if given else target)
        own = {name: filled(each[0], self._own, name) for name, each in templates(path).items()}
        if path.endswith("/rollout"):
            own["action"] = "publish"  # A verdict, as elsewhere, is none of its steps.
        if path.startswith("/api/"):
            fields = fields_of(self._document, path)
            values = {name: ({**OTHER_FIELDS, **own} | given)[name] for name in fields}
            said = {name: value for name, value in values.items() if value is not None}
            return Attempt(method, target, msgspec.json.encode(said).decode(), is_json=True)
        values = {**OTHER_FIELDS, **own, **given}
        texts = {name: value for name, value in values.items() if value not in (None, False, {})}
        return Attempt(method, target, urlencode(texts, doseq=True))


class Seen(Struct, frozen=True):
    """What an answer says, without what differs from one request to the next."""

    status: int
    location: str
    body: str


def without(text: str, ids: frozenset[str]) -> str:
    """A text without ids that were typed, now or before, and without what is drawn each time."""
    for value in sorted(ids, key=len, reverse=True):
        text = text.replace(value, "ID")
    return _DRAWN.sub("0", text)


def forms_of(ids: Ids) -> Iterator[str]:
    for value in ids.values():
        if len(value) > 6:
            yield from (value, quote(value, safe=""), html.escape(value), value.rpartition(":")[2])


async def seen(browser: Browser, attempt: Attempt, typed: frozenset[str]) -> tuple[Seen, str]:
    """The answer as it is to be compared, and as it is."""
    kind = "application/json" if attempt.is_json else "application/x-www-form-urlencoded"
    answer, text = await browser.send(
        attempt.method, attempt.target, body=attempt.body, content_type=kind
    )
    location = answer.headers.get("location", "")
    return Seen(answer.status, without(location, typed), without(text, typed)), text


def difference(one: Seen, other: Seen) -> str:
    if (one.status, one.location) != (other.status, other.location):
        return f"{one.status} {one.location!r}, but {other.status} {other.location!r}"
    first = next(
        (place for place, (a, b) in enumerate(zip(one.body, other.body, strict=False)) if a != b),
        min(len(one.body), len(other.body)),
    )
    here = slice(max(0, first - 60), first + 60)
    return f"{one.body[here]!r}, but {other.body[here]!r}" if one.body != other.body else ""


def asked_by(route: str, permission: Permission) -> str:
    """Which of the roles that may do it fills in its fields: drawn by its name, or each in the
    long run. All of them name the thing in its path.
    """
    if EVERY_ROLE:
        return "every role"
    able = [role for role in ROLES if permission in ROLE_PERMISSIONS[role]]
    return able[zlib.crc32(route.encode()) % len(able)]


class Matrix:
    """Walks every route as one person, and keeps what it found wrong."""

    def __init__(self, listener: Listener, browser: Browser) -> None:
        self._listener = listener
        self._browser = browser
        self.wrong: list[str] = []
        self.asked = 0

    async def walk(self, roles: Collection[Role], *, apart: bool) -> None:
        permitted = frozenset[Permission]().union(*(ROLE_PERMISSIONS[each] for each in roles))
        own, foreign = await furnished(self._listener)
        sets = [foreign.ids, never(foreign, SEED), never(foreign, SEED + 1)]
        typed = frozenset(form for ids in sets for form in forms_of(ids))
        before = await rows_about(self._listener, foreign)
        _, text = await self._browser.send("GET", "/api/openapi.json")
        read = reading(self._listener.application)
        asking = Asking(msgspec.json.decode(text), read, own.ids)
        routes = subject(handlers(self._listener.application))
        random.Random(SEED).shuffle(routes)
        # What is read comes first: what was typed into a form stands in pages afterwards.
        for method, path, access, where in sorted(routes, key=lambda each: each[0]):
            name, is_safe = f"{method} {path}", method in SAFE_METHODS
            if Permission(access) not in permitted or where == "everywhere":
                await self._refused(name, asking.by_path(method, path, foreign.ids))
                continue
            is_told = apart or asked_by(name, Permission(access)) in {*roles, "every role"}
            asked = [
                [
                    asking.by_path(method, path, ids),
                    *(asking.by_fields(method, path, ids, apart=apart) if is_told else ()),
                ]
                for ids in sets
            ]
            needles = {foreign.said} | (foreign.needles() if is_safe else set())
            for one, other, before_both in zip(*asked, strict=True):
                if not is_safe:
                    # What is done only once is done by now, and does not tell the two apart.
                    await seen(self._browser, before_both, typed)
                told, absent = [await seen(self._browser, each, typed) for each in (one, other)]
                self._judge(name, one, told, absent[0], needles)
        after = await rows_about(self._listener, foreign)
        for table in {*before, *after}:
            had, has = set(before.get(table, ())), set(after.get(table, ()))
            new = [row for row in has - had if OWN not in row]
            if had - has or new:
                self.wrong.append(f"changed in {table}: {sorted(had - has)[:2]} {new[:2]}")

    async def _refused(self, name: str, attempt: Attempt) -> None:
        """Who may not do it at all is told so, before anybody looks for what they named."""
        self.asked += 1
        told, _ = await seen(self._browser, attempt, frozenset())
        if told.status != 403:
            self.wrong.append(f"{name}: {told.status}, though no role permits it")

    def _judge(
        self, name: str, one: Attempt, told: tuple[Seen, str], absent: Seen, needles: set[str]
    ) -> None:
        self.asked += 1
        said = f"{name} as {one.target} {one.body[:300]}"
        if unlike := difference(told[0], absent):
            self.wrong.append(f"{said}: {unlike}")
        sent = unquote_plus(one.target + one.body)
        if leaked := [each for each in needles if each in told[1] and each not in sent]:
            self.wrong.append(f"{said}: says {leaked}")
        if told[0].status >= 500:
            self.wrong.append(f"{said}: {told[0].status}")


@pytest.mark.parametrize("role", ROLES if EVERY_ROLE else ALONE)
async def test_with_one_role_nothing_of_another_organisation_is_found_or_changed(
    listener: Listener, browser: Browser, role: Role
) -> None:
    await employ(listener, "ann", PASSWORD, [Grant(role, OWN)])
    await browser.sign_in_as("ann", PASSWORD)
    matrix = Matrix(listener, browser)
    await matrix.walk([role], apart=False)

    assert not matrix.wrong, "\n".join(matrix.wrong)
    assert matrix.asked > 300


@pytest.mark.long
async def test_with_every_role_at_home_nothing_of_another_organisation_is_found_or_changed(
    listener: Listener, browser: Browser
) -> None:
    await employ(listener, "ann", PASSWORD, [Grant(role, OWN) for role in ROLES])
    await browser.sign_in_as("ann", PASSWORD)
    matrix = Matrix(listener, browser)
    await matrix.walk(ROLES, apart=True)

    assert not matrix.wrong, "\n".join(matrix.wrong)
    assert matrix.asked > 400


async def test_no_name_that_a_route_takes_is_unknown_here(
    listener: Listener, browser: Browser
) -> None:
    await employ(listener, "ann", PASSWORD, [Grant("viewer", "*")])
    await browser.sign_in_as("ann", PASSWORD)
    _, text = await browser.send("GET", "/api/openapi.json")
    document = msgspec.json.decode(text)
    routes = subject(handlers(listener.application))
    folder = Path(admin.__path__[0])
    typed = {
        name
        for pattern, files in ((_IN_CODE, folder.rglob("*.py")), (_IN_PAGE, folder.rglob("*.html")))
        for file in files
        for found in pattern.findall(file.read_text())
        for name in ([found] if isinstance(found, str) else found)
        if name
    }
    typed |= {
        name
        for method, path, *_ in routes
        if path.startswith("/api/") and method not in SAFE_METHODS
        for name in fields_of(document, path)
    }
    typed |= {
        query.name
        for route in listener.application.routes
        for handler in getattr(route, "route_handlers", ())
        for query in queries_of(handler.fn)
    }
    in_paths = {name for _, path, *_ in routes for name in _PARAMETER.findall(path)}
    read = set().union(*reading(listener.application).values())

    assert in_paths == {*PATH_IDS, *PATH_OTHERS, "organisation"}
    unknown = typed - {*FIELDS_WITH_IDS, *OTHER_FIELDS, *QUERIES, *NO_FIELDS, "id"}
    assert not unknown, " ".join(sorted(unknown))
    assert set(FIELDS_WITH_IDS) - read == set()
    assert set(ID_BY_ROUTE) == {
        path.rpartition("/")[2] for _, path, *_ in routes if "/approvals/" in path
    }


async def test_every_id_of_a_path_is_one_that_its_route_would_find_at_home(
    listener: Listener, browser: Browser
) -> None:
    """Otherwise all the others would prove nothing: a route that finds nothing is never open."""
    await employ(listener, "ann", PASSWORD, [Grant(role, OWN) for role in ROLES])
    await browser.sign_in_as("ann", PASSWORD)
    own, foreign = await furnished(listener)
    _, text = await browser.send("GET", "/api/openapi.json")
    asking = Asking(msgspec.json.decode(text), reading(listener.application), own.ids)
    blind = []
    for method, path, _, where in sorted(subject(handlers(listener.application))):
        named = set(_PARAMETER.findall(path)) & PATH_IDS - {"level"}
        if where != "organisation" or not named or path in NOT_SEEN_AT_HOME:
            continue
        known = asking.by_path(method, path, own.ids)
        absent = asking.by_path(method, path, never(foreign, SEED))
        found, lost = [(await seen(browser, each, frozenset()))[0] for each in (known, absent)]
        if found.status == lost.status:
            blind.append(f"{method} {path}: {found.status}")

    assert not blind, "\n".join(blind)
