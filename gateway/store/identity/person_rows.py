"""Rows of the database as people, each with the roles that this version knows."""

from collections.abc import Sequence

from sqlalchemy import RowMapping, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.oversight.access import (
    ROLES,
    Grant,
    Person,
)
from gateway.store.schema.tables import people, role_grants


async def grants_of(
    connection: AsyncConnection, names: Sequence[str] | None = None
) -> dict[str, frozenset[Grant]]:
    """Of these people, or of all."""
    query = select(role_grants)
    if names is not None:
        query = query.where(role_grants.c.person.in_(names))
    return grants_in((await connection.execute(query)).mappings().all())


def grants_in(rows: Sequence[RowMapping]) -> dict[str, frozenset[Grant]]:
    found: dict[str, set[Grant]] = {}
    for row in rows:
        # A role that this version does not know grants nothing.
        if row["role"] in ROLES:
            grant = Grant(row["role"], row["organisation"])
            found.setdefault(row["person"], set()).add(grant)
    return {name: frozenset(grants) for name, grants in found.items()}


async def person_in(connection: AsyncConnection, name: str) -> Person | None:
    """Somebody by their name, as a transaction sees them."""
    query = select(people).where(people.c.name == name)
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else person_of(row, await grants_of(connection, [name]))


def person_of(row: RowMapping, given: dict[str, frozenset[Grant]]) -> Person:
    return Person(
        row["name"],
        row["title"],
        given.get(row["name"], frozenset()),
        is_disabled=row["disabled_us"] is not None,
        of_token=row["of_token"],
    )
