"""The journey of one parcel: handed to its vendor, polled, and its answers fetched.

Each step is recorded before and after it is taken: when a worker dies, another takes the parcel
over, and looks for it at the vendor before it would send it a second time.
"""

import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from msgspec import structs

from gateway.batches import Batch
from gateway.batching.forgetting import (
    ASK_S,
    CANCELS_MAX,
    LOOKS_MIN,
    NEVER_TOLD,
    Forgetting,
    rest_s,
    tell_to_end,
)
from gateway.batching.parcel_results import ENDED_AT_ONCE, At, ParcelResults
from gateway.batching.parked_lines import ParkedLines, Twice
from gateway.batching.parked_reservations import ParkedReservations
from gateway.batching.parking import Ticket
from gateway.batching.steps import insisted
from gateway.batching.unanswered import (
    LOST,
    MAY_COST,
    UNENDED,
    UNKNOWN,
    UNREAD,
    UNTAKEN,
    UNWANTED,
)
from gateway.clock import SECOND_US, Clock
from gateway.errors import GatewrightError, SovereigntyViolation, UpstreamFailed, UpstreamRefused
from gateway.parcels import (
    FULL_STATUSES,
    PARCEL_PREFIX,
    Parcel,
    ParcelLine,
    ParcelService,
    VendorBatch,
    custom_id_of,
    may_have_taken,
)
from gateway.secrets.content_keys import ContentKey
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.parcel_rows import ParcelRow, ParkedLine, TermOver
from gateway.store.batching.parcels import ParcelStore
from gateway.telemetry import Event, logger


SUBMIT_S = 300.0
OVERDUE_S = 26 * 3600.0
"""After this time, a vendor that has not ended a batch is no longer waited for."""
WAITS_MAX = 6
"""How often a parcel waits for a vendor without room before its lines are sent one by one."""
RESENDS_MAX = 6
"""How often a parcel is sent again that its vendor may have received but never showed."""
_MISSING: Final = "missing"
SETTLING_S = 5.0
"""How long until an earlier process's log entries can be found in the database."""


