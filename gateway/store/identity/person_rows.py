"""Turns rows of the database into people, each with the roles that this version knows."""

from collections.abc import Sequence

from msgspec import Struct
from sqlalchemy import RowMapping, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.oversight.access import (
    ROLES,
    ByGroup,
    Grant,
    Person,
)
from gateway.store.schema.tables import people, role_grants


class Given(Struct, frozen=True):
    """A person's roles, and which of them come from a group of the OpenID provider."""

    grants: frozenset[Grant] = frozenset()
    by_group: frozenset[ByGroup] = frozenset()


async def grants_of(
    connection: AsyncConnection, names: Sequence[str] | None = None
) -> dict[str, Given]:
    """The roles of these people, or of all."""
    query = select(role_grants)
    if names is not None:
        query = query.where(role_grants.c.person.in_(names))
    return grants_in((await connection.execute(query)).mappings().all())


def grants_in(rows: Sequence[RowMapping]) -> dict[str, Given]:
    found: dict[str, tuple[set[Grant], set[ByGroup]]] = {}
    for row in rows:
        # A role that this version does not know grants nothing.
        if row["role"] in ROLES:
            grants, by_group = found.setdefault(row["person"], (set(), set()))
            grants.add(Grant(row["role"], row["organisation"]))
            if group := row["by_group"]:
                by_group.add(ByGroup(row["role"], row["organisation"], group))
    return {
        name: Given(frozenset(grants), frozenset(by_group))
        for name, (grants, by_group) in found.items()
    }


async def person_in(connection: AsyncConnection, name: str) -> Person | None:
    """A person by name, as a transaction sees them."""
    return (await people_in(connection, [name])).get(name)


async def people_in(connection: AsyncConnection, names: Sequence[str]) -> dict[str, Person]:
    """Those of these people who exist, by name, as a transaction sees them."""
    query = select(people).where(people.c.name.in_(names))
    rows = (await connection.execute(query)).mappings().all()
    given = await grants_of(connection, [row["name"] for row in rows])
    return {row["name"]: person_of(row, given) for row in rows}


def person_of(row: RowMapping, given: dict[str, Given]) -> Person:
    held = given.get(row["name"], Given())
    return Person(
        row["name"],
        row["title"],
        held.grants,
        is_disabled=row["disabled_us"] is not None,
        of_token=row["of_token"],
        by_group=held.by_group,
    )
