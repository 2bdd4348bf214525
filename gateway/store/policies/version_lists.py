"""Lists policy versions that wait, are in force or finished, without reading all of them.

A level may have ten thousand versions; a page shows some.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, RowMapping, Select, func, or_, select

from gateway.configuration.guarding import GuardRules
from gateway.rollout.versions import INSTALLATION, PolicyEvent, PolicyVersion, State
from gateway.store.engine import Database
from gateway.store.pages import START, Order, Part, part_behind
from gateway.store.schema.policies import policy_events, policy_versions


PENDING: Final[tuple[State, ...]] = ("draft", "approved")
PENDING_MAX: Final = 10
"""The newest of one level; its history has all of them."""
LIVED: Final[tuple[State, ...]] = ("live", "retired")
WENT_LIVE: Final = ("publish", "roll_back", "retire")
"""Actions that give a level another live version, or none."""
ACTS: Final = (*WENT_LIVE, "canary", "shadow", "stop", "withdraw")
"""All actions that change what acts at a level."""
_V, _E = policy_versions.c, policy_events.c
_OLDEST: Final = Order((_V.created_us, _V.level, _V.number))
_NEWEST: Final = Order((_V.number,), frozenset({0}))
_IN_ORDER: Final = Order((_E.place,))
_BACKWARD: Final = Order((_E.place,), frozenset({0}))


class Pending(Struct, frozen=True):
    """Versions of a level that do not act yet."""

    newest: tuple[PolicyVersion, ...]
    count: int


class VersionLists:
    """Lists the policy versions in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def waiting(
        self, organisation: str, first: int, limit: int, after: str = ""
    ) -> Part[PolicyVersion]:
        """Versions of all levels over an organisation's requests that wait for approval.

        Oldest first; `after` is the key of the last one before them.
        """
        query = select(policy_versions).where(_V.state == "draft", _governs(organisation))
        async with self._database.reading() as connection:
            place = (first, after)
            return await part_behind(connection, query, _OLDEST, place, limit, version_of)

    async def waiting_by(self, organisation: str) -> list[tuple[str, str, int]]:
        """Level, author and number of the versions that wait."""
        query = (
            select(_V.level, _V.author, func.count())
            .where(_V.state == "draft", _governs(organisation))
            .group_by(_V.level, _V.author)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [(level, author, int(count)) for level, author, count in rows]

    async def names(self, organisation: str) -> set[str]:
        """The levels over an organisation's requests that have a version."""
        query = select(_V.level).where(_governs(organisation)).distinct()
        async with self._database.reading() as connection:
            return set((await connection.execute(query)).scalars())

    async def standing(
        self, organisation: str, states: Collection[State]
    ) -> dict[str, list[PolicyVersion]]:
        """Versions in these states by level, newest first; for states with few versions."""
        query = (
            select(policy_versions)
            .where(_V.state.in_(states), _governs(organisation))
            .order_by(_V.level, _V.number.desc())
        )
        found: dict[str, list[PolicyVersion]] = {}
        for version in await self._versions(query):
            found.setdefault(version.level, []).append(version)
        return found

    async def pending(self, organisation: str) -> dict[str, Pending]:
        """What does not act yet, by level."""
        mine = (_V.state.in_(PENDING), _governs(organisation))
        place = func.row_number().over(partition_by=_V.level, order_by=_V.number.desc())
        count = func.count().over(partition_by=_V.level)
        placed = (
            select(policy_versions, place.label("place"), count.label("of_level"))
            .where(*mine)
            .subquery()
        )
        query = (
            select(placed)
            .where(placed.c.place <= PENDING_MAX)
            .order_by(placed.c.level, placed.c.place)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        found: dict[str, Pending] = {}
        for row in rows:
            before = found.get(row["level"], Pending((), row["of_level"]))
            found[row["level"]] = Pending((*before.newest, version_of(row)), before.count)
        return found

    async def page(
        self, level: str, first: int, limit: int, after: str = ""
    ) -> Part[PolicyVersion]:
        """A page of one level's, newest first; `after` is the key of the last one before it."""
        query, place = select(policy_versions).where(_V.level == level), (first, after)
        async with self._database.reading() as connection:
            return await part_behind(connection, query, _NEWEST, place, limit, version_of)

    async def lived(self, level: str, limit: int) -> list[int]:
        """Numbers of the newest versions that are or were live."""
        query = select(_V.number).where(_V.level == level, _V.state.in_(LIVED))
        async with self._database.reading() as connection:
            found = await connection.execute(query.order_by(_V.number.desc()).limit(limit))
            return list(found.scalars())

    async def version(self, level: str, number: int) -> PolicyVersion | None:
        found = await self._versions(
            select(policy_versions).where(_V.level == level, _V.number == number)
        )
        return found[0] if found else None

    async def live(self, level: str) -> PolicyVersion | None:
        """The live version of a level; None if it has none of its own."""
        return await self._acting(level, "live")

    async def canary(self, level: str) -> PolicyVersion | None:
        """The canary that decides for some of a level's keys; None without one."""
        return await self._acting(level, "canary")

    async def _acting(self, level: str, state: State) -> PolicyVersion | None:
        found = await self._versions(
            select(policy_versions).where(_V.level == level, _V.state == state)
        )
        return found[0] if found else None

    async def events(self, level: str, limit: int) -> Part[PolicyEvent]:
        """The latest events of a level, newest first."""
        query = select(policy_events).where(_E.level == level)
        async with self._database.reading() as connection:
            return await part_behind(connection, query, _BACKWARD, START, limit, event_of)

    async def history(
        self, level: str, first: int, limit: int, after: str = ""
    ) -> Part[PolicyEvent]:
        """A page of a level's events, in order; `after` is the key of the last one before it."""
        query, place = select(policy_events).where(_E.level == level), (first, after)
        async with self._database.reading() as connection:
            return await part_behind(connection, query, _IN_ORDER, place, limit, event_of)

    async def acts(
        self, level: str, actions: Sequence[str], until_us: int | None = None
    ) -> list[PolicyEvent]:
        """Events of a level with these actions, in order; up to and including a moment."""
        query = select(policy_events).where(_E.level == level, _E.action.in_(actions))
        if until_us is not None:
            query = query.where(_E.utc_us <= until_us)
        return await self._events(query)

    async def events_of(self, level: str, number: int) -> list[PolicyEvent]:
        """Events of one version, in order."""
        return await self._events(
            select(policy_events).where(_E.level == level, _E.number == number)
        )

    async def _versions(self, query: Select[Any]) -> list[PolicyVersion]:
        async with self._database.reading() as connection:
            return [version_of(row) for row in (await connection.execute(query)).mappings()]

    async def _events(self, query: Select[Any]) -> list[PolicyEvent]:
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(_E.place))
            return [event_of(row) for row in rows.mappings()]


def _governs(organisation: str) -> ColumnElement[bool]:
    """The installation's level, the organisation's, and those of its workspaces and projects."""
    return or_(
        _V.level.in_((INSTALLATION, f"org:{organisation}")),
        _V.level.startswith(f"ws:{organisation}/", autoescape=True),
        _V.level.startswith(f"proj:{organisation}/", autoescape=True),
    )


def version_of(row: RowMapping) -> PolicyVersion:
    fields = {name: row[name] for name in PolicyVersion.__struct_fields__}
    rules = row["guard"]
    fields["guard"] = msgspec.json.decode(rules, type=GuardRules) if rules else None
    return PolicyVersion(**fields)


def event_of(row: RowMapping) -> PolicyEvent:
    return PolicyEvent(**{name: row[name] for name in PolicyEvent.__struct_fields__})
