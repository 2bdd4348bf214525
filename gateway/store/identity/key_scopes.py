"""Changes what keys may do: narrower at once, wider when somebody other than the proposer agrees.

Either change reaches every worker as a revocation does: the revision is raised in the same
transaction. A proposal builds on the scope that its proposer saw; it is overtaken once the key has
another scope, and ends with the key.
"""

import secrets
from collections import Counter
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, RowMapping, Select, and_, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.actors import ACTOR_CHARS_MAX, same_person
from gateway.clock import Clock
from gateway.errors import ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.oversight.key_scope import KeyScope, is_widening, scope_of
from gateway.store.deciding import decided, write_decided
from gateway.store.engine import Database
from gateway.store.pages import Order, Part, count_by, part_behind
from gateway.store.revisions import bump
from gateway.store.schema.tables import key_proposals, virtual_keys


ProposalState = Literal["waiting", "approved", "declined", "withdrawn", "overtaken", "ended"]
LISTED_MAX: Final = 100
_ID_BYTES: Final = 6
_P, _K = key_proposals.c, virtual_keys.c
_OLDEST: Final = Order((_P.proposed_us, _P.id))
_NEWEST: Final = Order((_P.proposed_us, _P.id), frozenset({0}))


class KeyProposal(Struct, frozen=True):
    """A proposal that a key may do more, and its result."""

    id: str
    organisation: str
    key_id: str
    key_name: str
    seen: KeyScope
    """The key's scope when this was proposed."""
    wanted: KeyScope
    proposed_by: str
    reason: str
    proposed_us: int
    state: ProposalState = "waiting"
    """`ended` if its key ended before anybody decided."""
    decided_by: str = ""
    comment: str = ""
    decided_us: int = 0


