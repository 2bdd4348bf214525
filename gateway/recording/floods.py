"""Records refusals: each one if they are few, and only their number in a flood.

Anybody can be refused as often as they like, with a key or without, and records are kept for years:
thousands a second would fill the disk, and with a full disk nobody is served.
"""

from msgspec import structs

from gateway.clock import Clock
from gateway.errors import AuditUnavailable
from gateway.pacing.flow import Flow
from gateway.ports import AuditLog
from gateway.types import AuditRecord, Receipt


STRANGERS_AT_ONCE_MAX = 1000
STRANGERS_PER_SECOND_MAX = 5.0
"""For all callers without a valid key. A day of nothing else makes some 430,000 records per
worker."""
ALIKE_AT_ONCE_MAX = 200
ALIKE_PER_SECOND_MAX = 0.2
"""For one key, with one error and one data class. There are some thirty such kinds, so that all
refusals of one key may fill about as much of the record as those of all strangers."""
LEFT_OUT = "left_out"
"""In a record: how many earlier refusals like it have no record of their own."""

Kind = tuple[str, str, str]


class Flood:
    """Refusals of one kind."""

    def __init__(self, audit: AuditLog, flow: Flow) -> None:
        self._audit = audit
        self._flow = flow
        self._left_out = 0
        self._last: AuditRecord | None = None
        """The last of those that were left out."""

    async def note(self, record: AuditRecord) -> Receipt | None:
        """Record a refusal; None if it is only counted.

        Raises:
            AuditUnavailable: it should be recorded, and cannot be.
        """
        if not self._flow.take():
            self._left_out += 1
            self._last = record
            return None
        return await self._append(record)

    async def tell(self, *, is_end: bool) -> None:
        """Record how many were left out, once a record may be written again, or at the end.

        Otherwise the count of a flood that is over would wait for the next refusal, and be lost at
        a restart. The record is that of the last refusal left out.

        Raises:
            AuditUnavailable: it cannot be written; counting goes on.
        """
        if self._last is not None and (is_end or self._flow.take()):
            record, self._last = self._last, None
            self._left_out -= 1
            await self._append(record)

    @property
    def is_over(self) -> bool:
        """Whether the state is as if there had been no flood."""
        return self._last is None and self._flow.is_full

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


class Floods:
    """Records refusals: those of strangers together, those of a key by kind.

    A frequent refusal of a key does not hide another one: another error, or the same one for more
    sensitive data, is of another kind.
    """

    def __init__(self, audit: AuditLog, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        strangers = Flow(clock, STRANGERS_AT_ONCE_MAX, STRANGERS_PER_SECOND_MAX)
        self._strangers = Flood(audit, strangers)
        self._alike: dict[Kind, Flood] = {}

    async def note(self, record: AuditRecord) -> Receipt | None:
        """See `Flood.note`."""
        return await self._flood_of(record).note(record)

    async def tell(self, *, is_end: bool = False) -> None:
        """See `Flood.tell`, for everybody's refusals that were left out."""
        await self._strangers.tell(is_end=is_end)
        for kind, flood in list(self._alike.items()):
            await flood.tell(is_end=is_end)
            if flood.is_over:
                del self._alike[kind]

    def _flood_of(self, record: AuditRecord) -> Flood:
        if not record.key_id:
            return self._strangers
        kind = (record.key_id, record.error, record.data_class)
        if (flood := self._alike.get(kind)) is None:
            flow = Flow(self._clock, ALIKE_AT_ONCE_MAX, ALIKE_PER_SECOND_MAX)
            flood = self._alike[kind] = Flood(self._audit, flow)
        return flood
