"""Two devices under one log: segments on disk first, another place when those cannot be written.

The first device says within its deadline that it cannot write; from then on, until its thread
answers again, it says so at once. A record that neither accepts is refused: nothing is done
unrecorded.
"""

from collections.abc import Awaitable
from contextlib import suppress
from typing import Protocol

from gateway.audit.writer import SegmentedAuditLog
from gateway.errors import AuditUnavailable
from gateway.telemetry import Event, logger
from gateway.types import AuditRecord, Receipt


SECOND_SUFFIX = "_db"
"""The end of the worker's name in receipts of the second device; no configured name can have it."""
SECOND_SEGMENT = 1


def is_second(worker: str) -> bool:
    """Whether the worker of a receipt or record is a second device."""
    return worker.endswith(SECOND_SUFFIX)


class SecondDevice(Protocol):
    """Takes records while the first device cannot be written."""

    @property
    def healthy(self) -> bool:
        """Whether its last operation succeeded."""
        ...

    async def append(
        self, record: AuditRecord, content: bytes | None = None, *, may_be_written: bool = False
    ) -> Receipt:
        """`may_be_written`: the first device was given the record, and may still write it.

        Raises:
            AuditUnavailable: it cannot write within its deadline either, or the log has the record
                from the first device meanwhile.
        """
        ...

    async def probe(self) -> None:
        """Test whether it could be written; `healthy` tells the result."""
        ...

    async def rest(self) -> None:
        """It is not needed now: release what it holds for the next record."""
        ...


class TwoDeviceLog:
    """An AuditLog on two devices; the first one is started by its owner."""

    def __init__(self, first: SegmentedAuditLog, second: SecondDevice | None) -> None:
        self._first = first
        self._second = second
        self._log = logger()
        self.is_carried = False
        """Whether the second device took the last record that the first one refused."""

    @property
    def healthy(self) -> bool:
        return self._first.healthy or (self._second is not None and self._second.healthy)

    @property
    def failures_total(self) -> int:
        """How many records the first device failed to take."""
        return self._first.stats().failures_total

    def append(self, record: AuditRecord, content: bytes | None = None) -> Awaitable[Receipt]:
        if self._second is None:
            return self._first.join(record, content)
        return self._append_to_either(self._second, record, content)

    async def _append_to_either(
        self, second: SecondDevice, record: AuditRecord, content: bytes | None
    ) -> Receipt:
        is_asked = not self._first.healthy
        if is_asked:
            # It checks itself every second; until it recovers, nobody waits for it to fail.
            with suppress(AuditUnavailable):
                return self._carried(record, await second.append(record, content))
        try:
            receipt = await self._first.join(record, content)
        except AuditUnavailable:
            if is_asked:
                # There is no third device: what neither takes is refused.
                self._note_doubtful(record)
                raise
            return await self._carried_at_last(second, record, content)
        if self.is_carried:
            self._note(carried=False)
        return receipt

    def _carried(self, record: AuditRecord, receipt: Receipt) -> Receipt:
        if record.stage == "outcome":
            self._first.open.close(record.request_id)
        self._note(carried=True)
        return receipt

    async def _carried_at_last(
        self, second: SecondDevice, record: AuditRecord, content: bytes | None
    ) -> Receipt:
        """Carry a record that the first device did not take in time, but may still take."""
        try:
            receipt = await second.append(record, content, may_be_written=True)
        except AuditUnavailable:
            self._note_doubtful(record)
            raise
        return self._carried(record, receipt)

    def _note_doubtful(self, record: AuditRecord) -> None:
        """The second device may have taken it, and only its answer was lost."""
        if record.stage == "intent":
            self._first.open.note_doubtful(record.request_id)

    async def tend(self) -> None:
        """Once a second: test the second device while it is needed."""
        if self._second is None:
            return
        if self._first.healthy:
            await self._second.rest()
        else:
            await self._second.probe()
        if self.healthy:
            self._first.open.look_soon()

    async def close(self) -> None:
        """Write what is waiting, and release both devices."""
        await self._first.close()
        if self._second is not None:
            await self._second.rest()

    def _note(self, *, carried: bool) -> None:
        if carried != self.is_carried:
            self.is_carried = carried
            event = Event.AUDIT_SECOND_DEVICE if carried else Event.AUDIT_FIRST_DEVICE
            self._log.warning(event, worker=self._first.worker)
