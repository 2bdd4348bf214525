"""What deeds took away, in a database that was put back: taken away again, as far as the log knows.

It knows no secret: a rotated key gets one that nobody has, and so does whoever set a password.
"""

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import and_, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import MINUTE_US, SECOND_US, Clock
from gateway.oversight.deeds import OPERATORS
from gateway.store.engine import Database
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.revisions import bump, revision_in
from gateway.store.schema.tables import (
    admin_sessions,
    invitations,
    people,
    role_grants,
    virtual_keys,
)
from gateway.types import AuditRecord


_REVOKED, _ROTATED = "key.revoked", "key.rotated"
_PASSWORDS = ("person.password_set", "person.joined")
_ABLED = ("person.disabled", "person.enabled")
_ROLES = ("role.revoked", "role.granted")
_WRITTEN_AFTER_US = MINUTE_US
"""A row changes at most so long after its deed was recorded."""
Ordered = Mapping[str, Any]


class Again(Struct, frozen=True):
    """How much of it was there again."""

    keys_revoked: int
    keys_rotated: int
    people_disabled: int
    passwords_ended: int
    roles_taken: int

    def __str__(self) -> str:
        rest = (
            (self.keys_rotated, "keys await another rotation"),
            (self.people_disabled, "people were disabled again"),
            (self.passwords_ended, "passwords ended and await others"),
            (self.roles_taken, "roles were taken again"),
        )
        parts = [f"{self.keys_revoked} keys were revoked again"]
        return ", ".join(parts + [f"{count} {what}" for count, what in rest if count])


