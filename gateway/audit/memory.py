"""An AuditLog and a sink in memory, for tests and dry runs: they are no evidence."""

from collections.abc import Mapping

from gateway.audit.entries import decode_entry, encode_record, entry_bytes, leaf_hash
from gateway.audit.projecting.projection import START, Position, ProjectedRecord, SequencedRecord
from gateway.errors import AuditUnavailable
from gateway.types import AuditRecord, Receipt


class MemoryAuditLog:
    """Records in the order of their arrival; set `failing` to refuse further ones."""

    def __init__(self, worker: str = "memory") -> None:
        self._worker = worker
        self._length_bytes = 0
        self.records: list[AuditRecord] = []
        self.contents: list[bytes | None] = []
        self.receipts: list[Receipt] = []
        self.failing = False
        self._is_open = False

    @property
    def healthy(self) -> bool:
        return self._is_open and not self.failing

    async def start(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    async def append(self, record: AuditRecord, content: bytes | None = None) -> Receipt:
        if not self.healthy:
            raise AuditUnavailable("The audit log cannot be written, so nothing was done.")
        raw = entry_bytes(encode_record(record)[1])
        receipt = Receipt(self._worker, 1, self._length_bytes, leaf_hash(raw).hex())
        self._length_bytes += len(raw)
        # Decoded from its bytes, like a record in a file: nobody shares a part of it.
        self.records.append(decode_entry(raw).record)
        self.contents.append(content)
        self.receipts.append(receipt)
        return receipt


class MemoryAuditSink:
    """An AuditSink that keeps its rows: for tests, and to read a log without a database."""

    def __init__(self) -> None:
        self.rows: list[SequencedRecord] = []
        self._positions: dict[str, Position] = {}
        self._sequences: dict[str, int] = {}

    async def positions(self) -> Mapping[str, Position]:
        return dict(self._positions)

    async def store(
        self,
        batch: list[ProjectedRecord],
        worker: str,
        from_position: Position,
        to_position: Position,
    ) -> bool:
        if self._positions.get(worker, START) != from_position:
            return False
        organisations = [projected.record.organisation for projected in batch]
        for organisation, projected in zip(organisations, batch, strict=True):
            sequence = self._sequences.get(organisation, 0) + 1
            self._sequences[organisation] = sequence
            self.rows.append(SequencedRecord(sequence, projected))
        self._positions[worker] = to_position
        return True
