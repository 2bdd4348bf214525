"""Repeats in a restored database the deeds that took something away, as far as the log knows.

The log holds no secrets: a rotated key gets a secret that nobody has, and so does a person who set
a password.
"""

import secrets
from typing import Any

from msgspec import Struct
from sqlalchemy import and_, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import MINUTE_US, SECOND_US, Clock
from gateway.store.engine import Database
from gateway.store.evidence.narrowed_again import NarrowedAgain
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.evidence.told_deeds import Ordered, ToldDeeds
from gateway.store.revisions import bump, revision_in
from gateway.store.schema.tables import (
    admin_sessions,
    invitations,
    people,
    role_grants,
    setup_links,
    virtual_keys,
)


_REVOKED, _ROTATED = "key.revoked", "key.rotated"
_PASSWORDS = ("person.password_set", "person.joined")
_ABLED = ("person.disabled", "person.enabled")
_ROLES = ("role.revoked", "role.granted")
_OPENS_NOTHING = frozenset(
    {
        # These are done again here, or concern what is only read.
        *("audit", "budget", "clock", "content", "diagnostics", "drift", "erasure", "incident"),
        *("integrity", "key", "master_key", "pack", "person", "place", "provider", "rate_limit"),
        *("records", "request", "review", "role", "session", "setup_link", "sink", "subject"),
        "traffic",
        # Without these, less is permitted, or the same.
        *("batch.never_ended", "batch.sent_twice"),
        *("hold.release_asked", "hold.release_declined", "hold.released"),
        *("policy.approve", "policy.discarded", "policy.drafted", "policy.edited"),
        *("policy.reject", "policy.shadow", "pool.resumed"),
        *("prices.declined", "prices.kept", "prices.proposed", "prices.withdrawn"),
        *("reveal.approved", "reveal.asked", "reveal.reported", "reveal.used"),
        *("secret.next_dropped", "secret.next_set"),
        *("team.changed", "team.created", "team.member_added", "team.restored"),
        *("worker.ending_resumed", "worker.requests_ended", "worker.retirement_asked"),
        *("worker.retirement_declined", "worker.retirement_withdrawn"),
    }
)
"""Actions, or all about a subject, that permit no more if a restored database lacks them."""
_WRITTEN_AFTER_US = MINUTE_US
"""A row changes within this time after its deed was recorded."""


def needs_decision(action: str) -> bool:
    """Whether a deed may have narrowed something that only people can narrow again.

    The log does not hold the content of policies, holds and credentials; unknown actions count too.
    """
    return not {action, action.partition(".")[0]} & _OPENS_NOTHING


class Again(Struct, frozen=True):
    """How much was repeated."""

    keys_revoked: int
    keys_rotated: int
    people_disabled: int
    passwords_ended: int
    roles_taken: int
    limits_lowered: int = 0
    keys_narrowed: int = 0

    def __str__(self) -> str:
        rest = (
            (self.keys_rotated, "keys await another rotation"),
            (self.people_disabled, "people were disabled again"),
            (self.passwords_ended, "passwords ended and await others"),
            (self.roles_taken, "roles were taken again"),
            (self.limits_lowered, "limits were lowered again"),
            (self.keys_narrowed, "keys may do less again"),
        )
        parts = [f"{self.keys_revoked} keys were revoked again"]
        return ", ".join(parts + [f"{count} {what}" for count, what in rest if count])


class DeedsAgain:
    """Repeats deeds in one database, before anybody is served."""

    def __init__(self, database: Database, sink: DatabaseAuditSink, clock: Clock) -> None:
        self._database = database
        self._deeds = ToldDeeds(sink)
        self._narrowed = NarrowedAgain(database, self._deeds, clock)
        self._clock = clock

    async def perform(self, known: int) -> Again:
        """Repeat withdrawals since the deed of number `known`; of most kinds, earlier ones too.

        Raises:
            NotReady: the database does not answer.
        """
        revoked = {deed.ordered.get("key_id") for deed in await self._deeds.of(_REVOKED)}
        rotated = await self._rotations(known)
        abled = await self._last(_ABLED)
        roles = await self._last(_ROLES)
        passwords = await self._deeds.of(*_PASSWORDS, after=known)
        changed = {_person(deed.ordered) for deed in passwords}
        lowered = await self._narrowed.limits()
        narrowed = await self._narrowed.scopes()
        async with self._database.writing() as connection:
            await bump(connection)
            counts = Again(
                await self._revoke(connection, revoked),
                await self._rotate(connection, rotated),
                await self._disable(connection, [who[0] for who in abled]),
                await self._end_passwords(connection, changed),
                await self._take_roles(connection, roles),
                lowered,
                narrowed,
            )
            # Whoever has signed out or followed a link since then could use it again to come in.
            await connection.execute(delete(admin_sessions))
            await connection.execute(delete(invitations))
            await connection.execute(delete(setup_links))
        return counts

    async def _last(self, actions: tuple[str, str]) -> list[tuple[str, str, str]]:
        """Those whose last of the two actions may be the first one: person, role and place."""
        found = set[tuple[str, str, str]]()
        for deeds in await self._deeds.orders(*actions):
            last = {_about(deed.ordered): deed.record.action for deed in deeds}
            found |= {about for about, action in last.items() if action == actions[0]}
        return sorted(found)

    async def _rotations(self, known: int) -> dict[str, list[tuple[int, int]]]:
        """By key: when it was rotated, and until when its previous secret stayed valid."""
        found: dict[str, list[tuple[int, int]]] = {}
        for deed in await self._deeds.of(_ROTATED, after=known):
            if deed.is_failed:
                continue
            at_us = deed.record.utc_us
            until_us = at_us + int(deed.ordered.get("overlap_s", 0)) * SECOND_US
            found.setdefault(deed.ordered.get("key_id", ""), []).append((at_us, until_us))
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
        """End the secret that a key has here at its recorded time; the next secret is not known."""
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


def _about(ordered: Ordered) -> tuple[str, str, str]:
    return _person(ordered), ordered.get("role", ""), ordered.get("organisation", "")


def _person(ordered: Ordered) -> str:
    """Commands say `name`, pages `person`."""
    return str(ordered.get("person") or ordered.get("name") or "")


def _lacking(deeds: list[tuple[int, int]], former_until_us: int | None) -> list[tuple[int, int]]:
    """Rotations that a row lacks: those after the one that gave it its present state."""
    for place, (_, until_us) in enumerate(deeds):
        if former_until_us and 0 <= former_until_us - until_us < _WRITTEN_AFTER_US:
            return deeds[place + 1 :]
    return deeds
