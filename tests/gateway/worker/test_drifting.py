"""The watch over profiles: what drifts is told once, and nothing is promised of it meanwhile."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from classifiers.calibration.maps import ChanceMap
from classifiers.calibration.table import CalibrationTable, Entry, Scope
from classifiers.calibration.threshold import Guarantee, Infeasible, Threshold
from classifiers.complexity.model import load
from gateway.audit.memory import MemoryAuditLog
from gateway.clock import DAY_US, HOUR_US
from gateway.configuration.sections import DriftSettings, InspectionSettings
from gateway.dialects.registry import DIALECTS
from gateway.drift.judging import Verdict
from gateway.drift.profiles import Kind
from gateway.errors import AuditUnavailable
from gateway.inspection.inspector import Inspector
from gateway.metrics import Metrics
from gateway.money.alerting import Alerting, drift_message
from gateway.oversight.deeds import Deeds, LateDeeds
from gateway.store.engine import open_database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.traffic.drifts import CALM_LEAST
from gateway.types import ChatRequest
from gateway.worker.drifting import DriftWatch, drift_watch, withdrawn
from tests.gateway.store.profiling import World, intent


pytestmark = pytest.mark.anyio
PROMISED = Threshold(0.0, 0.2, 0.05, 1.0, 500, 50, 0.13)
RENEWED = Threshold(0.0, 0.2, 0.05, 1.0, 600, 55, 0.12)


class Hook:
    """A web hook that refuses as often as it is told to."""

    def __init__(self) -> None:
        self.refuses = 0
        self.told: list[dict[str, Any]] = []

    async def post(self, body: bytes, about: str = "") -> bool:
        if self.refuses:
            self.refuses -= 1
            return False
        self.told.append(msgspec.json.decode(body))
        return True


class Watched(World):
    """A world with a worker that watches."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.log = MemoryAuditLog()
        self.hook = Hook()
        self.metrics = Metrics()
        self.inspector = self._inspector(PROMISED)
        self.watch = self.watcher()

    def _inspector(self, promised: Guarantee) -> Inspector:
        entry = Entry(Scope("acme", "auto"), ChanceMap(), promised)
        other = Entry(Scope("acme", "other"), ChanceMap(), PROMISED)
        table = CalibrationTable(load().version, (entry, other))
        return Inspector(InspectionSettings(), load(), self.clock, calibration=table)

    def watcher(self, settings: DriftSettings | None = None) -> DriftWatch:
        return DriftWatch(
            settings or DriftSettings(),
            self.worker(),
            self.table,
            LateDeeds(Deeds(self.log, self.clock), self.clock),
            inspector=self.inspector,
            metrics=self.metrics,
            alerting=Alerting(self.table, self.hook, drift_message),
        )

    def restarted(self, promised: Guarantee) -> None:
        """Another process, with another table."""
        self.inspector.close()
        self.inspector = self._inspector(promised)
        self.watch = self.watcher()

    async def history(self) -> None:
        """Days of short prompts."""
        for day in reversed(range(1, 10)):
            first_us = self.start_us - day * DAY_US
            hours = range(1, 8) if day < 9 else [0]
            await self.store(
                *(intent(first_us + hour * HOUR_US + n, 300) for hour in hours for n in range(140))
            )
        for _ in range(30):
            await self.watch.tend()
        assert await self.table.of("acme") == []
        self.start_us += HOUR_US
        self.clock.advance(3_600)

    async def hour(self, tokens: int) -> None:
        """One more hour of traffic, and the watch a little after it."""
        await self.store(*(intent(self.start_us + n, tokens if n % 2 else 300) for n in range(240)))
        await self.watch.tend()
        self.start_us += HOUR_US
        self.clock.advance(3_600)

    async def tier(self, model: str = "auto") -> tuple[str, str]:
        """What the classifier says of a request now."""
        seen = await self.inspector.inspect(_asked(model), "acme")
        return seen.complexity_tier, seen.calibration

    def deeds(self) -> list[tuple[str, str]]:
        return [(one.actor, one.action) for one in self.log.records if one.stage == "admin"]

    def gauge(self, kind: str = "prompts") -> float | None:
        return self.metrics.registry.get_sample_value("gatewright_drifts_open", {"kind": kind})


def _asked(model: str) -> ChatRequest:
    body = {"model": model, "messages": [{"role": "user", "content": "Say hello to the team."}]}
    return DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")


@pytest.fixture
async def world(sqlite_url: str) -> AsyncIterator[Watched]:
    database = open_database(sqlite_url)
    world = Watched(database)
    await world.log.start()
    await world.history()
    yield world
    world.inspector.close()
    await database.close()


