"""The nouns of the projection: a record as read back, its number, and the sink for both."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from gateway.audit.entries import ContentReference, decode_entry, leaf_hash
from gateway.types import AuditRecord


Position = tuple[int, int]
"""Segment number and offset of the next byte to read in it."""

START: Position = (1, 0)
"""The position of a worker that a sink has never heard of."""
RETIRED: Position = (1 << 60, 0)
"""The position of a worker whose name was retired: after everything it could ever write."""


class ProjectedRecord(Struct, frozen=True):
    """One record with its place; its content is decoded on demand, unless already known.

    Bytes cost nothing until they are looked into; thousands of decoded records at once are work for
    the garbage collector, which stops the event loop.
    """

    worker: str
    segment: int
    offset_bytes: int
    """Of the record's frame; with worker, segment and leaf hash this is the receipt."""
    raw_json: bytes
    """The canonical bytes that the leaf hash covers: `{"record": …, "content": …}`.

    Empty where they can no longer be read from the segment.
    """
    known_record: AuditRecord | None = None
    """The decoded record, if this process wrote it a moment ago."""
    known_leaf: str = ""

    @property
    def leaf_hash(self) -> str:
        """Hex SHA-256 of 0x00 and `raw_json`."""
        return self.known_leaf or leaf_hash(self.raw_json).hex()

    @property
    def record(self) -> AuditRecord:
        """Decoded anew at each access unless it is known.

        Raises:
            msgspec.MsgspecError: the bytes are no JSON of ours.
        """
        return self.known_record or decode_entry(self.raw_json).record

    @property
    def content(self) -> ContentReference | None:
        """Decoded anew at each access; raises msgspec.MsgspecError when it is no JSON of ours."""
        return decode_entry(self.raw_json).content


class SequencedRecord(Struct, frozen=True):
    """A projected record with its number: dense from 1 in each organisation."""

    sequence: int
    projected: ProjectedRecord
    is_again: bool = False
    """Whether its request has an earlier outcome, with a lower number: then it counts nowhere."""


class AuditSink(Protocol):
    """A projection of the log that can be rebuilt from it, such as the database."""

    async def positions(self) -> Mapping[str, Position]:
        """How far each worker's segments are stored; a missing worker is at START."""
        ...

    async def store(
        self,
        batch: list[ProjectedRecord],
        worker: str,
        from_position: Position,
        to_position: Position,
    ) -> bool:
        """Store a batch of one worker and move its position, both or neither.

        Inside the same transaction each record gets the next number of its organisation, in the
        order of the batch, so that numbers are dense. Returns False, and stores nothing, if the
        worker's position is not `from_position`: somebody else was faster.

        Raises:
            msgspec.MsgspecError: a record is no JSON of ours; nothing was stored.
        """
        ...
