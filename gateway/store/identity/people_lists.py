"""Lists people a page at a time, found by their names, without reading all of them."""

from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace
from sqlalchemy import ColumnElement, Select, or_, select

from gateway.oversight.access import EVERYWHERE, ROLE_PERMISSIONS, Permission, Person, allows
from gateway.store.engine import Database
from gateway.store.identity.person_rows import Given, grants_of, person_in, person_of
from gateway.store.pages import Order, Part, count_of, part_behind
from gateway.store.schema.tables import people, role_grants


class PeopleLists:
    """Lists the people in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, words: Sequence[str], first: int, limit: int, after: str = ""
    ) -> Part[Person]:
        """People whose name or title holds each word, by name.

        `after` is the last name before them.
        """
        query, order = select(people).where(*map(_says, words)), Order((people.c.name,))
        async with self._database.reading() as connection:
            part = await part_behind(
                connection, query, order, (first, after), limit, lambda row: person_of(row, {})
            )
            given = await grants_of(connection, [each.name for each in part.rows])
        rows = [
            replace(each, grants=held.grants, by_group=held.by_group)
            for each in part.rows
            for held in [given.get(each.name, Given())]
        ]
        return part.of(rows)

    async def able(self, permission: Permission, organisation: str | None = None) -> list[Person]:
        """People who may do this in an organisation, or everywhere if None; by name."""
        roles = [role for role, permitted in ROLE_PERMISSIONS.items() if permission in permitted]
        places = [EVERYWHERE] if organisation is None else [EVERYWHERE, organisation]
        found = await self._read(_holding(places, role_grants.c.role.in_(roles)))
        return [each for each in found if allows(each, permission, organisation)]

    async def named_in(self, organisation: str, limit: int) -> list[Person]:
        """The first enabled people with a role there; by name."""
        return await self._read(_holding([EVERYWHERE, organisation]).limit(limit))

    async def count_in(self, organisation: str) -> int:
        """The total number of these."""
        async with self._database.reading() as connection:
            return await count_of(connection, _holding([EVERYWHERE, organisation]))

    async def named(self, names: Collection[str]) -> list[Person]:
        """These people; by name."""
        query = select(people).where(people.c.name.in_(names)).order_by(people.c.name)
        return await self._read(query)

    async def person(self, name: str) -> Person | None:
        async with self._database.reading() as connection:
            return await person_in(connection, name)

    async def _read(self, query: Select[Any]) -> list[Person]:
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
            given = await grants_of(connection, [row["name"] for row in rows])
        return [person_of(row, given) for row in rows]


def _holding(places: Sequence[str], *which: ColumnElement[bool]) -> Select[Any]:
    """Enabled people with a role at one of these places; by name."""
    held = select(role_grants.c.person).where(role_grants.c.organisation.in_(places), *which)
    is_enabled = people.c.disabled_us.is_(None)
    return select(people).where(is_enabled, people.c.name.in_(held)).order_by(people.c.name)


def _says(word: str) -> ColumnElement[bool]:
    """SQLite ignores case only for ASCII."""
    columns = people.c
    return or_(
        columns.name.icontains(word, autoescape=True),
        columns.title.icontains(word, autoescape=True),
    )
