"""Refusals of callers without a valid key: a few are recorded one by one, a flood is counted.

Who has no key may still be refused as often as he likes, and a record is for years: thousands a
second would fill the disk, and with a full disk nobody is served.
"""

from msgspec import structs

from gateway.clock import Clock
from gateway.errors import AuditUnavailable
from gateway.flow import Flow
from gateway.ports import AuditLog
from gateway.types import AuditRecord, Receipt


AT_ONCE_MAX = 1000
PER_SECOND_MAX = 5.0
"""In a day of nothing else some 430,000 records of each worker."""
LEFT_OUT = "left_out"
"""In a record: how many more there were before it that have none of their own."""


class Strangers:
    """What is written down of them."""

    def __init__(self, audit: AuditLog, clock: Clock) -> None:
        self._audit = audit
        self._flow = Flow(clock, AT_ONCE_MAX, PER_SECOND_MAX)
        self._left_out = 0
        self._last: AuditRecord | None = None
        """Of those that were left out."""

    async def note(self, record: AuditRecord) -> Receipt | None:
        """None where it is only counted.

        Raises:
            AuditUnavailable: it is to be written down, and cannot be.
        """
        if not self._flow.take():
            self._left_out += 1
            self._last = record
            return None
        return await self._append(record)

    async def tell(self, *, is_end: bool = False) -> None:
        """Write down how many were left out, when a record may be written again, or at the end.

        Otherwise the count of a flood that is over would wait for the next stranger, and be lost at
        a restart. The record is that of the last of them.

        Raises:
            AuditUnavailable: it cannot be written; it is counted on.
        """
        if self._last is not None and (is_end or self._flow.take()):
            record, self._last = self._last, None
            self._left_out -= 1
            await self._append(record)

    async def _append(self, record: AuditRecord) -> Receipt:
        left_out, self._left_out, last, self._last = self._left_out, 0, self._last, None
        if left_out:
            detail = {**record.detail, LEFT_OUT: str(left_out)}
            record = structs.replace(record, detail=detail)
        try:
            return await self._audit.append(record)
        except AuditUnavailable:
            # Whoever leaves meanwhile is written down all the same.
            self._left_out += left_out + 1
            self._keep(last or record)
            raise

    def _keep(self, record: AuditRecord) -> None:
        if self._last is None:
            self._last = record