async def test_a_drift_is_told_everywhere_once_and_its_promise_is_withdrawn(
    world: Watched,
) -> None:
    assert await world.tier() == ("cheap", "guaranteed")
    await world.hour(300)
    await world.hour(9_000)
    assert (await world.tier(), world.deeds(), world.hook.told) == (("cheap", "guaranteed"), [], [])

    world.hook.refuses = 1
    with capture_logs() as lines:
        await world.hour(9_000)
    said = "prompts over 8,000 tokens: 50% instead of 0%"
    assert [(line["event"], line["reason"]) for line in lines if "reason" in line] == [
        ("profile:drifts", f"prompts of auto: {said}")
    ]
    assert await world.tier() == ("frontier", "drift")
    assert await world.tier("other") == ("cheap", "guaranteed")
    assert (world.deeds(), world.gauge()) == ([("drift", "drift.found")], 1)
    assert world.gauge("answers") == 0
    assert world.hook.told == []

    await world.hour(9_000)
    (told,) = world.hook.told
    since_us = world.start_us - 3 * HOUR_US
    (drift,) = await world.table.acting()
    assert told == {
        "event": "profile.drifts",
        "id": drift.id,
        "organisation": "acme",
        "kind": "prompts",
        "scope": "auto",
        "since_us": since_us,
        "said": said,
        "withdraws_guarantee": True,
    }
    await world.hour(9_000)
    assert (len(world.hook.told), len(world.deeds())) == (1, 1)


async def test_a_drift_ends_when_prompts_are_as_before(world: Watched) -> None:
    await world.hour(9_000)
    await world.hour(9_000)
    assert await world.tier() == ("frontier", "drift")
    # The window of a day still holds the two hours for a while.
    for _ in range(26 + CALM_LEAST):
        await world.hour(300)

    assert await world.tier() == ("cheap", "guaranteed")
    assert world.deeds() == [("drift", "drift.found"), ("drift", "drift.ended")]
    assert world.gauge() == 0


async def test_an_accepted_drift_promises_nothing_until_it_is_promised_anew(
    world: Watched,
) -> None:
    await world.hour(9_000)
    await world.hour(9_000)
    (drift,) = await world.table.acting()
    await world.table.accept("acme", drift.id, "ann", "a new application")
    await world.watch.tend()
    assert (await world.tier(), world.gauge()) == (("frontier", "drift"), 0)

    world.restarted(PROMISED)
    await world.watch.tend()
    assert await world.tier() == ("frontier", "drift")
    world.restarted(RENEWED)
    await world.watch.tend()
    assert await world.tier() == ("cheap", "guaranteed")
    await world.hour(9_000)
    await world.hour(9_000)
    assert len(await world.table.of("acme")) == 1


async def test_an_installation_may_be_told_and_keep_its_promises(world: Watched) -> None:
    world.watch = world.watcher(DriftSettings(withdraws_guarantee=False))
    await world.hour(9_000)
    await world.hour(9_000)

    assert len(await world.table.acting()) == 1
    assert await world.tier() == ("cheap", "guaranteed")


async def test_what_was_never_promised_is_not_withdrawn(world: Watched) -> None:
    world.restarted(Infeasible("too_few_labels", 0.2, 0.05, 40))
    await world.hour(9_000)
    await world.hour(9_000)

    (drift,) = await world.table.acting()
    assert drift.guarantee == ""
    assert await world.tier() == ("frontier", "too_few_labels")


async def test_a_drift_acts_and_is_told_while_the_log_is_away_and_is_recorded_later(
    world: Watched,
) -> None:
    await world.hour(9_000)
    world.log.failing = True
    with pytest.raises(AuditUnavailable):
        await world.hour(9_000)
    with pytest.raises(AuditUnavailable):
        await world.watch.tend()
    assert await world.tier() == ("frontier", "drift")
    assert (len(world.hook.told), world.deeds()) == (1, [])
    world.log.failing = False
    world.clock.advance(90.0)
    for _ in range(2):
        await world.watch.tend()

    assert world.deeds() == [("drift", "drift.found")]
    said = msgspec.json.decode(world.log.records[-1].detail["after"])
    assert (said["scope"], said["late_s"]) == ("auto", 90)


async def test_only_drifting_prompts_take_a_promise_away(world: Watched) -> None:
    await world.hour(9_000)
    await world.hour(9_000)
    (drift,) = await world.table.acting()

    assert set(withdrawn([drift], world.inspector)) == {("acme", "auto")}
    assert not withdrawn([msgspec.structs.replace(drift, kind="answers")], world.inspector)


async def test_who_watches_no_profiles_has_no_such_duty(world: Watched) -> None:
    def duties(settings: DriftSettings) -> int:
        sink, deeds = DatabaseAuditSink(world.database), Deeds(world.log, world.clock)
        parts = {"inspector": world.inspector, "metrics": world.metrics, "hook": None}
        made = drift_watch(settings, world.database, sink, deeds, world.clock, **parts)  # type: ignore[arg-type]
        return len(made)

    assert (duties(DriftSettings(enabled=False)), duties(DriftSettings())) == (0, 1)


async def test_two_workers_before_a_slow_web_hook_tell_of_each_drift_once(world: Watched) -> None:
    """What one had claimed was given up after a minute, while it still waited for its turn."""
    drifted = Verdict("drifted")
    for number in range(12):
        seen: tuple[str, Kind, str] = ("acme", "prompts", f"model{number:02d}")
        suspected = await world.table.look(None, seen, drifted, world.start_us, "")
        await world.table.look(suspected, seen, drifted, world.start_us, "")

    class Slow(Hook):
        async def post(self, body: bytes, about: str = "") -> bool:
            world.clock.advance(10.0)
            await Alerting(world.table, world.hook, drift_message).perform()
            return await world.hook.post(body, about)

    await Alerting(world.table, Slow(), drift_message).perform()
    assert sorted(each["scope"] for each in world.hook.told) == [
        f"model{number:02d}" for number in range(12)
    ]
