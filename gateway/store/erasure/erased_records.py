"""Checks the records of destroyed keys: their content cannot be opened, and their proofs hold."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct

from gateway.audit.content_keys.keys import KEY_DESTROYED, KeyWrapper
from gateway.audit.projecting.export import export_records
from gateway.audit.projecting.projection import SequencedRecord
from gateway.audit.proving import offline
from gateway.audit.proving.checkpoints import verifier_keys
from gateway.audit.proving.exported import SignedCheckpoint
from gateway.audit.proving.merkle import inclusion_path
from gateway.audit.second import is_second
from gateway.audit.segments import list_workers
from gateway.clock import DAY_US
from gateway.errors import ToldToOperators
from gateway.store.erasure.attempts import DatedKey
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.sink import AuditQuery


LOOKED_AT_MAX: Final = 20_000
CHECKED_MAX: Final = 500
PROOFS_MAX: Final = 20


class FoundRecords(Struct, frozen=True):
    """Records from the days of some keys."""

    rows: list[SequencedRecord]
    """Those whose content the keys seal."""
    looked_at: int
    unreadable: int = 0
    is_cut: bool = False

    @property
    def is_whole(self) -> bool:
        return not (self.is_cut or self.unreadable)


class ErasedRecords:
    """Checks records of one audit folder and its database."""

    def __init__(self, parts: Integration, wrapper: KeyWrapper) -> None:
        self._parts = parts
        self._wrapper = wrapper
        self._second = SecondContents(parts.database)

    async def rows(self, organisation: str, keys: Sequence[DatedKey]) -> FoundRecords:
        """The records whose content these keys seal, found by the keys' days."""
        if not keys:
            return FoundRecords([], 0)
        await self._parts.projector.catch_up()
        ids = {key.key for key in keys}
        rows: list[SequencedRecord] = []
        days = sorted(key.day for key in keys)
        # A record's own time may be slightly before the key's day, or after it.
        query = AuditQuery(
            organisation=organisation,
            since_us=(days[0] - 1) * DAY_US,
            until_us=(days[-1] + 2) * DAY_US,
        )
        looked_at = unreadable = 0
        here = set(await asyncio.to_thread(list_workers, self._parts.directory))
        async for row in self._parts.sink.records(query, strict=True):
            if looked_at >= LOOKED_AT_MAX:
                return FoundRecords(rows, looked_at, unreadable, is_cut=True)
            looked_at += 1
            if not row.projected.raw_json:
                # Its content may be under one of these keys, or under another; elsewhere it is
                # under another.
                unreadable += row.projected.worker in here or is_second(row.projected.worker)
                continue
            content = row.projected.content
            rows += [row] if content is not None and content.key in ids else []
        return FoundRecords(rows, looked_at, unreadable)

    async def checked(self, organisation: str, rows: Sequence[SequencedRecord]) -> dict[str, Any]:
        """For each record: whether its content is closed for good, and whether its proof holds.

        Content that merely cannot be found now counts as readable.
        """
        keys = verifier_keys(self._parts.directory)
        said = unchecked(rows) | {"keys": keys}
        checked = rows[:CHECKED_MAX]
        if not checked:
            return said
        said["checked"] = len(checked)
        covering: SignedCheckpoint | None = None
        # The keys are gone: report now what can be reported, whatever state the log is in.
        with suppress(ToldToOperators):
            covering = await self._parts.checkpoint_of(organisation, checked[-1].sequence)
        async for line in export_records(
            _each(checked),
            directory=self._parts.directory,
            keys=self._wrapper,
            second=self._second,
        ):
            said["contents_unreadable"] += line.get("content_error") == KEY_DESTROYED
        if covering is None:
            return said
        said["checkpoint"] = covering.note
        with suppress(ToldToOperators):
            for row in checked:
                proof = await self._proof(organisation, row, covering, keys)
                said["proofs_hold"] += _holds(proof, covering)
                said["proofs"] += [proof] if len(said["proofs"]) < PROOFS_MAX else []
        return said

    async def _proof(
        self,
        organisation: str,
        row: SequencedRecord,
        covering: SignedCheckpoint,
        keys: list[str],
    ) -> dict[str, Any]:
        """The proof in the form that `gateway/audit/proving/offline.py --proof` reads."""
        path = await self._parts.trees.ask(
            organisation, lambda tile: inclusion_path(row.sequence - 1, covering.size, tile)
        )
        return {
            "sequence": row.sequence,
            "record": row.projected.raw_json.decode(),
            "path": [hash_.hex() for hash_ in path],
            "checkpoint": covering.note,
            "keys": keys,
        }


def unchecked(rows: Sequence[SequencedRecord]) -> dict[str, Any]:
    """The report on records that nobody checked afterwards."""
    said: dict[str, Any] = {"records": len(rows), "checked": 0, "contents_unreadable": 0}
    return said | {"proofs_hold": 0, "checkpoint": "", "keys": [], "proofs": []}


async def _each(rows: Sequence[SequencedRecord]) -> AsyncIterator[SequencedRecord]:
    for row in rows:
        yield row


def _holds(proof: dict[str, Any], covering: SignedCheckpoint) -> bool:
    leaf = offline.leaf_hash(proof["record"].encode())
    path = [bytes.fromhex(text) for text in proof["path"]]
    try:
        root = offline.root_from_path(leaf, proof["sequence"] - 1, covering.size, path)
    except offline.Wrong:
        return False
    return root == covering.root