class KeyScopes:
    """Changes scopes of keys, and proposals for them, in one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def waiting(
        self, organisation: str, first: int = 0, limit: int = LISTED_MAX, after: str = ""
    ) -> Part[KeyProposal]:
        """Proposals for valid keys, oldest first; `after` is the key of the last before them."""
        query = self._query(_P.organisation == organisation, _P.state == "waiting", self._lives())
        async with self._database.reading() as connection:
            place = (first, after)
            return await part_behind(connection, query, _OLDEST, place, limit, _proposal)

    async def waiting_by(self, organisation: str) -> Counter[str]:
        """How many of them wait, by proposer."""
        of_living_keys = _P.key_id.in_(select(_K.id).where(self._lives()))
        waits = (_P.organisation == organisation, _P.state == "waiting", of_living_keys)
        async with self._database.reading() as connection:
            return await count_by(connection, _P.proposed_by, *waits)

    async def waiting_anywhere(self, since_us: int, count_max: int) -> list[KeyProposal]:
        """Proposals since then that wait, of all organisations, oldest first."""
        found = await self._read(_P.state == "waiting", _P.proposed_us >= since_us, self._lives())
        return found[:count_max]

    async def of(self, organisation: str) -> list[KeyProposal]:
        """Proposals in any state, newest first."""
        return (await self._read(_P.organisation == organisation, newest=True))[:LISTED_MAX]

    async def page(
        self, organisation: str, first: int, limit: int, after: str = ""
    ) -> Part[KeyProposal]:
        """A page of them in the same order, including those too old for `of`."""
        query = self._query(_P.organisation == organisation)
        async with self._database.reading() as connection:
            place = (first, after)
            return await part_behind(connection, query, _NEWEST, place, limit, _proposal)

    async def of_key(self, organisation: str, key_id: str) -> list[KeyProposal]:
        """Proposals for one key in any state, newest first."""
        mine = (_P.organisation == organisation, _P.key_id == key_id)
        return await self._read(*mine, newest=True)

    async def proposal(self, organisation: str, proposal_id: str) -> KeyProposal | None:
        found = await self._read(_P.organisation == organisation, _P.id == proposal_id)
        return found[0] if found else None

    async def narrow(
        self, organisation: str, key_id: str, seen: KeyScope, wanted: KeyScope
    ) -> None:
        """Narrow a key's scope from now on; proposals for it are overtaken.

        Raises:
            ChangedMeanwhile: its scope has changed.
            RequestInvalid: there is no such key, it has ended, or its scope would be wider.
        """
        if is_widening(seen, wanted):
            raise RequestInvalid("this lets the key do more", parameter="models")
        async with self._database.writing() as connection:
            await self._as_seen(connection, organisation, key_id, seen)
            await self._set(connection, key_id, wanted)

    async def propose(
        self,
        organisation: str,
        key_id: str,
        wanted: KeyScope,
        *,
        seen: KeyScope,
        actor: str,
        reason: str,
    ) -> KeyProposal:
        """Propose that a key may do more, for somebody else to decide.

        Raises:
            ChangedMeanwhile: its scope has changed.
            RequestInvalid: there is no such key, it has ended, or there is a proposal for it.
        """
        same = select(_P.id).where(_P.key_id == key_id, _P.state == "waiting")
        async with self._database.writing() as connection:
            row = await self._as_seen(connection, organisation, key_id, seen)
            if (await connection.execute(same)).first() is not None:
                raise RequestInvalid("a change of this key waits already", parameter="key_id")
            made = KeyProposal(
                id=secrets.token_hex(_ID_BYTES),
                organisation=organisation,
                key_id=key_id,
                key_name=row["name"],
                seen=seen,
                wanted=wanted,
                proposed_by=actor[:ACTOR_CHARS_MAX],
                reason=reason,
                proposed_us=self._clock.utc_us(),
            )
            await connection.execute(insert(key_proposals).values(_row_of(made)))
        return made

    async def approve(
        self, organisation: str, proposal_id: str, actor: str, comment: str
    ) -> KeyProposal:
        """Let the key do what was proposed, on every worker within a second.

        Raises:
            Forbidden: it is their own.
            ChangedMeanwhile: the key's scope has changed since the proposal.
            RequestInvalid: no such proposal waits, or its key would have ended by now.
        """
        now_us = self._clock.utc_us()
        async with self._database.writing() as connection:
            found = await self._waiting(connection, organisation, proposal_id)
            if same_person(actor, found.proposed_by):
                raise Forbidden("What a key may do is widened by somebody else than who asked.")
            await self._as_seen(connection, organisation, found.key_id, found.seen)
            ends_us = found.wanted.expires_us
            if ends_us is not None and ends_us <= now_us:
                raise RequestInvalid("the key would have expired by now", parameter="id")
            after = decided(found, "approved", actor, comment, now_us)
            await _end(connection, after)
            await self._set(connection, found.key_id, found.wanted)
        return after

    async def end(
        self,
        organisation: str,
        proposal_id: str,
        actor: str,
        comment: str,
        state: Literal["declined", "withdrawn"],
    ) -> KeyProposal:
        """Decline or withdraw a proposal.

        Raises:
            Forbidden: it is withdrawn by somebody other than who made it, or declined by who made
                it.
            RequestInvalid: no such proposal waits.
        """
        async with self._database.writing() as connection:
            found = await self._waiting(connection, organisation, proposal_id)
            is_own = same_person(actor, found.proposed_by)
            if is_own is not (state == "withdrawn"):
                raise Forbidden("A proposal is withdrawn by who made it, and declined by others.")
            after = decided(found, state, actor, comment, self._clock.utc_us())
            await _end(connection, after)
        return after

    def _lives(self) -> ColumnElement[bool]:
        now_us = self._clock.utc_us()
        return and_(_K.revoked_us.is_(None), (_K.expires_us.is_(None)) | (_K.expires_us > now_us))

    def _query(self, *conditions: ColumnElement[bool]) -> Select[Any]:
        return (
            select(key_proposals, _K.name, self._lives().label("lives"))
            .join(virtual_keys, _K.id == _P.key_id)
            .where(*conditions)
        )

    async def _read(
        self, *conditions: ColumnElement[bool], newest: bool = False
    ) -> list[KeyProposal]:
        order = _P.proposed_us.desc() if newest else _P.proposed_us
        query = self._query(*conditions).order_by(order, _P.id).limit(LISTED_MAX)
        async with self._database.reading() as connection:
            return [_proposal(row) for row in (await connection.execute(query)).mappings()]

    async def _waiting(
        self, connection: AsyncConnection, organisation: str, proposal_id: str
    ) -> KeyProposal:
        query = self._query(_P.organisation == organisation, _P.id == proposal_id)
        row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            raise RequestInvalid("there is no such proposal", parameter="id")
        found = _proposal(row)
        if found.state != "waiting":
            raise RequestInvalid(f"this proposal is {found.state}", parameter="id")
        return found

    async def _as_seen(
        self, connection: AsyncConnection, organisation: str, key_id: str, seen: KeyScope
    ) -> RowMapping:
        query = select(virtual_keys).where(_K.id == key_id, _K.organisation == organisation)
        row = (await connection.execute(query.with_for_update())).mappings().one_or_none()
        if row is None:
            raise RequestInvalid("there is no such key", parameter="key_id")
        ends_us = row["expires_us"]
        if row["revoked_us"] is not None or (
            ends_us is not None and ends_us <= self._clock.utc_us()
        ):
            raise RequestInvalid("this key has ended: issue another one", parameter="key_id")
        has = scope_of(row["models"], ends_us, row["labels"], row["translation"])
        if has != seen:
            raise ChangedMeanwhile("the key was changed meanwhile", parameter="key_id")
        return row

    async def _set(self, connection: AsyncConnection, key_id: str, wanted: KeyScope) -> None:
        values: dict[str, Any] = {
            "models": None if wanted.models is None else list(wanted.models),
            "expires_us": wanted.expires_us,
            "labels": list(wanted.labels),
            "translation": wanted.translation,
        }
        await connection.execute(update(virtual_keys).where(_K.id == key_id).values(**values))
        await bump(connection)
        others = update(key_proposals).where(_P.key_id == key_id, _P.state == "waiting")
        overtaken = {"state": "overtaken", "decided_us": self._clock.utc_us()}
        await connection.execute(others.values(**overtaken))


async def _end(connection: AsyncConnection, after: KeyProposal) -> None:
    """Raises RequestInvalid if somebody else decided it at the same moment."""
    change = update(key_proposals).where(_P.id == after.id, _P.state == "waiting")
    await write_decided(connection, change, after, said="this proposal")


def _row_of(made: KeyProposal) -> dict[str, Any]:
    values = {name: getattr(made, name) for name in KeyProposal.__struct_fields__}
    del values["key_name"]
    for name in ("seen", "wanted"):
        values[name] = msgspec.json.encode(values[name]).decode()
    return values


def _proposal(row: RowMapping) -> KeyProposal:
    values = dict(row)
    values["key_name"] = values.pop("name")
    lives = values.pop("lives")
    if values["state"] == "waiting" and not lives:
        values["state"] = "ended"
    for name in ("seen", "wanted"):
        values[name] = msgspec.json.decode(values[name], type=KeyScope)
    return KeyProposal(**values)
