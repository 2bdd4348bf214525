"""A record as evidence: its place, its hash, what signed it, and the proof of that."""

import asyncio

from msgspec import Struct

from admin.services import Services
from gateway.audit.content_keys.keys import is_key_destroyed
from gateway.audit.projecting.projection import ProjectedRecord, SequencedRecord
from gateway.audit.proving.exported import SignedCheckpoint
from gateway.audit.proving.integrator import TreeDamaged
from gateway.audit.second import is_second
from gateway.secrets.credentials import master_key
from gateway.store.evidence.proofs import Proof, proof_of
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.sink import AuditQuery
from gateway.store.evidence.tree import DatabaseAuditTrees


class Evidence(Struct, frozen=True):
    """A record as it lies in the log; without `text` it cannot be read any more."""

    sequence: int
    stage: str
    receipt: str
    leaf_hash: str
    text: str
    has_content: bool
    """Whether what was said may be read by somebody; `is_destroyed` where it was and cannot be."""
    signed: SignedCheckpoint | None
    """The first checkpoint that covers it."""
    is_destroyed: bool = False


class EvidenceReader:
    """Reads records and their proofs from one database; all may raise NotReady."""

    def __init__(self, services: Services) -> None:
        self._records = services.records
        self._trees = DatabaseAuditTrees(services.database)
        self._directory = services.settings.path(services.settings.audit.directory)
        self._wrapper = master_key(services.settings)
        self._second = SecondContents(services.database)

    async def record(self, log: str, sequence: int) -> SequencedRecord | None:
        """A record of a log by its number."""
        rows = self._records.records(AuditQuery(organisation=log), after=sequence - 1)
        row = await anext(rows, None)
        return row if row is not None and row.sequence == sequence else None

    async def of(self, log: str, row: SequencedRecord) -> Evidence:
        projected = row.projected
        place = f"{projected.worker}.{projected.segment}.{projected.offset_bytes}"
        if not projected.raw_json:
            return Evidence(row.sequence, "", place, "", "", has_content=False, signed=None)
        is_destroyed = await self._is_destroyed(projected)
        return Evidence(
            row.sequence,
            projected.record.stage,
            f"{place}.{projected.leaf_hash}",
            projected.leaf_hash,
            projected.raw_json.decode(),
            has_content=projected.content is not None and not is_destroyed,
            signed=await self._trees.covering(log, row.sequence),
            is_destroyed=is_destroyed,
        )

    async def _is_destroyed(self, projected: ProjectedRecord) -> bool:
        """Whether the key of its content is known to be gone; not where keys lie elsewhere."""
        if projected.content is None:
            return False
        if is_second(projected.worker):
            place = (projected.worker, projected.segment, projected.offset_bytes)
            sealed = await self._second.sealed(place)
            return sealed is not None and sealed.key is None
        folder = self._directory / projected.worker
        return await asyncio.to_thread(
            is_key_destroyed, folder, projected.content.key, self._wrapper
        )

    async def proof(self, log: str, row: SequencedRecord) -> Proof | None:
        """None while no checkpoint covers it, or where its bytes or the tree are damaged."""
        signed = await self._trees.covering(log, row.sequence)
        if signed is None or not row.projected.raw_json:
            return None
        try:
            return await proof_of(row, signed, self._trees, self._directory)
        except TreeDamaged:
            return None
