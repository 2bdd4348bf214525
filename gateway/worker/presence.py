"""Stores this worker's report of itself for the control plane every few seconds.

It stands beside requests and never in their way: everything is read from what other parts hold in
memory anyway, and a database that is away costs only a line in the log.
"""

import asyncio
import hashlib
import os
import platform
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from math import isnan
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from gateway.clock import Clock
from gateway.configuration.disclosing import settings_digest
from gateway.configuration.settings import Settings
from gateway.dispatch.health import TargetHealth
from gateway.errors import NotReady, UpstreamFailed
from gateway.metrics import Metrics
from gateway.oversight.workers import PERIOD_S, REVISIONS_KEPT, Applied, MemberReport, WorkerReport
from gateway.pacing.upkeep import Duty
from gateway.pool.figures import Figures
from gateway.pool.observing import Observations
from gateway.snapshot import SnapshotKeeper
from gateway.store.schema.version import newest_schema
from gateway.store.workers import WorkerTable
from gateway.telemetry import Event
from gateway.types import Target


LOOK_S: Final = 5.0
"""How often an engine outside of pools is asked for its figures; a pool asks its own members."""
METRICS_EVERY: Final = 5
"""One in so many reports adds the metrics up anew: that costs a millisecond."""
LEAVE_S: Final = 2.0


class Engine(Protocol):
    """An in-house engine that is in no pool."""

    @property
    def kind(self) -> str: ...

    async def figures(self) -> Figures | None:
        """Raises UpstreamFailed if it does not answer."""
        ...


class Pool(Protocol):
    """A pool, as far as it reports its members."""

    def seen(self) -> Sequence[MemberReport]: ...


class Parts(Struct, frozen=True):
    """The parts of a worker that its report is about."""

    snapshots: SnapshotKeeper
    health: TargetHealth
    metrics: Metrics
    pools: Sequence[Pool]
    engines: Callable[[], Mapping[str, Engine]]
    """By provider; built anew when a credential changes, so they are looked up each time."""
    differing: Callable[[], Collection[str]]
    """Members that answer differently from others with the same weights."""
    said: Callable[[str], tuple[str, tuple[str, ...]] | None]
    """By provider: why it cannot be called, and what it serves; None before its first answer."""
    problems: Callable[[], tuple[str, ...]]
    master_key_id: str = ""


