"""Roles that hold because of a group of the OpenID provider: given and taken away as it says.

A role is given by hand or by a group, never both. By hand takes precedence: the provider cannot end
what somebody here gave.
"""

from collections.abc import Mapping

from msgspec import Struct
from sqlalchemy import and_, delete, select
from sqlalchemy.exc import IntegrityError

from gateway.oversight.access import ROLES, Grant
from gateway.store.engine import Database
from gateway.store.schema.tables import role_grants


class Held(Struct, frozen=True):
    """A person's roles, by their source."""

    by_hand: frozenset[Grant]
    by_group: Mapping[Grant, str]
    """With the name of the group."""


class GroupGrants:
    """Roles by group of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def held(self, name: str) -> Held:
        """The roles a person holds, without those that this version does not know."""
        query = select(role_grants).where(role_grants.c.person == name)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        known = [row for row in rows if row.role in ROLES]
        return Held(
            frozenset(Grant(row.role, row.organisation) for row in known if not row.by_group),
            {Grant(row.role, row.organisation): row.by_group for row in known if row.by_group},
        )

    async def give(self, name: str, grant: Grant, group: str) -> None:
        """Give a role by a group; does nothing if somebody gave it meanwhile, in whichever way."""
        row = {"person": name, "role": grant.role, "organisation": grant.organisation}
        try:
            async with self._database.writing() as connection:
                await connection.execute(role_grants.insert(), row | {"by_group": group})
        except IntegrityError:
            return

    async def take(self, name: str, grant: Grant) -> None:
        """Remove a role that no group gives any more; one given by hand stays."""
        columns = role_grants.c
        mine = and_(
            columns.person == name,
            columns.role == grant.role,
            columns.organisation == grant.organisation,
            columns.by_group != "",
        )
        async with self._database.writing() as connection:
            await connection.execute(delete(role_grants).where(mine))
