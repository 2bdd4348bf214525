"""Records in a database from which profiles are gathered, and a clock that stands still."""

import msgspec

from gateway.audit.entries import Entry
from gateway.audit.projecting.projection import ProjectedRecord
from gateway.clock import HOUR_US, StoppedClock
from gateway.recorded_facts import RecordedFacts
from gateway.store.engine import Database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.traffic.drifts import DriftTable
from gateway.store.traffic.profiles import LATE_US, ProfileHours
from gateway.types import AuditRecord


def intent(utc_us: int, tokens: int = 300, model: str = "auto") -> AuditRecord:
    return AuditRecord(
        "intent",
        f"req_{utc_us}",
        "acme",
        utc_us,
        model_requested=model,
        dialect="openai_chat",
        data_class="S1",
        facts=RecordedFacts("board", tokens, 0.3, "cheap"),
    )


class World:
    """A database, the records in it, and as many workers as a test wants."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = StoppedClock()
        self.sink = DatabaseAuditSink(database)
        self._offset = 0
        self.start_us = self.clock.utc_us() // HOUR_US * HOUR_US
        """The beginning of the hour that it is now."""
        self.clock.advance((self.start_us + HOUR_US + LATE_US - self.clock.utc_us()) / 1e6)
        self.table = DriftTable(database, self.clock)

    def worker(self) -> ProfileHours:
        return ProfileHours(self.database, self.sink, self.clock)

    async def store(self, *records: AuditRecord) -> None:
        end = self._offset + len(records)
        batch = [
            ProjectedRecord(
                *("w0", 1, self._offset + index, msgspec.json.encode(Entry(record))),
                known_record=record,
            )
            for index, record in enumerate(records)
        ]
        assert await self.sink.store(batch, "w0", (1, self._offset), (1, end))
        self._offset = end

    async def gathered(self, worker: ProfileHours) -> list[int]:
        """Hours that this worker gathered, until none is left to it."""
        found = []
        while (hour := await worker.claim("acme")) is not None:
            if await worker.gather(hour):
                found.append(hour.start_us)
        return found
