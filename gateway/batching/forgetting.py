"""Has vendors delete parcels, and records what became of each parcel with erased lines.

A parcel is forgotten here when its vendor has deleted it, never had it, or cannot be made to delete
it. One whose batch was erased is cancelled and deleted first, like one whose answers were read.
"""

from contextlib import suppress
from http import HTTPStatus
from typing import Final

from gateway.batching.in_vain import InVain
from gateway.clock import SECOND_US, Clock
from gateway.errors import UpstreamFailed, UpstreamRefused
from gateway.oversight.deeds import Deeds
from gateway.parcels import ParcelService, VendorBatch
from gateway.store.batching.parcel_rows import ParcelRow
from gateway.store.batching.parcels import ParcelStore
from gateway.store.batching.vendor_copies import CopyEnd, VendorCopies


ASK_S: Final = 30.0
SLOWEST: Final = 20.0
"""How much longer the pauses between requests to a vendor become in the end."""
LOOKS_MIN: Final = 2
"""After so many looks in vain, the vendor never had the parcel."""
CANCELS_MAX: Final = 12
"""How often a vendor is told to end a batch; after that it is only asked whether it has ended."""
REFUSALS_MAX: Final = 5
"""How often a reachable vendor must refuse a delete before it is believed."""
GIVEN_UP_AFTER_S: Final = 30 * 86_400.0
ACTOR: Final = "gateway"
NEVER_TOLD: Final = "the vendor did not say in time whether it has it"
NOT_THERE: Final = "its provider is not configured any more, so it cannot be asked"
NOT_REACHED: Final = "the vendor could not be asked for thirty days"
NEVER_ENDED: Final = "the vendor did not end it in thirty days, and deletes nothing before"
_MAY_CHANGE: Final = frozenset({401, 403, 408, 409, 425, 429})
"""Refusals that may change with time or by an operator's help."""
_GONE: Final = frozenset({404, 410})
_TRIES_COUNTED: Final = 16


def rest_s(poll_s: float, tries: int) -> float:
    """How long a vendor is left alone."""
    return float(poll_s * min(2.0 ** min(tries, _TRIES_COUNTED), SLOWEST))


async def tell_to_end(service: ParcelService, vendor_id: str) -> None:
    """The answer does not matter: only a look shows whether the batch is over, or gone."""
    with suppress(UpstreamFailed):
        await service.cancel(vendor_id, ASK_S)


