"""Gathers parked lines into parcels, and moves each parcel on while this worker leads it."""

import asyncio
from typing import Any

from msgspec import Struct

from gateway.batching.parcel_journeys import ParcelJourneys, new_name
from gateway.batching.parked_reservations import ParkedReservations
from gateway.batching.steps import Steps, given_up
from gateway.clock import SECOND_US, Clock
from gateway.secrets.content_keys import KeyClosed
from gateway.store.batching.parcel_rows import Loose, ParcelRow, TermOver
from gateway.store.batching.parcels import ParcelStore
from gateway.telemetry import Event, logger


GATHER_S = 300.0
"""The longest time that a line waits for others to go with it."""
PARCEL_BYTES_MAX = 16 * 1024 * 1024
PARCELS_MAX = 4
"""How many one worker moves at once."""
CLOSED_REST_S = 60.0
"""How often to check whether a batch's key can be opened again."""


class ParcelShare(Struct, frozen=True):
    """The worker that moves parcels, and its limits."""

    worker: str
    holder: str
    lines_max: int


class ParcelRunner:
    """One worker's share of all parcels."""

    def __init__(
        self,
        store: ParcelStore,
        journeys: ParcelJourneys,
        reservations: ParkedReservations,
        clock: Clock,
        *,
        share: ParcelShare,
        wake: asyncio.Event,
    ) -> None:
        self._store = store
        self._journeys = journeys
        self._reservations = reservations
        self._clock = clock
        self._share = share
        self._holder = share.holder
        self.wake = wake
        self._moving = Steps(wake)
        self._has_begun = False
        self._log: Any = logger()

    async def tend(self) -> None:
        """Continue with everything that can continue now."""
        if not self._has_begun:
            await self._store.take_over(self._share.worker, self._holder)
            self._has_begun = True
        self._moving.tidy()
        old_us = self._clock.utc_us() - round(GATHER_S * SECOND_US)
        for loose in await self._store.loose(self._holder, old_us):
            if self._is_full(loose) or loose.is_all or loose.oldest_us <= old_us:
                await self._gather(loose)
        for row in await self._store.due(self._holder, 2 * PARCELS_MAX):
            if row.parcel_id in self._moving or len(self._moving) >= PARCELS_MAX:
                continue
            taken = await self._store.take(row.parcel_id, self._holder)
            if taken is not None:
                self._moving.begin(taken.parcel_id, taken.batch_id, self._lead(taken))

    async def keep(self) -> None:
        """Signal that this worker is alive."""
        await self._store.keep(self._holder)

    async def close(self) -> None:
        """Leave parcels where they are; the next worker continues with them."""
        await self._moving.cancel()
        await self._reservations.let_go()
        await given_up(self._leave())

    async def _leave(self) -> None:
        await self._store.keep(self._holder, is_leaving=True)

    def _is_full(self, loose: Loose) -> bool:
        return loose.count >= self._share.lines_max or loose.size_bytes >= PARCEL_BYTES_MAX

    async def _gather(self, loose: Loose) -> None:
        name = new_name()
        lines_max = self._share.lines_max
        await self._store.make(name, loose, self._holder, lines_max, PARCEL_BYTES_MAX)

    async def _lead(self, row: ParcelRow) -> None:
        """The next step of one parcel, as long as this worker is the one that takes it."""
        try:
            await self._advance(row)
        except TermOver:
            # This worker was away for longer than its lease: whoever took over continues.
            self._log.warning(Event.BATCH_TAKEN_OVER, batch=row.batch_id, count=row.lines)

    async def _advance(self, row: ParcelRow) -> None:
        try:
            await self._journeys.advance(row)
        except KeyClosed:
            # The reader of the batch's row has logged it, once; the parcel waits for the right key.
            due_us = self._clock.utc_us() + round(CLOSED_REST_S * SECOND_US)
            await self._store.note(row.parcel_id, row.term, due_us=due_us)
