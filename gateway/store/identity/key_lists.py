"""Lists keys a page at a time: searched, counted by state and by place, without reading them all.

An organisation may have ten thousand keys; a page shows a hundred.
"""

import json
from collections.abc import Collection
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    RowMapping,
    Select,
    Text,
    and_,
    case,
    cast,
    func,
    literal,
    not_,
    or_,
    select,
    true,
    union,
)

from gateway.clock import Clock
from gateway.store.engine import Database
from gateway.store.identity.key_names import FACTS, KeyFacts, facts_of
from gateway.store.pages import Order, Part, part_behind
from gateway.store.schema.rollup import traffic_key_days
from gateway.store.schema.tables import budgets, rate_limits, virtual_keys


STATES: Final = ("live", "unused", "expiring", "overlapping", "expired", "revoked")
UNUSED_US: Final = 30 * 86_400_000_000
EXPIRING_US: Final = 14 * 86_400_000_000
_KEY: Final = "key:"
_C = virtual_keys.c


class KeySearch(Struct, frozen=True):
    """Conditions for a key, all of which must hold."""

    words: tuple[str, ...] = ()
    """Each is found in its id, name, place or owner, ignoring case."""
    fields: tuple[tuple[str, str], ...] = ()
    """Of `workspace`, `project`, `owner`, `state` and `model`, each with its value."""
    is_charged: bool = False
    """Only keys that a limit can affect: those not over, and those with a limit of their own."""
    is_limited: bool = False
    """Only those with a limit of their own."""


class PlaceKeys(Struct, frozen=True):
    """How many keys a project has."""

    workspace: str
    project: str
    keys: int
    live: int
    limited: int
    """How many of all of them have a limit of their own."""


_NEWEST: Final = Order((_C.created_us, _C.id), frozenset({0}))


def _facts(row: RowMapping) -> KeyFacts:
    return facts_of(tuple(row.values()))


class KeyLists:
    """Lists the keys in one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def page(
        self, organisation: str, search: KeySearch, place: tuple[int, str], limit: int
    ) -> Part[KeyFacts]:
        """A page of the matching keys, newest first.

        `place` is how many come before them, and the key of the last of these, or nothing.
        """
        query = select(*FACTS).where(*self._holds(organisation, search))
        async with self._database.reading() as connection:
            return await part_behind(connection, query, _NEWEST, place, limit, _facts)

    async def states(self, organisation: str) -> tuple[int, dict[str, int]]:
        """How many keys there are, and how many in each of STATES; a key may be in several."""
        sums = [func.sum(case((self._is(state, organisation), 1), else_=0)) for state in STATES]
        query = select(func.count(), *sums).where(_C.organisation == organisation)
        async with self._database.reading() as connection:
            total, *counts = (await connection.execute(query)).one()
        return int(total), {
            state: int(count or 0) for state, count in zip(STATES, counts, strict=True)
        }

    async def places(
        self, organisation: str, workspaces: Collection[str] | None = None
    ) -> list[PlaceKeys]:
        """Projects that have keys, with their number; None means all workspaces."""
        live = func.sum(case((self._is("live", organisation), 1), else_=0))
        limited = func.sum(case((_is_limited(), 1), else_=0))
        groups = (_C.workspace, _C.project)
        query = (
            select(*groups, func.count(), live, limited)
            .where(_C.organisation == organisation)
            .group_by(*groups)
            .order_by(*groups)
        )
        if workspaces is not None:
            query = query.where(_C.workspace.in_(workspaces))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [
            PlaceKeys(workspace, project, int(keys), int(live), int(limited))
            for workspace, project, keys, live, limited in rows
        ]

    async def ids_in(self, organisation: str, workspace: str, project: str = "") -> frozenset[str]:
        """Ids of the keys of a workspace, or of one of its projects."""
        query = select(_C.id).where(_C.organisation == organisation, _C.workspace == workspace)
        if project:
            query = query.where(_C.project == project)
        async with self._database.reading() as connection:
            return frozenset((await connection.execute(query)).scalars())

    def _holds(self, organisation: str, search: KeySearch) -> list[ColumnElement[bool]]:
        found = [_C.organisation == organisation, *map(_says, search.words)]
        for name, value in search.fields:
            if name == "state":
                found.append(self._is(value, organisation))
            elif name == "model":
                found.append(_may_use(value))
            else:
                column = {"owner": _C.created_by}.get(name)
                column = _C[name] if column is None else column
                found.append(func.lower(column) == value.lower())
        if search.is_charged:
            found.append(or_(self._is("live", organisation), _is_limited()))
        if search.is_limited:
            found.append(_is_limited())
        return found

    def _is(self, state: str, organisation: str) -> ColumnElement[bool]:
        """Whether a key is in one of STATES."""
        now_us = self._clock.utc_us()
        if state == "revoked":
            return _C.revoked_us.is_not(None)
        if state == "expired":
            return and_(_C.revoked_us.is_(None), func.coalesce(_C.expires_us, now_us + 1) <= now_us)
        is_live = and_(
            _C.revoked_us.is_(None), or_(_C.expires_us.is_(None), _C.expires_us > now_us)
        )
        more: dict[str, ColumnElement[bool]] = {
            "live": true(),
            "overlapping": func.coalesce(_C.former_until_us, 0) > now_us,
            "expiring": func.coalesce(_C.expires_us, now_us + EXPIRING_US) < now_us + EXPIRING_US,
        }
        if state in more:
            return and_(is_live, more[state])
        since_us = now_us - UNUSED_US
        return and_(
            is_live, _C.created_us < since_us, _C.id.not_in(_used_since(organisation, since_us))
        )


def _used_since(organisation: str, since_us: int) -> Select[Any]:
    columns = traffic_key_days.c
    return (
        select(columns.key_id)
        .where(columns.organisation == organisation, columns.last_us >= since_us)
        .distinct()
    )


def _is_limited() -> ColumnElement[bool]:
    """Whether a key has a budget or a rate limit of its own."""
    accounts = union(
        *(
            select(func.substr(table.c.account, len(_KEY) + 1)).where(
                table.c.account.like(f"{_KEY}%")
            )
            for table in (budgets, rate_limits)
        )
    )
    return _C.id.in_(accounts)


def _says(word: str) -> ColumnElement[bool]:
    """A word anywhere in a key's texts.

    SQLite ignores case only for ASCII: other words are also searched in their usual spelling.
    """
    place = _C.workspace + literal("/") + _C.project
    shapes = {word} if word.isascii() else {word, word.lower(), word.capitalize(), word.upper()}
    return or_(
        *(
            column.ilike(f"%{_escaped(shape)}%", escape="\\")
            for column in (_C.id, _C.name, place, _C.created_by)
            for shape in sorted(shapes)
        )
    )


def _may_use(model: str) -> ColumnElement[bool]:
    """Whether a key may use a model; its list is stored as JSON, with texts in quotes."""
    listed = cast(_C.models, Text)
    return or_(
        listed.is_(None),
        and_(not_(listed == "null"), listed.like(f"%{_escaped(json.dumps(model))}%", escape="\\")),
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
