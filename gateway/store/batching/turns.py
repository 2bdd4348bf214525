"""Turns of batches: which are not over, their states, and which worker leads each of them."""

from collections.abc import Sequence

from msgspec import Struct
from sqlalchemy import ColumnElement, exists, or_, outerjoin, select, update

from gateway.batches import ACTIVE, UNDER_WAY, BatchKind, BatchState
from gateway.clock import Clock
from gateway.store.engine import Database
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.tables import virtual_keys


TEND_US = 60_000_000


class Standing(Struct, frozen=True):
    """The state of an unfinished batch, as far as its next step depends on it."""

    batch_id: str
    kind: BatchKind
    state: BatchState
    expires_us: int
    has_waiting: bool
    has_running: bool
    """Whether lines are under way, also at a vendor that answers them later."""
    key_is_over: bool
    """Whether the key that made it was revoked or has expired."""


class BatchTurns:
    """Decides which batch is served next, in one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def active(self) -> list[Standing]:
        """Unfinished batches, those that waited longest for their turn first."""
        now_us = self._clock.utc_us()

        def has(*states: str) -> ColumnElement[bool]:
            return exists().where(
                batch_lines.c.batch_id == batches.c.id, batch_lines.c.state.in_(states)
            )

        keys = virtual_keys.c
        query = (
            select(
                batches.c.id,
                batches.c.kind,
                batches.c.state,
                batches.c.expires_us,
                has("waiting").label("has_waiting"),
                has(*UNDER_WAY).label("has_running"),
                or_(
                    keys.id.is_(None), keys.revoked_us.is_not(None), keys.expires_us <= now_us
                ).label("key_is_over"),
            )
            .select_from(outerjoin(batches, virtual_keys, keys.id == batches.c.key_id))
            .where(batches.c.state.in_(ACTIVE))
            .order_by(batches.c.served_us, batches.c.id)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [
            Standing(
                batch_id=row.id,
                kind=row.kind,
                state=row.state,
                expires_us=row.expires_us,
                has_waiting=bool(row.has_waiting),
                has_running=bool(row.has_running),
                key_is_over=bool(row.key_is_over),
            )
            for row in rows
        ]

    async def take(self, batch_id: str, holder: str, states: Sequence[str]) -> bool:
        """Take the lead of a batch until given up or not renewed; returns whether it worked."""
        now_us = self._clock.utc_us()
        mine = (
            update(batches)
            .where(
                batches.c.id == batch_id,
                batches.c.state.in_(states),
                or_(batches.c.tended_until_us <= now_us, batches.c.tender == holder),
            )
            .values(tender=holder, tended_until_us=now_us + TEND_US)
        )
        async with self._database.writing() as connection:
            return bool((await connection.execute(mine)).rowcount)

    async def keep_tending(self, holder: str, *, is_leaving: bool = False) -> None:
        """Renew all leads of this worker, or leave them to others."""
        until_us = 0 if is_leaving else self._clock.utc_us() + TEND_US
        mine = update(batches).where(batches.c.tender == holder, batches.c.state.in_(ACTIVE))
        async with self._database.writing() as connection:
            await connection.execute(mine.values(tended_until_us=until_us))

    async def leave_earlier_lives(self, worker: str, holder: str) -> None:
        """Release at once what an earlier process of this worker led."""
        earlier = update(batches).where(
            batches.c.tender.startswith(f"{worker}.", autoescape=True), batches.c.tender != holder
        )
        async with self._database.writing() as connection:
            await connection.execute(earlier.values(tender="", tended_until_us=0))
