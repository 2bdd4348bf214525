"""Reseals with the present master key what another key sealed in the database.

It works on a few rows at a time, each batch in a transaction of its own, while workers run:
finished rows stay finished, and an interrupted run starts again with the rest. Only the wrapped
keys change, not the content.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import and_, select, tuple_, update

from gateway.clock import Clock
from gateway.secrets.envelope import MasterKey
from gateway.store.engine import Database
from gateway.store.sealing.sealed_kinds import SealedKind


AT_ONCE: Final = 50
"""Rows per transaction: SQLite rewrites a row with all that is sealed in it."""
_PASSES: Final = 3
"""Rows that another process holds are left for the next pass."""


class Done(Struct):
    """The result for the rows of one kind."""

    resealed: int = 0
    closed: int = 0
    """Rows that none of the keys opens; they name no key any more."""


class Resealing:
    """Seals the rows of one database again, kind by kind."""

    def __init__(self, database: Database, master: MasterKey, clock: Clock) -> None:
        self._database = database
        self._master = master
        self._clock = clock

    async def of(self, kind: SealedKind) -> Done:
        """Reseal everything of a kind that one of the other keys opens.

        Raises:
            NotReady: the database does not answer; what was done stays done.
        """
        done = Done()
        for _ in range(_PASSES):
            before, done.closed = done.resealed, 0
            for sealed_by in await self._sealed_by(kind):
                await self._all(kind, sealed_by, done)
            if done.resealed == before:
                break
        return done

    async def _sealed_by(self, kind: SealedKind) -> Sequence[str]:
        """Ids of the other keys that rows name, empty if they name none; without those we lack."""
        column = kind.table.c.master_key_id
        ours = {"", *self._master.key_ids} - {self._master.key_id}
        query = select(column).where(column.in_(ours), kind.is_sealed).distinct()
        async with self._database.reading() as connection:
            # Rows that lose their key because none opens them are read once.
            return sorted((await connection.execute(query)).scalars())

    async def _all(self, kind: SealedKind, sealed_by: str, done: Done) -> None:
        after: tuple[Any, ...] = ()
        while True:
            begun_s = self._clock.monotonic_s()
            part, after = await self._part(kind, sealed_by, after)
            done.resealed += part.resealed
            done.closed += part.closed
            if not after:
                return
            # As long as it held the database: those that serve get half of it.
            await asyncio.sleep(self._clock.monotonic_s() - begun_s)

    async def _part(
        self, kind: SealedKind, sealed_by: str, after: tuple[Any, ...]
    ) -> tuple[Done, tuple[Any, ...]]:
        """Reseal the next rows; returns the last one's place, nothing if there are no more."""
        table, done = kind.table, Done()
        names = [column.name for column in table.primary_key]
        wanted = [table.c[name] for name in dict.fromkeys([*names, *kind.read])]
        place = tuple_(*(table.c[name] for name in names))
        query = select(*wanted).where(table.c.master_key_id == sealed_by, kind.is_sealed)
        if after:
            query = query.where(place > after)
        query = query.order_by(*(table.c[name] for name in names)).limit(AT_ONCE)
        async with self._database.writing() as connection:
            mine = query.with_for_update(key_share=True, skip_locked=True)
            rows = (await connection.execute(mine)).mappings().all()
            for row in rows:
                values = kind.anew(self._master, row)
                if values is None:
                    done.closed += 1
                    values = {"master_key_id": ""}
                else:
                    done.resealed += 1
                is_it = and_(*(table.c[name] == row[name] for name in names))
                await connection.execute(update(table).where(is_it).values(**values))
        return done, tuple(rows[-1][name] for name in names) if rows else ()