class Forgetting:
    """For one worker's share of all parcels."""

    def __init__(
        self,
        store: ParcelStore,
        copies: VendorCopies,
        deeds: Deeds,
        clock: Clock,
        *,
        poll_s: float,
    ) -> None:
        self._store = store
        self._copies = copies
        self._deeds = deeds
        self._clock = clock
        self._poll_s = poll_s
        self.in_vain = InVain()
        """Also for parcels on their way: this process may keep asking for one that is no longer
        wanted."""

    async def step(self, row: ParcelRow, service: ParcelService | None) -> None:
        """The next step for a parcel whose answers nobody waits for."""
        if row.state == "new":
            await self.drop(row, "unsent")
        elif service is None:
            await self.drop(row, "kept", NOT_THERE)
        elif row.state == "submitting":
            await self._find(row, service)
        elif row.state == "collected":
            await self._delete(row, service)
        else:
            await self._cancel(row, service)

    async def drop(self, row: ParcelRow, state: CopyEnd, note: str = "") -> None:
        """Forget a parcel after its end was recorded."""
        await self.end(row, state, note)
        # What was being sent when this step began, and was looked for in vain, was not refused.
        is_refused = state == "unsent" and row.state == "new"
        await self._store.forget(row.parcel_id, row.term, is_refused=is_refused)
        self.in_vain.forget(row.parcel_id)

    async def end(self, row: ParcelRow, state: CopyEnd, note: str = "") -> None:
        """Record the ends of erased lines; raises AuditUnavailable, and may be called again."""
        for copy in await self._copies.open_of(row.parcel_id):
            await self._deeds.record(
                ACTOR,
                f"erasure.vendor_{state}",
                copy.organisation,
                case=copy.case_id,
                provider=copy.provider,
                vendor_batch=row.vendor_id,
                parcel=row.parcel_id,
                lines=str(copy.lines),
                note=note,
            )
        await self._copies.end(row.parcel_id, state, row.vendor_id, note)

    async def sent_twice(
        self, row: ParcelRow, organisation: str, vendor_id: str, cost_microusd: int
    ) -> None:
        """Record that a vendor has lines a second time; raises AuditUnavailable."""
        await self._deeds.record(
            ACTOR,
            "batch.sent_twice",
            organisation,
            batch=row.batch_id,
            provider=row.provider,
            vendor_batch=vendor_id,
            parcel=row.parcel_id,
            lines=str(row.lines),
            cost_microusd=str(cost_microusd),
        )

    async def never_ended(self, row: ParcelRow, organisation: str, lines: int) -> None:
        """Record that nobody waits for these lines any more; raises AuditUnavailable."""
        await self._deeds.record(
            ACTOR,
            "batch.never_ended",
            organisation,
            batch=row.batch_id,
            provider=row.provider,
            vendor_batch=row.vendor_id,
            parcel=row.parcel_id,
            lines=str(lines),
        )

    async def _find(self, row: ParcelRow, service: ParcelService) -> None:
        """Ask whether the vendor has a parcel whose sending was interrupted."""
        try:
            found = await service.find(row.parcel_id, row.lines, row.made_us, ASK_S)
        except UpstreamFailed:
            await self._later(row, NEVER_TOLD)
            return
        if found is not None:
            await self._next(row, "cancelling", vendor_id=found.vendor_id)
        elif self.in_vain.is_enough(row.parcel_id, row.state, LOOKS_MIN):
            await self.drop(row, "unsent")
        else:
            await self._later(row, NEVER_TOLD)

    async def _cancel(self, row: ParcelRow, service: ParcelService) -> None:
        if row.state == "submitted":
            # In the next state, tries are counted from the start.
            await self._next(row, "cancelling")
            return
        given_up = NEVER_ENDED
        try:
            is_over = (await self._told_to_end(row, service)).state != "under_way"
        except UpstreamFailed as error:
            is_over, given_up = _is_gone(error), NOT_REACHED
        if is_over:
            await self._next(row, "collected")
        else:
            await self._later(row, given_up)

    async def _told_to_end(self, row: ParcelRow, service: ParcelService) -> VendorBatch:
        """Its state; while the vendor works on it, it is told to end, since nothing can be deleted.

        After too many times, a vendor that does not obey is only asked now and then whether it has
        ended.
        """
        batch = await service.look(row.vendor_id, ASK_S)
        if batch.state == "under_way" and row.tries < CANCELS_MAX:
            await tell_to_end(service, row.vendor_id)
        return batch

    async def _delete(self, row: ParcelRow, service: ParcelService) -> None:
        """Delete what the vendor has: nothing of ours stays there longer than it must."""
        try:
            batch = await self._told_to_end(row, service)
            if batch.state == "under_way":
                await self._later(row, NEVER_ENDED)
                return
            await service.tidy(batch, ASK_S)
        except UpstreamFailed as error:
            refused_with = _refused_with(error)
            if _is_gone(error):
                await self.drop(row, "deleted")
            elif refused_with and self.in_vain.is_enough(row.parcel_id, row.state, REFUSALS_MAX):
                await self.drop(row, "kept", f"the vendor refused with {refused_with}")
            else:
                await self._later(row, NOT_REACHED)
        else:
            await self.drop(row, "deleted", service.remains)

    async def _later(self, row: ParcelRow, given_up: str) -> None:
        """Try again after a pause, or give up after thirty days."""
        if row.made_us <= self._in_us(-GIVEN_UP_AFTER_S):
            await self.drop(row, "kept", given_up)
            return
        due_us = self._in_us(rest_s(self._poll_s, row.tries))
        await self._note(row, state=row.state, tries=row.tries + 1, due_us=due_us)

    async def _next(self, row: ParcelRow, state: str, **values: str) -> None:
        due_us = self._clock.utc_us()
        await self._note(row, state=state, tries=0, due_us=due_us, **values)

    async def _note(self, row: ParcelRow, **values: str | int) -> None:
        await self._store.note(row.parcel_id, row.term, **values)

    def _in_us(self, seconds: float) -> int:
        return self._clock.utc_us() + round(seconds * SECOND_US)


def _is_gone(error: UpstreamFailed) -> bool:
    return isinstance(error, UpstreamRefused) and error.upstream_status in _GONE


def _refused_with(error: UpstreamFailed) -> int:
    """The status of a vendor's lasting refusal; 0 if it only cannot do it now."""
    if not isinstance(error, UpstreamRefused):
        return 0
    status = error.upstream_status
    is_callers = status // 100 == 4 and status not in _MAY_CHANGE  # noqa: PLR2004
    return status if is_callers or status == HTTPStatus.NOT_IMPLEMENTED else 0
