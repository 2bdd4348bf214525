"""Boards of targets by digest: what policy knew of targets, so that decisions can be explained.

A worker stores its board whenever it differs from the previous one.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from sqlalchemy import select

from gateway.clock import Clock
from gateway.store.engine import Database
from gateway.store.schema.policies import target_boards
from gateway.store.speech import insert_into
from policies.facts import TargetFacts


Facts = tuple[TargetFacts, ...]
_NAMED_AT_ONCE: Final = 500


class TargetBoards:
    """Boards of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def keep(self, digest: str, targets: Sequence[TargetFacts]) -> None:
        """Store what policy knew of the targets."""
        text = msgspec.json.encode(targets, order="deterministic").decode()
        row = {"digest": digest, "targets": text, "created_us": self._clock.utc_us()}
        new = insert_into(self._database.kind, target_boards).values(row)
        async with self._database.writing() as connection:
            # All workers see the same engine come and go, and store the same board for it.
            await connection.execute(new.on_conflict_do_nothing())

    async def named(self, digests: Collection[str]) -> Mapping[str, Facts]:
        """Those of them that are stored; a few among very many, if policies order by speed."""
        rows: list[tuple[str, str]] = []
        columns, wanted = target_boards.c, sorted(set(digests))
        async with self._database.reading() as connection:
            for start in range(0, len(wanted), _NAMED_AT_ONCE):
                some = wanted[start : start + _NAMED_AT_ONCE]
                query = select(columns.digest, columns.targets).where(columns.digest.in_(some))
                rows += [(digest, text) for digest, text in await connection.execute(query)]
        return {digest: msgspec.json.decode(text, type=Facts) for digest, text in rows}

    async def newest(self) -> Facts:
        """The targets as a worker last reported them; empty if no worker has."""
        columns = target_boards.c
        query = select(columns.targets).order_by(columns.created_us.desc(), columns.digest).limit(1)
        async with self._database.reading() as connection:
            text = (await connection.execute(query)).scalar_one_or_none()
        return () if text is None else msgspec.json.decode(text, type=Facts)
