"""The list of everything a running worker does besides requests, and how often."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec import Struct

from gateway.assembly.apart import Apart
from gateway.assembly.places import (
    Rotation,
    make_hook,
    make_renewal,
    make_shipping,
)
from gateway.caching.response_cache import ResponseCache
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.continuing.threads import Threads
from gateway.inspection.inspector import Inspector
from gateway.metrics import Metrics
from gateway.money.alerting import Alerting
from gateway.oversight.deeds import Deeds
from gateway.pacing import rhythm
from gateway.pacing.upkeep import Duty
from gateway.pool.parity import Parity
from gateway.ports import AuditLog, Provider
from gateway.providers.egress.client import Egress
from gateway.providers.registry import clouds_among
from gateway.recording.floods import Floods
from gateway.store.engine import Database
from gateway.store.erasure.folder_erasures import FolderErasures
from gateway.store.erasure.late_arrivals import LateArrivals
from gateway.store.evidence.integration import Integration
from gateway.store.money.alerts import AlertTable
from gateway.store.money.raises import BudgetRaises
from gateway.store.money.recorded_raises import RecordedRaises
from gateway.store.policies.documents import PolicyStore
from gateway.store.policies.guard import CanaryGuard
from gateway.store.policies.scheduler import Scheduler
from gateway.store.retention.folder_retention import FolderRetention
from gateway.store.revisions import RevisionWatcher
from gateway.store.traffic.rule_hunting import RuleHunt
from gateway.telemetry import Event
from gateway.worker.connecting import connection_tests
from gateway.worker.dear_hours import hour_watch
from gateway.worker.drifting import drift_watch
from gateway.worker.following import Board, Following
from gateway.worker.loop_lag import LOOK_S, LoopLag
from gateway.worker.presence import Presence
from gateway.worker.pricing import PriceWatch
from gateway.worker.probing import Prober
from gateway.worker.reporting import reveal_reporting
from gateway.worker.soundness import Soundness
from gateway.worker.timekeeping import clock_duties


if TYPE_CHECKING:
    from gateway.workloads.callers import Callers


class Tended(Struct, frozen=True):
    """The parts of a worker for which something is done besides requests."""

    settings: Settings
    database: Database
    clock: Clock
    metrics: Metrics
    egress: Egress
    evidence: AuditLog
    deeds: Deeds
    policies: PolicyStore
    watcher: RevisionWatcher
    following: Following
    board: Board
    prober: Prober
    parity: Parity
    prices: PriceWatch
    guard: CanaryGuard
    integration: Integration
    threads: Threads
    apart: Apart
    cache: ResponseCache
    inspector: Inspector
    presence: Presence
    rotation: Rotation
    providers: Mapping[str, Provider]
    soundness: Soundness
    floods: Floods
    erasures: FolderErasures
    alerting: Alerting | None
    """Alerts about budgets."""
    drain_log: Callable[[], None]
    """Writes the log lines that have gathered."""
    callers: "Callers | None" = None
    """None if the settings name no issuer of tokens."""


def duties_of(parts: Tended) -> tuple[Duty, ...]:
    """The complete list; batches have their own."""
    return (*_following(parts), *_keeping(parts), *_watching(parts), *_telling(parts))


def _following(parts: Tended) -> tuple[Duty, ...]:
    """Follow what others change, and apply it here."""
    scheduler = Scheduler(parts.database, parts.policies, parts.deeds, parts.clock)
    refresh_s, rotation = parts.settings.secrets.refresh_s, parts.rotation
    return (
        Duty(
            "credentials",
            refresh_s,
            rotation.refresh,
            Event.CREDENTIAL_UNAVAILABLE,
            wake=rotation.wake,
        ),
        *_renewing(parts),
        *_proving(parts),
        *_knowing_callers(parts),
        Duty("keys", rhythm.FOLLOW_RETRY_S, parts.following.follow, Event.SNAPSHOT_FAILED),
        Duty("probe", rhythm.PROBE_S, parts.board.probe, Event.PROBE_FAILED),
        Duty("parity", rhythm.PARITY_S, parts.parity.tend, Event.UPKEEP_FAILED),
        Duty("prices", rhythm.PRICES_S, parts.prices.follow, Event.PRICES_REFUSED),
        Duty("guard", rhythm.GUARD_S, parts.guard.tend, Event.GUARD_FAILED),
        Duty(
            "schedule",
            rhythm.GUARD_S,
            scheduler.tend,
            Event.SCHEDULE_FAILED,
            due=parts.watcher.waiting.schedules,
        ),
    )


def _renewing(parts: Tended) -> tuple[Duty, ...]:
    renew = make_renewal(
        parts.settings,
        parts.egress,
        parts.providers,
        parts.rotation.swap,
        parts.clock,
        parts.metrics.certificates,
    )
    if renew is None:
        return ()
    return (Duty("certificates", rhythm.CERTIFICATES_S, renew, Event.UPKEEP_FAILED),)


def _proving(parts: Tended) -> tuple[Duty, ...]:
    if not clouds_among(parts.providers):
        return ()
    return (Duty("proofs", rhythm.PROOFS_S, parts.rotation.renew, Event.CREDENTIAL_UNAVAILABLE),)


def _knowing_callers(parts: Tended) -> tuple[Duty, ...]:
    """Refresh the keys that tokens are verified with."""
    if parts.callers is None:
        return ()
    renew = parts.callers.renew
    return (Duty("issuers", rhythm.ISSUER_KEYS_S, renew, Event.ISSUER_KEYS_REFUSED),)


def _keeping(parts: Tended) -> tuple[Duty, ...]:
    """Move data to where it is kept, and drop what need not be kept any longer."""

    async def write_log() -> None:
        parts.drain_log()

    async def tidy_cache() -> None:
        parts.cache.forget_old(parts.clock.monotonic_s())

    threads = parts.threads
    hunt = RuleHunt(parts.database, parts.integration.sink, parts.policies)
    retention = FolderRetention(
        parts.settings,
        parts.database,
        parts.evidence,
        parts.clock,
        worker=parts.settings.audit.worker,
    )
    parts.metrics.registry.register(retention)
    arrivals = LateArrivals(parts.settings, parts.database, parts.evidence, parts.clock)
    raises = RecordedRaises(BudgetRaises(parts.database, parts.clock), parts.deeds)
    forget_alerts = AlertTable(parts.database, parts.clock).forget_old
    return (
        *parts.integration.duties,
        Duty("log", rhythm.LOG_S, write_log, Event.UPKEEP_FAILED),
        parts.erasures.duty,
        arrivals.duty,
        retention.duty,
        Duty("floods", rhythm.FLOODS_S, parts.floods.tell, Event.UPKEEP_FAILED),
        Duty("answers", rhythm.ANSWERS_S, threads.tidy, Event.UPKEEP_FAILED, threads.wake),
        Duty(
            "late answers",
            rhythm.TURNS_S,
            threads.keeping.tend,
            Event.UPKEEP_FAILED,
            last=threads.keeping.conclude,
        ),
        Duty("turns", rhythm.TURNS_S, threads.conversations.turns.renew, Event.UPKEEP_FAILED),
        Duty("background", rhythm.BACKGROUND_S, parts.apart.runner.tend, Event.BACKGROUND_FAILED),
        Duty("rules", rhythm.RULES_S, hunt.tend, Event.UPKEEP_FAILED),
        Duty("cache", rhythm.ANSWERS_S, tidy_cache, Event.UPKEEP_FAILED),
        Duty("larger limits", rhythm.RAISES_S, raises.tend, Event.UPKEEP_FAILED),
        Duty("old alerts", rhythm.OLD_ALERTS_S, forget_alerts, Event.UPKEEP_FAILED),
    )


def _watching(parts: Tended) -> tuple[Duty, ...]:
    """Check that all is well, here and around it."""
    settings = parts.settings
    hook = make_hook(settings, parts.egress, parts.clock)
    lag = LoopLag()
    parts.metrics.registry.register(lag)
    targets = parts.prober.board().targets.values()
    parts.metrics.expect({each.name: each.jurisdiction for each in targets})

    async def sort_times() -> None:
        parts.metrics.requests.settle()

    return (
        # By itself: what waits for a disk or a database would let them grow.
        Duty("times", rhythm.HEALTH_S, sort_times, Event.UPKEEP_FAILED),
        Duty("loop lag", LOOK_S, lag.watch, Event.UPKEEP_FAILED),
        Duty("health", rhythm.HEALTH_S, parts.soundness.report, Event.UPKEEP_FAILED),
        *drift_watch(
            settings.drift,
            parts.database,
            parts.integration.sink,
            parts.deeds,
            parts.clock,
            inspector=parts.inspector,
            metrics=parts.metrics,
            hook=hook,
        ),
        *hour_watch(settings.alerts.dear_hour_microusd, parts.database, parts.clock, hook),
        *parts.presence.duties,
        connection_tests(
            settings,
            parts.database,
            parts.evidence,
            parts.clock,
            providers=parts.providers,
            board=parts.prober.board,
            trial=parts.rotation.trial,
            due=parts.watcher.waiting.checkups,
        ),
        *clock_duties(parts.deeds, settings.audit, parts.clock),
    )


def _telling(parts: Tended) -> tuple[Duty, ...]:
    """Send reports, inside and outside, to whomever the settings name."""
    hook = make_hook(parts.settings, parts.egress, parts.clock)
    sink = parts.integration.sink
    duties: tuple[Duty, ...] = (
        reveal_reporting(parts.database, sink, parts.deeds, parts.clock, hook),
    )
    if parts.alerting is not None:
        perform = parts.alerting.perform
        duties += (Duty("alerts", rhythm.ALERTS_S, perform, Event.ALERT_NOT_TAKEN),)
    if parts.settings.metrics.url:
        duties += (_pushing(parts),)
    if ship := make_shipping(
        parts.settings, parts.egress, parts.database, parts.metrics, parts.clock
    ):
        duties += (Duty("sinks", rhythm.SINKS_S, ship, Event.SINK_FAILED),)
    return duties


def _pushing(parts: Tended) -> Duty:
    # Whoever has no collector does not wait for its parts at the start.
    make = import_module("gateway.assembly.outlets").make_metrics_push
    settings, targets = parts.settings, lambda: parts.prober.board().targets
    push = make(settings, parts.egress, parts.metrics, targets, parts.clock)
    return Duty(
        "metrics",
        settings.metrics.period_s,
        push.perform,
        Event.METRICS_NOT_TAKEN,
        last=push.conclude,
    )
