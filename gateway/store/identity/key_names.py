"""Looks up what pages need to know of a few keys among very many: names and owners.

A page names tens of keys where an organisation may have ten thousand; reading all of them, with
their digests and labels, cost more than everything else on the page.
"""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from sqlalchemy import Text, cast, func, or_, select

from gateway.identity import Workload
from gateway.rollout.key_share import (
    KEYS_COUNTED_MAX,
    ROLLED_OUT,
    KeyShare,
    key_share,
    place_below,
)
from gateway.rollout.versions import PolicyVersion
from gateway.store.engine import Database
from gateway.store.identity.workloads import workload_of
from gateway.store.schema.tables import virtual_keys


_AT_ONCE: Final = 1_000
"""Databases limit how many values one statement may have."""
_C = virtual_keys.c
FACTS: Final = (
    *(_C.id, _C.name, _C.workspace, _C.project, _C.created_by, _C.created_us),
    *(_C.expires_us, _C.revoked_us, _C.former_until_us, _C.translation),
    _C.revoked_revision,
    # As text, decoded by us: a tenth of the time if there are thousands.
    *(cast(_C.labels, Text), cast(_C.models, Text), cast(_C.workload, Text)),
)


class KeyFacts(Struct, frozen=True):
    """A key as lists show it, without anything by which a worker recognises it."""

    key_id: str
    name: str
    workspace: str
    project: str
    owner: str
    created_us: int
    expires_us: int | None
    revoked_us: int | None
    former_until_us: int | None
    """Until when the secret before a rotation is valid."""
    translation: str
    revoked_revision: int | None
    labels: tuple[str, ...]
    models: tuple[str, ...] | None
    workload: Workload | None
    """Whose tokens prove it; None if a secret does."""

    def is_live(self, now_us: int) -> bool:
        return self.revoked_us is None and (self.expires_us is None or now_us < self.expires_us)


class KeyNames:
    """Looks keys up in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def names(self, organisation: str, key_ids: Collection[str]) -> dict[str, str]:
        """The names of an organisation's keys among these ids, by id; raises NotReady."""
        found: dict[str, str] = {}
        async with self._database.reading() as connection:
            for some in _parts(key_ids):
                query = select(_C.id, _C.name).where(
                    _C.id.in_(some), _C.organisation == organisation
                )
                found |= {row.id: row.name for row in await connection.execute(query)}
        return found

    async def facts(self, organisation: str, key_id: str) -> list[KeyFacts]:
        """One key of an organisation, or an empty list; raises NotReady."""
        query = select(*FACTS).where(_C.organisation == organisation, _C.id == key_id)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [facts_of(row) for row in rows]

    async def live_ids(
        self, organisation: str, workspace: str, project: str, now_us: int, most: int
    ) -> list[str]:
        """At most `most` valid keys below a place; an empty name stands for all.

        Raises NotReady.
        """
        below = ((_C.organisation, organisation), (_C.workspace, workspace), (_C.project, project))
        query = (
            select(_C.id)
            .where(
                *(column == name for column, name in below if name),
                _C.revoked_us.is_(None),
                or_(_C.expires_us.is_(None), _C.expires_us > now_us),
            )
            .limit(most)
        )
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def share_of(self, version: PolicyVersion, now_us: int) -> KeyShare | None:
        """What a version's share means for the valid keys at its level.

        None if they are very many, and for a version that is not a canary and cannot become one.
        Raises NotReady.
        """
        if version.state not in ROLLED_OUT:
            return None
        place, most = place_below(version.level), KEYS_COUNTED_MAX + 1
        found = await self.live_ids(*place, now_us, most)
        if len(found) > KEYS_COUNTED_MAX:
            return None
        return await asyncio.to_thread(key_share, version.digest, found, version.percent)

    async def homes(self, key_ids: Collection[str]) -> dict[str, str]:
        """The organisations of these keys, by id; raises NotReady."""
        found: dict[str, str] = {}
        async with self._database.reading() as connection:
            for some in _parts(key_ids):
                query = select(_C.id, _C.organisation).where(_C.id.in_(some))
                found |= {row.id: row.organisation for row in await connection.execute(query)}
        return found

    async def expiring(self, now_us: int, until_us: int) -> dict[str, tuple[int, int]]:
        """How many valid keys of each organisation end before then, and when the first does."""
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
        """Workspace and project of all of an organisation's keys."""
        query = select(_C.workspace, _C.project).where(_C.organisation == organisation).distinct()
        async with self._database.reading() as connection:
            return [(workspace, project) for workspace, project in await connection.execute(query)]


def facts_of(row: Sequence[Any]) -> KeyFacts:
    """A row of FACTS as what it is."""
    *values, labels, models, workload = row
    values.append(tuple(msgspec.json.decode(labels)))
    values.append(tuple(sorted(msgspec.json.decode(models))) if models else None)
    values.append(workload_of(msgspec.json.decode(workload)) if workload else None)
    return KeyFacts(*values)


def _parts(key_ids: Collection[str]) -> Iterator[list[str]]:
    known = sorted(set(key_ids) - {""})
    for start in range(0, len(known), _AT_ONCE):
        yield known[start : start + _AT_ONCE]
