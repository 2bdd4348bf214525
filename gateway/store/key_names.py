"""What pages need to know of a few keys among very many: their names, and whose they are.

A page names tens of keys where an organisation may have ten thousand; reading all of them, with
their digests and labels, cost more than everything else on the page.
"""

from collections.abc import Collection, Iterator
from typing import Final

from sqlalchemy import func, select

from gateway.store.engine import Database
from gateway.store.tables import virtual_keys


_AT_ONCE: Final = 1_000
"""Databases bound how many values one statement may carry."""
_C = virtual_keys.c


class KeyNames:
    """Of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def names(self, organisation: str, key_ids: Collection[str]) -> dict[str, str]:
        """The names of those of these keys that an organisation has, by id; raises NotReady."""
        found: dict[str, str] = {}
        async with self._database.reading() as connection:
            for some in _parts(key_ids):
                query = select(_C.id, _C.name).where(
                    _C.id.in_(some), _C.organisation == organisation
                )
                found |= {row.id: row.name for row in await connection.execute(query)}
        return found

    async def homes(self, key_ids: Collection[str]) -> dict[str, str]:
        """The organisations of these keys, by id; raises NotReady."""
        found: dict[str, str] = {}
        async with self._database.reading() as connection:
            for some in _parts(key_ids):
                query = select(_C.id, _C.organisation).where(_C.id.in_(some))
                found |= {row.id: row.organisation for row in await connection.execute(query)}
        return found

    async def expiring(self, now_us: int, until_us: int) -> dict[str, tuple[int, int]]:
        """How many live keys of each organisation end before then, and when the first does."""
        query = (
            select(_C.organisation, func.count(), func.min(_C.expires_us))
            .where(_C.revoked_us.is_(None), _C.expires_us > now_us, _C.expires_us < until_us)
            .group_by(_C.organisation)
            .order_by(_C.organisation)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return {name: (int(count), int(first_us)) for name, count, first_us in rows}

    async def places(self, organisation: str) -> list[tuple[str, str]]:
        """Workspace and project of everything that an organisation has keys in."""
        query = select(_C.workspace, _C.project).where(_C.organisation == organisation).distinct()
        async with self._database.reading() as connection:
            return [(workspace, project) for workspace, project in await connection.execute(query)]


def _parts(key_ids: Collection[str]) -> Iterator[list[str]]:
    known = sorted(set(key_ids) - {""})
    for start in range(0, len(known), _AT_ONCE):
        yield known[start : start + _AT_ONCE]
