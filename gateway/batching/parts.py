"""Assembles the parts of files and batches: their routes, and the worker's duties for them."""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from pathlib import Path

from litestar.handlers import HTTPRouteHandler
from msgspec import Struct

from gateway.api.batches import Desk, batch_routes
from gateway.api.door import new_request_id
from gateway.api.files import file_routes
from gateway.api.front import Front
from gateway.api.message_batches import message_batch_routes
from gateway.api.refusals import error_handlers
from gateway.api.uploads import Uploads
from gateway.assembly.wiring import taking_parcels
from gateway.audit.open_intents import OpenIntents
from gateway.audit.writer import SegmentedAuditLog
from gateway.batching.chores import BatchChores
from gateway.batching.forgetting import Forgetting
from gateway.batching.intake import LineIntake
from gateway.batching.lines import LineJourneys
from gateway.batching.loose_ends import LeftByGone, LooseEnds
from gateway.batching.owed import OutcomeOf, Purse
from gateway.batching.parcel_journeys import ParcelJourneys
from gateway.batching.parcel_runner import ParcelRunner, ParcelShare
from gateway.batching.parked_lines import ParkedLines
from gateway.batching.parked_reservations import ParkedReservations
from gateway.batching.pipeline import BatchPipeline
from gateway.batching.remnants import IntentOf, Remnants
from gateway.batching.runner import BatchRunner, Share, Stores
from gateway.clock import DAY_US, Clock
from gateway.configuration.settings import Settings
from gateway.dialects.resources.anthropic_batches import ENDPOINT
from gateway.intake import Stages
from gateway.metrics import Metrics
from gateway.oversight.deeds import Deeds
from gateway.pacing import rhythm
from gateway.pacing.upkeep import Duty
from gateway.parcels import ParcelService
from gateway.ports import AuditLog, Dialect, Provider
from gateway.providers.registry import parcel_service
from gateway.secrets.credentials import master_key
from gateway.snapshot import SnapshotKeeper
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.files import FileStore
from gateway.store.batching.lines import LineStore
from gateway.store.batching.parcels import ParcelStore
from gateway.store.batching.parked_lines import ParkedLineStore
from gateway.store.batching.turns import BatchTurns
from gateway.store.batching.unsent_lines import UnsentLines
from gateway.store.batching.vendor_copies import VendorCopies
from gateway.store.database_clock import DatabaseClock
from gateway.store.engine import Database
from gateway.store.erasure.kept_content import KeptContent
from gateway.store.glance import Waiting
from gateway.store.money.late_bookings import LateBookings
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.parked_money import ParkedMoney, Stake
from gateway.store.money.slices import NO_WINDOW, HeldSlice
from gateway.telemetry import Event
from gateway.types import Reservation


HEADERS = frozenset({b"anthropic-version", b"anthropic-beta"})


class Means(Struct, frozen=True):
    """What batches share with the rest of a worker."""

    settings: Settings
    database: Database
    clock: Clock
    metrics: Metrics
    snapshots: SnapshotKeeper
    waiting: Waiting
    stages: Callable[[], Stages]
    dialects: Mapping[str, Dialect]
    """By endpoint."""
    providers: Mapping[str, Provider]
    ledger: LeasedLedger
    outcome_of: OutcomeOf
    intent_of: IntentOf
    deeds: Deeds
    log: SegmentedAuditLog
    """This worker's own segments."""
    evidence: AuditLog


