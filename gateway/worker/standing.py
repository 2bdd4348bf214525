"""Metrics of a worker's current state, read from its parts in memory when collected."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.assembly.places import Rotation
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import Clock
from gateway.dispatch.health import TargetHealth
from gateway.durations import family
from gateway.pool.provider import PoolProvider
from gateway.snapshot import SnapshotKeeper
from gateway.store.erasure.folder_erasures import FolderErasures
from gateway.store.evidence.integration import Integration
from gateway.store.money.leased_ledger import LeasedLedger


POSITIONS = ("closed", "half_open", "open")
USED_PERCENT = (0, 80, 100)


class Seen(Struct, frozen=True):
    """The parts of a worker that are read."""

    snapshots: SnapshotKeeper
    health: TargetHealth
    audit: SegmentedAuditLog
    integration: Integration
    ledger: LeasedLedger
    rotation: Rotation
    clock: Clock
    erasures: FolderErasures
    pools: tuple[PoolProvider, ...]


class Standing(Collector):
    """The metrics of one worker."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def collect(self) -> Iterable[Metric]:
        seen = self._seen
        yield self._breakers()
        yield self._limits()
        yield family(
            "gatewright_audit_append_seconds",
            "From a record's hand-over to its being durable on this worker's disk.",
            (),
            [((), seen.audit.appended)],
        )
        yield _gauge(
            "gatewright_audit_checkpoint_age_seconds",
            "Age of the newest signed checkpoint, of the log whose newest is the oldest.",
            seen.integration.checkpoint_age_s(),
        )
        yield _gauge(
            "gatewright_audit_projection_lag_seconds",
            "Since the database last had every record of this worker.",
            seen.integration.projection_lag_s(),
        )
        yield _gauge(
            "gatewright_erasure_outstanding_seconds",
            "Since the oldest erasure was agreed to that is not complete.",
            seen.erasures.outstanding_s(),
        )
        ages = GaugeMetricFamily(
            "gatewright_credential_confirmed_age_seconds",
            "Since a provider's credential was last read from its place.",
            labels=("provider",),
        )
        for provider, age_s in seen.rotation.ages_s().items():
            ages.add_metric((provider,), age_s)
        yield ages
        yield self._passed_over()

    def _passed_over(self) -> Metric:
        passed = CounterMetricFamily(
            "gatewright_pool_passed_over",
            "Calls that a pool's member did not take and another one was asked for.",
            labels=("provider", "member", "status"),
        )
        for pool in self._seen.pools:
            for (member, status), count in pool.passed_over.items():
                passed.add_metric((pool.name, member, str(status)), count)
        return passed

    def _breakers(self) -> Metric:
        seen, now_s = self._seen, self._seen.clock.monotonic_s()
        breakers = GaugeMetricFamily(
            "gatewright_breaker",
            "1 for the state that a target's breaker is in.",
            labels=("target", "state"),
        )
        for name, target in seen.snapshots.board.targets.items():
            position = seen.health.position(name, now_s, target.provider)
            for state in POSITIONS:
                breakers.add_metric((name, state), float(state == position))
        return breakers

    def _limits(self) -> Metric:
        counts: Counter[tuple[str, int]] = Counter()
        for level, share in self._seen.ledger.used():
            for percent in USED_PERCENT:
                counts[level, percent] += share * 100 >= percent
        limits = GaugeMetricFamily(
            "gatewright_limits",
            "Limits of budgets by level, and by how much of them is used at least.",
            labels=("level", "used_percent_min"),
        )
        for (level, percent), count in counts.items():
            limits.add_metric((level, str(percent)), count)
        return limits


def _gauge(name: str, text: str, value: float | None) -> Metric:
    """A gauge; without a sample if there is no value yet."""
    made = GaugeMetricFamily(name, text, labels=())
    if value is not None:
        made.add_metric((), value)
    return made