class DeedsAgain:
    """Of one database, before anybody is served."""

    def __init__(self, database: Database, sink: DatabaseAuditSink, clock: Clock) -> None:
        self._database = database
        self._sink = sink
        self._clock = clock

    async def perform(self, since_us: int) -> Again:
        """Take away what was taken since, and for keys and people what ever was.

        Raises:
            NotReady: the database does not answer.
        """
        revocations = await self._deeds(_REVOKED, with_failed=True)
        revoked = {ordered.get("key_id") for _, ordered in revocations}
        rotated = await self._rotations(since_us)
        abled = await self._last(_ABLED)
        roles = await self._last(_ROLES)
        passwords = await self._deeds(*_PASSWORDS, since_us=since_us, with_failed=True)
        changed = {_person(ordered) for _, ordered in passwords}
        async with self._database.writing() as connection:
            await bump(connection)
            counts = Again(
                await self._revoke(connection, revoked),
                await self._rotate(connection, rotated),
                await self._disable(connection, [who[0] for who in abled]),
                await self._end_passwords(connection, changed),
                await self._take_roles(connection, roles),
            )
            # Whoever signed out since, or followed a link, could come in by it again.
            await connection.execute(delete(admin_sessions))
            await connection.execute(delete(invitations))
        return counts

    async def _deeds(
        self, *actions: str, since_us: int | None = None, with_failed: bool = False
    ) -> list[tuple[AuditRecord, Ordered]]:
        """Deeds by time, with what was ordered; one that failed may have been done all the same."""
        found, failed = [], set[str]()
        for action in actions:
            query = AuditQuery(organisation=OPERATORS, action=action, since_us=since_us)
            async for deed in self._sink.records(query):
                if not deed.projected.raw_json:
                    continue
                record = deed.projected.record
                if record.status == "failed":
                    failed.add(record.detail.get("record", ""))
                    continue
                after = record.detail.get("after", "{}")
                ordered = msgspec.json.decode(after, type=dict[str, Any])
                found.append((deed.projected.leaf_hash, record, ordered))
        found.sort(key=lambda each: each[1].utc_us)
        return [
            (record, ordered)
            for leaf, record, ordered in found
            if with_failed or leaf not in failed
        ]

    async def _last(self, actions: tuple[str, str]) -> list[tuple[str, str, str]]:
        """Of whom the last of the two was the first one: person, role and where."""
        last: dict[tuple[str, str, str], bool] = {}
        for record, ordered in await self._deeds(*actions):
            place = (_person(ordered), ordered.get("role", ""), ordered.get("organisation", ""))
            last[place] = record.action == actions[0]
        return [place for place, is_first in last.items() if is_first]

    async def _rotations(self, since_us: int) -> dict[str, list[tuple[int, int]]]:
        """By key: when it was rotated, and until when the secret of before stayed good."""
        found: dict[str, list[tuple[int, int]]] = {}
        for record, ordered in await self._deeds(_ROTATED, since_us=since_us):
            until_us = record.utc_us + int(ordered.get("overlap_s", 0)) * SECOND_US
            found.setdefault(ordered.get("key_id", ""), []).append((record.utc_us, until_us))
        return found

    async def _revoke(self, connection: AsyncConnection, ended: set[Any]) -> int:
        alive = select(virtual_keys.c.id).where(virtual_keys.c.revoked_us.is_(None))
        again = ended.intersection((await connection.execute(alive)).scalars())
        if again:
            now = {"revoked_us": self._clock.utc_us()}
            now["revoked_revision"] = await revision_in(connection)
            mine = virtual_keys.c.id.in_(sorted(again))
            await connection.execute(update(virtual_keys).where(mine).values(**now))
        return len(again)

    async def _rotate(
        self, connection: AsyncConnection, rotated: dict[str, list[tuple[int, int]]]
    ) -> int:
        """The secret that a key has here ends when it ended; the one after it is not known."""
        columns = virtual_keys.c
        query = select(columns.id, columns.digest, columns.pepper_version, columns.former_until_us)
        query = query.where(columns.id.in_(sorted(rotated)), columns.revoked_us.is_(None))
        rows = (await connection.execute(query)).all()
        count = 0
        for key_id, digest, version, former_until_us in rows:
            lacking = _lacking(rotated[key_id], former_until_us)
            if not lacking:
                continue
            until_us = min([lacking[0][1], *(at_us for at_us, _ in lacking[1:])])
            change = update(virtual_keys).where(columns.id == key_id)
            values = {
                "digest": secrets.token_bytes(32),
                "former_digest": digest,
                "former_pepper_version": version,
                "former_until_us": until_us,
            }
            await connection.execute(change.values(**values))
            count += 1
        return count

    async def _disable(self, connection: AsyncConnection, names: list[str]) -> int:
        mine = and_(people.c.name.in_(names), people.c.disabled_us.is_(None))
        change = update(people).where(mine).values(disabled_us=self._clock.utc_us())
        return (await connection.execute(change)).rowcount

    async def _end_passwords(self, connection: AsyncConnection, names: set[str]) -> int:
        mine = and_(people.c.name.in_(sorted(names)), people.c.password_hash.is_not(None))
        change = update(people).where(mine).values(password_hash=None)
        return (await connection.execute(change)).rowcount

    async def _take_roles(
        self, connection: AsyncConnection, roles: list[tuple[str, str, str]]
    ) -> int:
        columns, taken = role_grants.c, 0
        for person, role, organisation in roles:
            mine = and_(
                columns.person == person,
                columns.role == role,
                columns.organisation == organisation,
            )
            taken += (await connection.execute(delete(role_grants).where(mine))).rowcount
        return taken


def _person(ordered: Ordered) -> str:
    """Commands say `name`, pages `person`."""
    return str(ordered.get("person") or ordered.get("name") or "")


def _lacking(deeds: list[tuple[int, int]], former_until_us: int | None) -> list[tuple[int, int]]:
    """Rotations that a row does not have: those after the one that left it as it is."""
    for place, (_, until_us) in enumerate(deeds):
        if former_until_us and 0 <= former_until_us - until_us < _WRITTEN_AFTER_US:
            return deeds[place + 1 :]
    return deeds