class Batches:
    """A worker's parts for files and batches."""

    def __init__(self, means: Means) -> None:
        self._means = means
        settings, database, clock = means.settings, means.database, means.clock
        self._master = master_key(settings)
        self._shared = DatabaseClock(database, clock)
        """Used for the ends of leases and for shared work; records have the worker's own time."""
        self._files = FileStore(database, self._master, clock)
        self._batches = BatchStore(database, self._master, clock)
        self._lines = LineStore(database, self._shared)

    async def open(self) -> None:
        """Destroy again erased content that a restored backup brought back.

        Raises:
            StartupRefused: the list of erasures cannot be read.
        """
        means = self._means
        await KeptContent(means.settings, means.database, self._master, means.clock).catch_up()

    @cached_property
    def _journeys(self) -> LineJourneys:
        means = self._means
        stages, takes = means.stages(), taking_parcels(means.settings, means.providers)
        pipeline = BatchPipeline(stages, LineIntake(stages, takes))
        values_max = means.settings.limits.keys_max
        return LineJourneys(pipeline, means.snapshots, means.clock, means.dialects, values_max)

    @cached_property
    def _reservations(self) -> ParkedReservations:
        means = self._means
        purse = Purse(
            LateBookings(means.database, means.clock),
            ParkedMoney(means.database, means.clock, means.ledger.holder),
            partial(stake_of, means.ledger),
        )
        return ParkedReservations(means.ledger, purse, self._shared, means.outcome_of)

    @cached_property
    def _parked(self) -> ParkedLines:
        means = self._means
        return ParkedLines(
            ParkedLineStore(means.database, self._shared),
            self._journeys,
            self._reservations,
            self._shared,
            metrics=means.metrics,
            outcome_of=means.outcome_of,
            remnants=Remnants(
                self._reservations,
                self._shared,
                intent_of=means.intent_of,
                outcome_of=means.outcome_of,
                new_request_id=self._new_request_id,
            ),
        )

    @cached_property
    def _parcels(self) -> ParcelRunner:
        means, settings = self._means, self._means.settings.batches
        worker, holder = self._means.settings.audit.worker, self._runner.holder
        store = ParcelStore(means.database, self._shared)
        forgetting = Forgetting(
            store,
            VendorCopies(means.database, means.clock),
            means.deeds,
            self._shared,
            poll_s=settings.native_poll_s,
        )
        journeys = ParcelJourneys(
            store,
            self._batches,
            self._parked,
            self._reservations,
            self._service,
            self._shared,
            forgetting=forgetting,
            poll_s=settings.native_poll_s,
        )
        return ParcelRunner(
            store,
            journeys,
            self._reservations,
            self._shared,
            share=ParcelShare(worker, holder, settings.native_lines_max),
            wake=self._runner.has_parked,
        )

    @cached_property
    def _loose_ends(self) -> LooseEnds:
        means = self._means
        folder = means.settings.path(means.settings.audit.directory) / means.log.worker
        return self._ends_in(LooseEnds, means.log.open, folder, means.evidence)

    def left_by_gone(self, intents: OpenIntents, folder: Path, audit: AuditLog) -> LooseEnds:
        """What ends the lines of a worker that never came back, whose segments are in `folder`."""
        return self._ends_in(LeftByGone, intents, folder, audit)

    def _ends_in(
        self, kind: type[LooseEnds], intents: OpenIntents, folder: Path, audit: AuditLog
    ) -> LooseEnds:
        means = self._means
        return kind(
            intents,
            folder,
            self._lines,
            UnsentLines(means.database, means.clock),
            self._reservations,
            audit=audit,
            outcome_of=means.outcome_of,
            clock=means.clock,
        )

    def _service(self, provider: str) -> ParcelService | None:
        return parcel_service(self._means.providers.get(provider))

    @cached_property
    def _runner(self) -> BatchRunner:
        means, settings = self._means, self._means.settings
        keep_us = round(settings.batches.keep_days * DAY_US)
        return BatchRunner(
            Stores(self._batches, BatchTurns(means.database, self._shared), self._lines),
            self._journeys,
            BatchChores(
                self._batches, self._lines, self._files, means.clock, settings.limits, keep_us
            ),
            self._shared,
            parked=self._parked,
            metrics=means.metrics,
            share=Share(
                settings.audit.worker, settings.batches.concurrent_lines, self._new_request_id
            ),
        )

    def _new_request_id(self) -> str:
        return new_request_id(self._means.clock.utc_us())

    def _on_time(self, perform: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
        """Run it with the present time of the clock that workers share."""

        async def performed() -> object:
            await self._shared.follow()
            return await perform()

        return performed

    def routes(self, front: Front) -> list[HTTPRouteHandler]:
        """None if the settings switch them off."""
        settings = self._means.settings
        if not settings.batches.enabled:
            return []
        uploads = Uploads(self._files, settings.limits, settings.batches.keep_days)
        visible = {name.encode() for name in settings.policy.headers}
        desk = Desk(
            front, self._batches, self._files, settings.batches, settings.limits, HEADERS | visible
        )
        return [
            *file_routes(desk, uploads),
            *batch_routes(desk, self._runner.wake.set),
            *message_batch_routes(
                desk,
                self._lines,
                self._runner.wake.set,
                error_handlers(self._means.dialects[ENDPOINT]),
                settings.data_plane_url.rstrip("/"),
            ),
        ]

    @property
    def duties(self) -> tuple[Duty, ...]:
        """What is kept is forgotten after its time, even if nothing new is taken in."""
        forgetting = tuple(
            Duty(name, rhythm.EXPIRED_FILES_S, store.forget_expired, Event.UPKEEP_FAILED)
            for name, store in (("files", self._files), ("old batches", self._batches))
        )
        if not self._means.settings.batches.enabled:
            return forgetting
        runner, waiting, failed = self._runner, self._means.waiting, Event.BATCH_FAILED
        lately = partial(waiting.batches_lately, 2 * rhythm.BATCH_LEASES_S)
        parcels, reservations = self._parcels, self._reservations
        on_time = self._on_time
        drop = partial(reservations.drop_ended, self._lines)
        parcels_s = min(rhythm.PARCELS_S, self._means.settings.batches.native_poll_s)
        return (
            *forgetting,
            Duty(
                "batches",
                rhythm.BATCHES_S,
                on_time(runner.tend),
                failed,
                runner.wake,
                waiting.batches,
            ),
            Duty("batch leases", rhythm.BATCH_LEASES_S, on_time(runner.keep), failed, due=lately),
            Duty(
                "parcels", parcels_s, on_time(parcels.tend), failed, parcels.wake, waiting.parcels
            ),
            Duty("loose ends", rhythm.LOOSE_ENDS_S, self._loose_ends.tend, failed),
            Duty(
                "parcel leases",
                rhythm.BATCH_LEASES_S,
                on_time(parcels.keep),
                failed,
                due=waiting.parcels,
            ),
            Duty("parked money", rhythm.BATCH_LEASES_S, drop, failed, due=reservations.holds_any),
        )

    async def close(self) -> None:
        if self._means.settings.batches.enabled:
            await self._runner.close()
            await self._parcels.close()


def stake_of(ledger: LeasedLedger, request_id: str, reservation: Reservation) -> Stake:
    """A parked line's reservation, and its slices."""
    pots = ledger.book.pots(reservation) if reservation.amount_microusd else ()
    slices = [pot for pot in pots if isinstance(pot, HeldSlice)]
    return Stake(
        request_id,
        ledger.holder,
        reservation.amount_microusd,
        reservation.leased_until_us,
        tuple(
            (each.limit.key, each.window_start_us)
            for each in slices
            if each.window_start_us != NO_WINDOW
        ),
    )
