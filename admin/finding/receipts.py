"""Finds the request of a receipt: the record is read at the place the receipt names."""

import asyncio
from pathlib import Path

from gateway.audit.projecting.projection import ProjectedRecord
from gateway.audit.proving.integrator import TreeDamaged
from gateway.audit.proving.verify import parse_receipt
from gateway.audit.segments import read_entries
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.types import Receipt


class ReceiptReader:
    """Finds the requests of one installation by their receipts; all may raise NotReady."""

    def __init__(
        self, directory: Path, records: DatabaseAuditSink, trees: DatabaseAuditTrees
    ) -> None:
        """`directory` is where segments lie here, if any do."""
        self._directory = directory
        self._records = records
        self._trees = trees

    async def request_of(self, text: str, organisation: str) -> str | None:
        """The request's id; None for what is no receipt, does not hold or is of another log.

        One place is looked at, however long the log is: in the segments here, and in the database
        for a record of another machine's, or that the database took while a disk could not.
        """
        receipt = parse_receipt(text)
        if receipt is None:
            return None
        place = (receipt.worker, receipt.segment, receipt.offset_bytes)
        raw = (await asyncio.to_thread(read_entries, self._directory, [place])).get(place)
        if raw is None:
            return await self._projected(receipt, organisation)
        found = ProjectedRecord(*place, raw)
        if found.leaf_hash != receipt.leaf_hash or found.record.organisation != organisation:
            return None
        return found.record.request_id or None

    async def _projected(self, receipt: Receipt, organisation: str) -> str | None:
        """As the database knows it, whose tree says which record it was: its bytes may be away."""
        row = await self._records.named_at((receipt.worker, receipt.segment, receipt.offset_bytes))
        if row is None or row[0] != organisation:
            return None
        _, sequence, request_id = row
        try:
            leaf = await self._trees.leaves(organisation, sequence - 1, sequence)
        except TreeDamaged:
            return None
        return request_id or None if leaf.hex() == receipt.leaf_hash else None
