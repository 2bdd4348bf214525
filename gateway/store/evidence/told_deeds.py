"""Deeds read from the log, by number and by time; where the two differ, the order is unknown.

Numbers are given as records come in, from one worker after the other; a clock may be set back.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway.oversight.deeds import OPERATORS
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.types import AuditRecord


CALLED_LOST: Final = "{} records are called lost, and deeds say so of {}"
"""Otherwise someone with write access to the database only could hide a record as lost."""
Ordered = Mapping[str, Any]


class ToldDeed(Struct, frozen=True):
    """A deed that was begun; only its effect says whether it was done."""

    sequence: int
    record: AuditRecord
    ordered: Ordered
    is_failed: bool
    """The person was told that it failed; it may have been done all the same."""


class ToldDeeds:
    """Reads deeds from the log in one database."""

    def __init__(self, sink: DatabaseAuditSink) -> None:
        self._sink = sink

    async def of(self, *actions: str, after: int = 0) -> list[ToldDeed]:
        """The deeds of these kinds with numbers greater than `after`, in order.

        Raises:
            NotReady: the database does not answer.
        """
        found: list[tuple[int, str, AuditRecord]] = []
        failed = set[str]()
        for action in actions:
            async for sequence, leaf, record in self._records(action, after):
                if record.status == "failed":
                    failed.add(record.detail.get("record", ""))
                else:
                    found.append((sequence, leaf, record))
        found.sort(key=lambda each: each[0])
        return [
            ToldDeed(sequence, record, _ordered(record), leaf in failed)
            for sequence, leaf, record in found
        ]

    async def orders(self, *actions: str) -> tuple[list[ToldDeed], list[ToldDeed]]:
        """The deeds that did not fail, by number, and again by time."""
        done = [deed for deed in await self.of(*actions) if not deed.is_failed]
        return done, sorted(done, key=lambda deed: deed.record.utc_us)

    async def declared_lost(self) -> int:
        """How many records people declared lost: the database alone could hide any record."""
        return sum(int(deed.ordered["records"]) for deed in await self.of("records.lost"))

    async def lost_masters(self) -> set[str]:
        """Ids of the master keys that people replaced."""
        deeds = await self.of("master_key.adopted")
        return {key_id for deed in deeds for key_id in deed.ordered.get("instead_of", ())}

    async def _records(
        self, action: str, after: int
    ) -> AsyncIterator[tuple[int, str, AuditRecord]]:
        query = AuditQuery(organisation=OPERATORS, action=action)
        async for row in self._sink.records(query, after):
            if row.projected.raw_json:
                yield row.sequence, row.projected.leaf_hash, row.projected.record


def _ordered(record: AuditRecord) -> Ordered:
    found: Ordered = msgspec.json.decode(record.detail.get("after", "{}"), type=dict[str, Any])
    return found
