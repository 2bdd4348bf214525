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
"""Ends the worker's name in receipts of the second device; no configured worker's name can."""
SECOND_SEGMENT = 1


def is_second(worker: str) -> bool:
    """Whether a receipt's or a record's worker is a second device."""
    return worker.endswith(SECOND_SUFFIX)


class SecondDevice(Protocol):
    """Where records go while the first device cannot be written."""

    @property
    def healthy(self) -> bool:
        """Whether the last thing asked of it was done."""
        ...

    async def append(
        self, record: AuditRecord, content: bytes | None = None, *, may_be_written: bool = False
    ) -> Receipt:
        """`may_be_written`: the first device was given it, and may write it late.

        Raises:
            AuditUnavailable: it cannot write within its deadline either, or the log has the record
                from the first device meanwhile.
        """
        ...

    async def probe(self) -> None:
        """Find out whether it could be written; `healthy` says so afterwards."""
        ...

    async def rest(self) -> None:
        """It is not needed now: what it holds for a next record goes back."""
        ...


class TwoDeviceLog:
    """An AuditLog over both; the first one is started by its owner."""

    def __init__(self, first: SegmentedAuditLog, second: SecondDevice | None) -> None:
        self._first = first
        self._second = second
        self._log = logger()
        self.is_carried = False
        """Whether the second device took the last record that the first refused."""

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
            # It looks every second whether it can again; until then nobody waits for it to fail.
            with suppress(AuditUnavailable):
                return self._carried(record, await second.append(record, content))
        try:
            receipt = await self._first.join(record, content)
        except AuditUnavailable:
            if is_asked:
                # There is nobody else to ask: what neither takes is refused.
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
        """What the first did not take in time: it may do so yet."""
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
        """Once a second: ask the second device whether it could write, while it is needed."""
        if self._second is None:
            return
        if self._first.healthy:
            await self._second.rest()
        else:
            await self._second.probe()
        if self.healthy:
            self._first.open.look_soon()

    async def close(self) -> None:
        """Write what is waiting, and give back what either device holds."""
        await self._first.close()
        if self._second is not None:
            await self._second.rest()

    def _note(self, *, carried: bool) -> None:
        if carried != self.is_carried:
            self.is_carried = carried
            event = Event.AUDIT_SECOND_DEVICE if carried else Event.AUDIT_FIRST_DEVICE
            self._log.warning(event, worker=self._first.worker)
