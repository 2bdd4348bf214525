"""Records that this worker just wrote, kept until they are projected, to save a read from disk.

Bounded: when the projection falls behind, all are dropped and the segments are read instead.
"""

from collections import deque
from operator import attrgetter

from msgspec import Struct

from gateway.audit.projecting.projection import Position, ProjectedRecord


_RAW = attrgetter("raw_json")
_RECORDS_MAX = 20_000
_BYTES_MAX = 32 * 1024 * 1024


class _Group(Struct, frozen=True):
    """What one commit made durable, from the end of the previous one to its own."""

    before: Position
    after: Position
    records: list[ProjectedRecord]
    length_bytes: int


class RecentRecords:
    """The last groups of one worker, without a gap; belongs to one event loop."""

    def __init__(
        self, worker: str, *, records_max: int = _RECORDS_MAX, bytes_max: int = _BYTES_MAX
    ) -> None:
        self.worker = worker
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._groups: deque[_Group] = deque()
        self._records = self._bytes = 0

    def add(self, before: Position, after: Position, records: list[ProjectedRecord]) -> None:
        """Keep a durable group; `before` is where the previous one ended."""
        length_bytes = sum(map(len, map(_RAW, records)))
        self._records += len(records)
        self._bytes += length_bytes
        self._groups.append(_Group(before, after, records, length_bytes))
        if self._records > self._records_max or self._bytes > self._bytes_max:
            self._groups.clear()
            self._records = self._bytes = 0

    def take(self, here: Position, count_max: int) -> tuple[list[ProjectedRecord], Position] | None:
        """Complete groups from a position on: at least one, else at most `count_max` records.

        They stay here until a later position is asked for. None if the place is not here.
        """
        groups = self._groups
        while groups and groups[0].after <= here:
            gone = groups.popleft()
            self._records -= len(gone.records)
            self._bytes -= gone.length_bytes
        if not groups or groups[0].before != here:
            return None
        batch: list[ProjectedRecord] = []
        for group in groups:
            if batch and len(batch) + len(group.records) > count_max:
                break
            batch += group.records
            here = group.after
        return batch, here