class Presence:
    """Reports of one worker."""

    def __init__(self, settings: Settings, table: WorkerTable, parts: Parts, clock: Clock) -> None:
        self._table, self._parts, self._clock = table, parts, clock
        self._observed = Observations()
        self._applied: deque[Applied] = deque(maxlen=REVISIONS_KEPT)
        self._reports = 0
        self._sums: dict[str, float] = {}
        self._priced: Mapping[str, Target] = {}
        """Targets whose prices have the digest `_prices`; a change makes another mapping."""
        self._prices = prices_digest(self._priced)
        self.wake = asyncio.Event()
        """Set when a change is in force here: whoever waits for it need not wait for the next
        report."""
        self._first = WorkerReport(
            worker=settings.audit.worker,
            seen_us=0,
            pid=os.getpid(),
            host=platform.node(),
            version=version("gatewright"),
            schema=newest_schema(),
            started_us=clock.utc_us(),
            settings_digest=settings_digest(settings),
            master_key_id=parts.master_key_id,
        )

    def published(self, revision: int) -> None:
        """From now on this worker serves by this revision."""
        if not self._applied or self._applied[-1].revision != revision:
            self._applied.append(Applied(revision, self._clock.utc_us()))
            self.wake.set()

    @property
    def duties(self) -> tuple[Duty, ...]:
        """The duties that keep the report up to date."""
        return (
            Duty("engines", LOOK_S, self.look, Event.UPKEEP_FAILED),
            Duty("presence", PERIOD_S, self.report, Event.UPKEEP_FAILED, self.wake),
        )

    async def look(self) -> None:
        """Ask engines outside of pools for their figures; a silent one keeps its old ones."""
        engines = self._parts.engines()
        asked = await asyncio.gather(*(_figures(each) for each in engines.values()))
        now_s = self._clock.monotonic_s()
        for name, figures in zip(engines, asked, strict=True):
            if figures is not None:
                self._observed.note(name, figures, now_s)

    async def arrive(self) -> None:
        """Register this worker before it serves: from then on nobody migrates past it.

        Raises:
            NotReady: the database does not answer.
            StartupRefused: it was migrated during the start, and this program is too old for it.
        """
        await self._table.arrive(self.gathered())

    async def report(self) -> None:
        """Store the current state of this worker.

        Raises:
            NotReady: the database does not answer; the next report says the same.
        """
        await self._table.put(self.gathered())

    async def leave(self) -> None:
        """Remove the report at an orderly stop; if the database is away, it may remain."""
        with suppress(NotReady, TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                await self._table.leave(self._first.worker, self._first.started_us)

    def gathered(self) -> WorkerReport:
        """The current state of this worker."""
        snapshots, now_s = self._parts.snapshots, self._clock.monotonic_s()
        if self._reports % METRICS_EVERY == 0:
            self._sums = added_up(self._parts.metrics)
        self._reports += 1
        problems = self._parts.problems()
        try:
            snapshot_digest = snapshots.current().digest
        except NotReady as error:
            snapshot_digest, problems = "", (*problems, error.message)
        board, health = snapshots.board, self._parts.health
        digests = msgspec.json.encode(snapshots.policies.digests)
        return msgspec.structs.replace(
            self._first,
            seen_us=self._clock.utc_us(),
            period_s=PERIOD_S,
            snapshot_digest=snapshot_digest,
            revision=snapshots.revision,
            applied=tuple(self._applied),
            policies_digest=hashlib.sha256(digests).hexdigest()[:32],
            prices_digest=self._prices_digest(board.targets),
            stale_s=max(snapshots.age_s(), 0.0),
            problems=problems,
            requests_in_flight=self._parts.metrics.requests_in_flight(),
            breakers={
                name: health.position(name, now_s, target.provider)
                for name, target in sorted(board.targets.items())
            },
            unavailable=dict(board.unavailable),
            members=tuple(self._members(now_s)),
            metrics=self._sums,
        )

    def _prices_digest(self, targets: Mapping[str, Target]) -> str:
        if targets is not self._priced:
            self._priced, self._prices = targets, prices_digest(targets)
        return self._prices

    def _members(self, now_s: float) -> list[MemberReport]:
        found = [member for pool in self._parts.pools for member in pool.seen()]
        for name, engine in self._parts.engines().items():
            said = self._parts.said(name)
            reason, models = said or ("", ())
            found.append(
                MemberReport(
                    provider=name,
                    member=name,
                    engine=engine.kind,
                    state="unknown" if said is None else "down" if reason else "up",
                    reason=reason,
                    models=models,
                    **self._observed.told(name, now_s),
                )
            )
        differing = self._parts.differing()
        return [
            msgspec.structs.replace(each, differs=True) if each.member in differing else each
            for each in found
        ]


def prices_digest(targets: Mapping[str, Target]) -> str:
    """Equal if every target costs the same, wherever and whenever its price was read."""
    prices = {
        name: msgspec.structs.replace(target.price, source="", as_of="")
        for name, target in targets.items()
    }
    encoded = msgspec.json.encode(prices, order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[:32]


def added_up(metrics: Metrics) -> dict[str, float]:
    """Every metric family of this worker as one number; of histograms, count and sum."""
    sums: dict[str, float] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            # JSON has no word for what is no number, and a report with one could not be read.
            if not sample.name.endswith(("_bucket", "_created")) and not isnan(sample.value):
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return sums


async def _figures(engine: Engine) -> Figures | None:
    try:
        return await engine.figures()
    except UpstreamFailed:
        return None