class ParcelJourneys:
    """Moves parcels on, one step at a time."""

    def __init__(
        self,
        store: ParcelStore,
        batches: BatchStore,
        lines: ParkedLines,
        reservations: ParkedReservations,
        services: Callable[[str], ParcelService | None],
        clock: Clock,
        *,
        forgetting: Forgetting,
        poll_s: float,
    ) -> None:
        self._store = store
        self._batches = batches
        self._lines = lines
        self._reservations = reservations
        self._services = services
        self._clock = clock
        self._forgetting = forgetting
        self._poll_s = poll_s
        self._settled: set[str] = set()
        """Parcels whose half-ended lines can now be told apart."""
        self._in_vain = forgetting.in_vain
        self._results = ParcelResults(lines, self._in_vain, clock)
        self._log: Any = logger()

    async def advance(self, row: ParcelRow) -> None:
        """Take a parcel's next step; raises TermOver if another worker leads it by now."""
        batch = await self._batches.led(row.batch_id)
        key = await self._batches.content_key(batch) if batch is not None else None
        service = self._services(row.provider)
        if row.state == "collected" or batch is None or key is None:
            self._settled.discard(row.parcel_id)
            await self._forgetting.step(row, service)
        elif service is None:
            await self._give_back(row, batch, key, UNKNOWN if row.state == "new" else UNREAD)
            await self._forgetting.step(row, service)
        else:
            await self._steps[row.state](self, At(row, batch, key, service))

    async def _submit(self, at: At) -> None:
        row = at.row
        if row.is_erased:
            # Erased lines are no longer among its lines, and were never sent.
            await self._forgetting.end(row, "unsent")
            await self._note(row, is_erased=0)
        numbers = await self._store.numbers(row.parcel_id)
        if not numbers or not at.is_wanted or any(numbers.values()):
            # What is about to end was refused, and is perhaps recorded as such.
            await self._give_back(row, at.batch, at.key, UNTAKEN)
            await self._forgetting.drop(row, "unsent")
            return
        held = await self._lines.hold(at.batch, at.key, row, list(numbers))
        if not held:
            await self._forgetting.drop(row, "unsent")
            return
        name = row.parcel_id
        held, others = _alike(held)
        parcel = _parcel_of(row, held)
        # From here on bytes may have been sent: whoever finds it in this state asks the vendor
        # first.
        due_us, count = self._in_us(SUBMIT_S), len(held)
        if not await self._store.begin_sending(name, row.term, count, due_us, others):
            return
        left_s = (due_us - self._clock.utc_us()) / SECOND_US
        if left_s <= 0:
            # This worker was away: another one may be looking for the parcel by now.
            raise TermOver
        try:
            vendor_id = await at.service.submit(parcel, min(left_s, SUBMIT_S))
        except UpstreamRefused as error:
            await self._refused(at, error)
        except SovereigntyViolation as error:
            await self._give_back(row, at.batch, at.key, error)
            await self._forgetting.drop(row, "unsent")
        except UpstreamFailed:
            await self._note(row, due_us=self._in_us(self._poll_s))
        else:
            await self._sent(at, held, vendor_id)

    async def _sent(
        self, at: At, held: Sequence[tuple[ParkedLine, Ticket]], vendor_id: str
    ) -> None:
        """Note that a vendor has it, even if this worker was paused just before and overtaken."""
        row, due_us = structs.replace(at.row, lines=len(held)), self._in_us(self._poll_s)
        try:
            await self._note(row, state="submitted", vendor_id=vendor_id, due_us=due_us)
        except TermOver:
            if not await insisted(lambda: self._store.found_late(row, vendor_id)):
                await self._sent_twice(structs.replace(at, row=row), held, vendor_id)
            raise
        self._log.info(Event.BATCH_HANDED, batch=row.batch_id, count=row.lines)

    async def _sent_twice(
        self, at: At, held: Sequence[tuple[ParkedLine, Ticket]], vendor_id: str
    ) -> None:
        """Pay for a second copy: nobody else will know about it, so each step may be repeated."""
        row, organisation, now_us = at.row, at.batch.project.organisation, self._clock.utc_us()
        cost_microusd = await insisted(
            lambda: self._reservations.pay_twice(row.parcel_id, held, now_us)
        )
        await insisted(lambda: self._store.follow_stray(row, vendor_id))
        for line, ticket in held:
            # One at a time, so that what is already written for some is not repeated for the rest.
            name = custom_id_of(row.parcel_id, line.line.number)
            twice = Twice(name, at.batch, line, ticket, vendor_id, now_us)
            await insisted(partial(self._lines.tell_twice, twice))
        await insisted(
            lambda: self._forgetting.sent_twice(row, organisation, vendor_id, cost_microusd)
        )

    async def _refused(self, at: At, error: UpstreamRefused) -> None:
        row, status = at.row, error.upstream_status
        if status in FULL_STATUSES and row.tries < WAITS_MAX:
            await self._again(row, state="new", after_s=error.retry_after_s)
        elif may_have_taken(status):
            await self._note(row, due_us=self._in_us(self._poll_s))
        else:
            # It will not take this parcel: its lines are sent one by one.
            await self._give_back(row, at.batch, at.key, error)
            await self._forgetting.drop(row, "unsent")

    async def _find(self, at: At) -> None:
        """Ask whether the vendor has a parcel whose sending was interrupted."""
        row = at.row
        try:
            found = await at.service.find(row.parcel_id, row.lines, row.made_us, ASK_S)
        except UpstreamFailed:
            if self._is_overdue(row):
                await self._give_back(row, at.batch, at.key, UNREAD)
                await self._forgetting.drop(row, "kept", NEVER_TOLD)
            else:
                await self._again(row)
            return
        if found is not None:
            now_us = self._clock.utc_us()
            vendor_id = found.vendor_id
            await self._note(row, state="submitted", vendor_id=vendor_id, tries=0, due_us=now_us)
        elif not self._in_vain.is_enough(row.parcel_id, row.state, LOOKS_MIN):
            await self._again(row)
        elif row.resent < RESENDS_MAX:
            # Under a new name, so that two answers can never be confused.
            due_us = self._in_us(rest_s(self._poll_s, row.resent))
            await self._store.renamed(row.parcel_id, new_name(), row.term, due_us)
            self._in_vain.forget(row.parcel_id)
        else:
            await self._give_back(row, at.batch, at.key, UNTAKEN)
            await self._forgetting.drop(row, "unsent")

    async def _look(self, at: At) -> None:
        row = at.row
        try:
            batch = await at.service.look(row.vendor_id, ASK_S)
        except UpstreamRefused as error:
            if error.upstream_status not in (404, 410) or not self._is_missing(row):
                await self._wait(at)
                return
            batch = VendorBatch(row.vendor_id, "gone")
        except UpstreamFailed:
            await self._wait(at)
            return
        else:
            # It is asked hundreds of times a day: scattered failures must not add up.
            self._in_vain.went_well(row.parcel_id, _MISSING)
        if batch.state == "under_way":
            if row.state == "cancelling":
                await tell_to_end(at.service, row.vendor_id)
            await self._wait(at)
        elif batch.state == "ended":
            await self._collect(at, batch)
        else:
            why = LOST if batch.state == "failed" else UNREAD
            await self._give_back(row, at.batch, at.key, why)
            self._in_vain.forget(row.parcel_id)
            await self._note(row, state="collected", tries=0, due_us=self._clock.utc_us())

    def _is_missing(self, row: ParcelRow) -> bool:
        """Whether a batch that its vendor had accepted was missing at several looks.

        One look says little: a new batch may not be known to all of the vendor's servers yet.
        """
        return self._in_vain.is_enough(row.parcel_id, _MISSING, LOOKS_MIN)

    async def _wait(self, at: At) -> None:
        """Ask again later; cancel a batch that is no longer wanted."""
        row = at.row
        is_unwanted = row.is_erased or not at.is_wanted
        if row.state == "submitted" and (is_unwanted or self._is_overdue(row)):
            await self._note(row, state="cancelling", tries=0, due_us=self._clock.utc_us())
        elif row.state == "cancelling" and row.tries >= CANCELS_MAX:
            if count := await self._give_back(row, at.batch, at.key, UNENDED):
                await self._forgetting.never_ended(row, at.batch.project.organisation, count)
            # It is no longer told to end.
            await self._note(row, state="collected", tries=CANCELS_MAX, due_us=self._in_us(0.0))
        else:
            await self._again(row)

    async def _collect(self, at: At, batch: VendorBatch) -> None:
        """Read results, each once; lines that have none in the end are sent one by one."""
        row = at.row
        left = await self._store.numbers(row.parcel_id)
        if any(left.values()) and row.parcel_id not in self._settled:
            self._settled.add(row.parcel_id)
            await self._note(row, due_us=self._in_us(SETTLING_S))
            return
        why = await self._results.read(at, batch, left)
        if left and why is None:
            await self._again(row)
            return
        await self._give_back(row, at.batch, at.key, why or LOST)
        self._in_vain.forget(row.parcel_id)
        await self._note(row, state="collected", tries=0, due_us=self._clock.utc_us())
        self._log.info(Event.BATCH_FETCHED, batch=row.batch_id, count=row.lines - len(left))

    async def _give_back(
        self, row: ParcelRow, batch: Batch, key: ContentKey, error: GatewrightError
    ) -> int:
        """Send lines without an answer one by one, or end them with the batch."""
        numbers = list(await self._store.numbers(row.parcel_id))
        if batch.state != "in_progress" and error not in MAY_COST:
            error = UNWANTED
        for some in _chunks(numbers):
            await self._lines.end(batch, key, row, dict.fromkeys(some, error))
        return len(numbers)

    async def _again(self, row: ParcelRow, state: str = "", after_s: float | None = None) -> None:
        due_us = self._in_us(max(rest_s(self._poll_s, row.tries), after_s or 0.0))
        await self._note(row, state=state or row.state, tries=row.tries + 1, due_us=due_us)

    async def _note(self, row: ParcelRow, **values: Any) -> None:
        await self._store.note(row.parcel_id, row.term, **values)

    def _is_overdue(self, row: ParcelRow) -> bool:
        return row.made_us <= self._in_us(-OVERDUE_S)

    def _in_us(self, seconds: float) -> int:
        return self._clock.utc_us() + round(seconds * SECOND_US)

    _steps = {  # noqa: RUF012 - methods, as read-only as they are
        "new": _submit,
        "submitting": _find,
        "submitted": _look,
        "cancelling": _look,
    }


def _alike(
    held: list[tuple[ParkedLine, Ticket]],
) -> tuple[list[tuple[ParkedLine, Ticket]], list[int]]:
    """Lines that can go together, and the numbers of those that cannot.

    Models may take tools only in another dialect, and a vendor's batch has a single dialect.
    """
    dialect = held[0][1].dialect
    alike = [each for each in held if each[1].dialect == dialect]
    return alike, [line.line.number for line, ticket in held if ticket.dialect != dialect]


def _parcel_of(row: ParcelRow, held: Sequence[tuple[ParkedLine, Ticket]]) -> Parcel:
    name = row.parcel_id
    lines = tuple(
        ParcelLine(custom_id_of(name, line.line.number), ticket.call(SUBMIT_S))
        for line, ticket in held
    )
    return Parcel(name, row.made_us, lines)


def new_name() -> str:
    """A new name under which a vendor knows a parcel."""
    return f"{PARCEL_PREFIX}{secrets.token_hex(12)}"


def _chunks(numbers: list[int]) -> Iterable[list[int]]:
    return (numbers[at : at + ENDED_AT_ONCE] for at in range(0, len(numbers), ENDED_AT_ONCE))
