"""The composition root: settings → services → application. The only place where parts meet.

Nothing runs at import. `DataPlane` builds every object by constructor injection, starts the
services that run by themselves in order, and stops them in the opposite order.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import cached_property

from gateway.api.application import Application, build_application
from gateway.api.conversations import kept_routes
from gateway.api.front import Front
from gateway.assembly.apart import Apart, make_apart
from gateway.assembly.configured_policy import load_policy
from gateway.assembly.endpoints import ENDPOINTS, make_doors
from gateway.assembly.places import Rotation, make_alerting, make_cache, make_callers, make_rates
from gateway.assembly.wiring import (
    make_audit_log,
    make_egress,
    make_erasures,
    make_evidence,
    make_ledger,
    make_providers,
    make_threads,
    visible_headers,
)
from gateway.background.pipeline import BackgroundPipeline
from gateway.batching.parts import Batches, Means
from gateway.caching.answering import CachingAnswers
from gateway.caching.response_cache import ResponseCache
from gateway.caching.vectors import Vectors
from gateway.clock import Clock, SystemClock
from gateway.conclusion import Conclusion
from gateway.configuration.settings import Settings
from gateway.counting import Counting
from gateway.dialects.registry import DIALECTS
from gateway.dialects.token_count import count_input_tokens
from gateway.dispatch.cascading import Cascade
from gateway.dispatch.dispatcher import Dispatcher
from gateway.dispatch.health import TargetHealth
from gateway.identity import Peppers
from gateway.inspection.inspector import make_inspector
from gateway.intake import Stages
from gateway.metrics import Metrics
from gateway.money.calibration import Calibration
from gateway.oversight.deeds import Deeds, LateDeeds
from gateway.pacing.patience import patience
from gateway.pacing.turns import Turns
from gateway.pacing.upkeep import Duty, Upkeep
from gateway.pipeline import Pipeline
from gateway.pool.parity import Parity
from gateway.providers.registry import engines_among, model_hosts, pools_among
from gateway.rollout.trials import Trials
from gateway.rollout.versions import PolicySet
from gateway.secrets.credentials import all_peppers, master_key
from gateway.snapshot import SnapshotKeeper
from gateway.store.database_clock import DatabaseClock
from gateway.store.engine import open_database
from gateway.store.evidence.integration import Integration
from gateway.store.identity.keys import KeyStore
from gateway.store.money.rate_limits import RateLimitTable
from gateway.store.policies.documents import PolicyStore
from gateway.store.policies.guard import CanaryGuard
from gateway.store.pool_drains import DrainKeeper, DrainTable
from gateway.store.revisions import RevisionWatcher
from gateway.store.schema.version import require_permitted_schema
from gateway.store.sealing.right_keys import require_right_keys
from gateway.store.traffic.archive import DecisionArchive
from gateway.store.workers import WorkerTable
from gateway.telemetry import Event, logger
from gateway.worker.duties import Tended, duties_of
from gateway.worker.following import Board, ErasedAnswers, Following
from gateway.worker.presence import Parts, Presence
from gateway.worker.pricing import configured_targets, watched_prices
from gateway.worker.probing import Prober
from gateway.worker.soundness import Soundness
from gateway.worker.standing import Seen, Standing


class DataPlane:
    """One worker: every part of it, and its life from start to close."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        drain_log: Callable[[], None] = lambda: None,
    ) -> None:
        """Build and check everything; opens no file, socket or database yet.

        Raises:
            ConfigurationInvalid: with the file, the key and the reason.
        """
        self._settings = settings
        self._clock = clock = clock or SystemClock()
        self._log, self._drain_log = logger(), drain_log
        self.metrics = Metrics()
        self._peppers = Peppers(all_peppers(settings), settings.secrets.pepper_version)
        self._database = open_database(settings.database_url)
        self._egress = make_egress(settings)
        self._providers = make_providers(settings, self._egress, clock.monotonic_s)
        self._hosts = model_hosts(self._providers)
        self._drains = DrainKeeper(DrainTable(self._database, clock), pools_among(self._providers))
        self._watcher = RevisionWatcher(self._database, clock, worker=settings.audit.worker)
        self._prober = Prober(
            self._providers,
            hosts=self._hosts,
            targets=configured_targets(settings),
            publish=self._publish_board,
        )
        self._prices = watched_prices(settings, self._prober.retarget, self._database, clock)
        policies = PolicySet(load_policy(settings), visible_headers=visible_headers(settings))
        self.snapshots = SnapshotKeeper(policies, self._prober.board(), self._watcher.age_s)
        self._callers = make_callers(settings, self._egress, self.snapshots, clock, self.metrics)
        self._policies = PolicyStore(self._database, clock)
        self._trials, self._health = Trials(settings.policy.guard), TargetHealth()
        self._turns, self._audit = Turns(), make_audit_log(settings, clock)
        late = LateDeeds(Deeds(self._audit, clock), clock)
        self._guard = CanaryGuard(self._trials, self._policies, self.snapshots, late)
        self._evidence = make_evidence(settings, self._audit, self._database, clock)
        self._integration = self._make_integration()
        self._erasures = make_erasures(settings, self._integration, self._evidence, clock)
        self._archive = DecisionArchive(self._integration.sink, self._policies)
        self._ledger = make_ledger(settings, self._database, clock)
        self._rates = make_rates(settings, clock)
        self._alerting = make_alerting(settings, self._egress, self._database, clock)
        self._rotation = self._make_rotation()
        self._inspector = make_inspector(settings, clock)
        self._calibration = Calibration(count_input_tokens)
        self._shared = DatabaseClock(self._database, clock)
        self._threads = make_threads(settings, self._database, clock, self._shared)
        self._presence = self._make_presence()
        self._board = Board(self._prober, self.snapshots, self._health, self._policies)
        self._following = self._make_following()
        seen = (self.snapshots, self._health, self._audit, self._integration, self._ledger)
        self.metrics.registry.register(
            Standing(
                Seen(*seen, self._rotation, clock, self._erasures, pools_among(self._providers))
            )
        )
        self._upkeep = Upkeep(self._duties())

    def application(self) -> Application:
        """The ASGI application of this worker's listener."""
        counts = Counting(self._stages(), providers=self._providers, calibration=self._calibration)
        stages = self._stages()
        pipeline = Pipeline(stages)
        doors = make_doors(
            pipeline,
            counts,
            BackgroundPipeline(stages, *self._apart, self.snapshots.current),
            snapshots=self.snapshots,
            clock=self._clock,
            metrics=self.metrics,
            limits=self._settings.limits,
            turns=self._turns,
        )
        front = Front(
            snapshots=self.snapshots,
            peppers=self._peppers,
            clock=self._clock,
            metrics=self.metrics,
            dialect=DIALECTS["openai_chat"],
            by_header={"anthropic-version": DIALECTS["anthropic_messages"]},
            readiness=(self._soundness.audit_reason, self._watcher.problem),
            draining=self._drains.under_way,
            archive=self._archive,
            callers=self._callers,
        )
        limits, followers = self._settings.limits, self._apart.followers
        kept = kept_routes(front, self._threads, pipeline.intake, limits, followers)
        routes = [*kept, *self._batches.routes(front)]
        return build_application(doors, front, routes, [self.start], [self.close])

    async def start(self) -> None:
        """Open what must be open before the first request.

        Raises:
            StartupRefused: the schema does not fit, a key is not the one of this database, or
                another worker writes to the same audit folder.
        """
        if newer := await require_permitted_schema(self._database):
            self._log.warning(Event.SCHEMA_NEWER, component="data_plane", reason=newer)
        await require_right_keys(self._settings, self._database, self._clock)
        await self._prices.start()
        with patience():
            # Before a segment is begun: one that is left over would contradict what was numbered.
            await self._integration.require_what_was_numbered()
        await self._audit.start()
        with patience():
            await self._integration.open()
            await self._batches.open()
            await self._erasures.catch_up()
        await self._ledger.start()
        await self._rotation.refresh()
        with patience():
            await self._policies.keep(self.snapshots.policies.base)
            await self._board.keep()
        await self._following.publish()
        with patience():
            await self._presence.arrive()
        self._upkeep.start()
        self._inspector.warm()

    def say_started(self, url: str) -> None:
        """Log that callers are answered at this address from now on."""
        self._log.info(
            Event.PROCESS_STARTED,
            component="data_plane",
            worker=self._settings.audit.worker,
            url=url,
            count=len(self._prober.board().targets),
        )

    def say_leaving(self) -> None:
        """This worker is told to end: begin no more background answers, but still serve callers."""
        self._apart.runner.begin_no_more()

    async def close(self) -> None:
        """Release everything; what was recorded stays recorded.

        Each part is closed even if an earlier one fails, in the opposite order of this list.
        """
        async with AsyncExitStack() as parts:
            # This runs last: the signal that ends the process leaves no time for it afterwards.
            parts.callback(self._drain_log)
            if self._upkeep.was_started:
                parts.callback(self._log.info, Event.PROCESS_STOPPED, component="data_plane")
            parts.push_async_callback(self._database.close)
            parts.push_async_callback(self._egress.close)
            for provider in self._providers.values():
                parts.push_async_callback(provider.close)
            parts.callback(self._inspector.close)
            parts.push_async_callback(self._ledger.close)
            parts.push_async_callback(self._rates.close)
            parts.push_async_callback(self._cache.close)
            if self._upkeep.was_started:
                # A refused start leaves the database alone: it may be of another schema.
                parts.push_async_callback(self._integration.drain)
            parts.push_async_callback(self._evidence.close)
            if self._upkeep.was_started:
                parts.push_async_callback(self._conclusion.floods.tell, is_end=True)
            parts.push_async_callback(self._presence.leave)
            parts.push_async_callback(self._batches.close)
            parts.push_async_callback(self._upkeep.close)
            # This runs first: until the answers have ended, their leases are renewed.
            parts.push_async_callback(self._apart.runner.close)

    def _make_integration(self) -> Integration:
        return Integration(
            self._settings,
            self._database,
            self._clock,
            master_key(self._settings),
            self._audit,
            # Batches are assembled later, from parts that need this one.
            lines=lambda intents, folder, log: self._batches.left_by_gone(intents, folder, log),  # noqa: PLW0108
            evidence=self._evidence,
            drain_log=self._drain_log,
        )

    def _make_rotation(self) -> Rotation:
        parts = (self._settings, self._database, self._clock, self._egress)
        shown = self._publish_board
        return Rotation(*parts, providers=self._providers, hosts=self._hosts, publish=shown)

    def _make_following(self) -> Following:
        return Following(
            watcher=self._watcher,
            snapshots=self.snapshots,
            keys=KeyStore(self._database, self._peppers, self._clock),
            policies=self._policies,
            ledger=self._ledger,
            rates=self._rates,
            rate_limits=RateLimitTable(self._database),
            rotation=self._rotation,
            obeyed=(self._drains, ErasedAnswers(self._database, self._cache, self._clock)),
            presence=self._presence,
            changed=self._erasures.wake,
        )

    @cached_property
    def _parity(self) -> Parity:
        pools, engines = pools_among(self._providers), lambda: engines_among(self._hosts)
        return Parity(pools, engines, self._prober.serving, self._clock.monotonic_s)

    @cached_property
    def _soundness(self) -> Soundness:
        parts = (self._evidence, self._integration, self._ledger, self._watcher, self.metrics)
        return Soundness(*parts, self._settings.audit.worker)

    def _make_presence(self) -> Presence:
        parts = Parts(
            self.snapshots,
            self._health,
            self.metrics,
            pools=pools_among(self._providers),
            engines=lambda: engines_among(self._hosts),
            differing=lambda: self._parity.differing,
            said=self._prober.said,
            problems=self._soundness.problems,
            master_key_id=master_key(self._settings).key_id,
        )
        return Presence(self._settings, WorkerTable(self._database), parts, self._clock)

    @cached_property
    def _conclusion(self) -> Conclusion:
        return Conclusion(
            self._ledger,
            self._evidence,
            self._clock,
            self.metrics,
            self._rates,
            self._trials,
            calibration=self._calibration,
            blacken=self._inspector.blackened,
        )

    @cached_property
    def _batches(self) -> Batches:
        shared = (self._settings, self._database, self._clock, self.metrics, self.snapshots)
        paths = {path: DIALECTS[name] for path, name in ENDPOINTS.items()}
        asked = (self._watcher.waiting, self._stages, paths, self._providers, self._ledger)
        sink, deeds = self._integration.sink, Deeds(self._audit, self._clock)
        told = (sink.outcome, sink.parked, deeds, self._audit, self._evidence)
        return Batches(Means(*shared, *asked, *told))

    @cached_property
    def _apart(self) -> Apart:
        clocks = (self._clock, self._shared)
        parts = (self._settings, self._database, clocks, self._threads)
        return make_apart(*parts, self._rates, metrics=self.metrics)

    @cached_property
    def _cache(self) -> ResponseCache:
        return make_cache(self._settings, self._clock, self.metrics.count_cache)

    def _stages(self) -> Stages:
        dispatcher = Dispatcher(
            self._providers, DIALECTS, self._health, self._clock, turns=self._turns
        )
        exploration = self._settings.inspection.cascade_exploration
        embeddings = self._settings.response_cache.embeddings
        vectors = Vectors(dispatcher, DIALECTS["openai_embeddings"], embeddings)
        cascade = Cascade(dispatcher, self._inspector, self._clock, exploration)
        return Stages(
            peppers=self._peppers,
            inspector=self._inspector,
            ledger=self._ledger,
            rates=self._rates,
            audit=self._evidence,
            dispatcher=dispatcher,
            answers=CachingAnswers(cascade, self._cache, vectors, self._clock, self.metrics),
            conclusion=self._conclusion,
            clock=self._clock,
            threads=self._threads,
            turns=self._turns,
            settings=self._settings,
            callers=self._callers,
        )

    def _duties(self) -> tuple[Duty, ...]:
        tended = Tended(
            self._settings,
            self._database,
            self._clock,
            self.metrics,
            self._egress,
            evidence=self._evidence,
            deeds=Deeds(self._audit, self._clock),
            policies=self._policies,
            watcher=self._watcher,
            following=self._following,
            board=self._board,
            prober=self._prober,
            parity=self._parity,
            prices=self._prices,
            guard=self._guard,
            integration=self._integration,
            threads=self._threads,
            apart=self._apart,
            cache=self._cache,
            inspector=self._inspector,
            presence=self._presence,
            rotation=self._rotation,
            providers=self._providers,
            soundness=self._soundness,
            floods=self._conclusion.floods,
            erasures=self._erasures,
            alerting=self._alerting,
            callers=self._callers,
            drain_log=self._drain_log,
        )
        return (*duties_of(tended), *self._batches.duties)

    def _publish_board(self) -> None:
        self.snapshots.publish_board(self._prober.board())
