"""What `/metrics` says of a worker's standing is what its parts know at that moment."""

import asyncio
import time
from collections.abc import Callable

import aiohttp
import pytest

from gateway.errors import UpstreamUnreachable
from tests.faults.envelopes import Caller, ask
from tests.promql import Vector, scraped
from tests.running_gateway import GPT_TARGET, RunningGateway


pytestmark = pytest.mark.anyio


class Scraper:
    """What a Prometheus would read of a gateway."""

    def __init__(self, gateway: RunningGateway, http: aiohttp.ClientSession) -> None:
        self._url, self._http = f"{gateway.url}/metrics", http

    async def series(self, name: str) -> Vector:
        return scraped(await (await self._http.get(self._url)).text()).get(f"gatewright_{name}", {})

    async def value(self, name: str, **labels: str) -> float | None:
        return (await self.series(name)).get(frozenset(labels.items()))

    async def until(self, name: str, holds: Callable[[float], bool], **labels: str) -> float:
        while True:
            value = await self.value(name, **labels)
            if value is not None and holds(value):
                return value
            await asyncio.sleep(0.02)


@pytest.fixture
def scraper(gateway: RunningGateway, http: aiohttp.ClientSession) -> Scraper:
    return Scraper(gateway, http)


async def fail(gateway: RunningGateway, target: str) -> None:
    """As many failures in a row as open a breaker."""
    health, now_s = gateway.plane._health, gateway.plane._clock.monotonic_s()
    for _ in range(5):
        health.breakers.record(target, now_s, UpstreamUnreachable("gone"))


async def test_each_target_s_breaker_is_in_one_state(
    gateway: RunningGateway, scraper: Scraper
) -> None:
    await gateway.does(fail(gateway, GPT_TARGET))

    states = {key: value for key, value in (await scraper.series("breaker")).items() if value}
    by_target = {dict(key)["target"]: dict(key)["state"] for key in states}
    assert len(by_target) == len(states) == len(gateway.plane.snapshots.board.targets)
    assert by_target.pop(GPT_TARGET) == "open"
    assert set(by_target.values()) == {"closed"}


async def test_limits_are_counted_by_level_and_use(
    gateway: RunningGateway, http: aiohttp.ClientSession, scraper: Scraper
) -> None:
    key = await gateway.issue_key()
    account = f"key:{key.split('_')[2]}"
    await gateway.limit(account, 10**9)
    assert await scraper.value("limits", level="key", used_percent_min="0") == 1
    assert await scraper.value("limits", level="key", used_percent_min="80") == 0
    reply = await Caller(gateway, http, key).post("openai", ask("openai", model=GPT_TARGET))
    cost = int(reply.headers["x-gatewright-cost-microusd"])
    assert cost > 10

    await gateway.limit(account, cost + cost // 10)
    await scraper.until("limits", lambda count: count == 1, level="key", used_percent_min="80")
    # What the request had set aside counts until the database knows what it cost.
    await scraper.until("limits", lambda count: count == 0, level="key", used_percent_min="100")
    assert await scraper.value("limits", level="key", used_percent_min="80") == 1
    await gateway.limit(account, cost)
    await scraper.until("limits", lambda count: count == 1, level="key", used_percent_min="100")


async def test_every_record_that_is_durable_was_timed(
    gateway: RunningGateway, http: aiohttp.ClientSession, scraper: Scraper
) -> None:
    caller = Caller(gateway, http, await gateway.issue_key())
    assert (await caller.post("openai", ask("openai"))).status == 200

    async def counted() -> float | None:
        return await scraper.value("audit_append_seconds_count")

    while await counted() != gateway.plane._audit.stats().records_total:
        await asyncio.sleep(0.02)
    assert (await counted() or 0) >= 2
    assert (await scraper.value("audit_append_seconds_sum") or 0) > 0


async def test_a_projection_that_fails_lags_until_it_goes_on(
    gateway: RunningGateway, scraper: Scraper, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "audit_projection_lag_seconds"
    usual = await scraper.until(name, lambda lag_s: lag_s >= 0)
    with monkeypatch.context() as patch:

        async def fails() -> int:
            raise OSError("broken on purpose")

        patch.setattr(gateway.plane._integration.projector, "catch_up", fails)
        await scraper.until(name, lambda lag_s: lag_s > usual + 1.5)
    await scraper.until(name, lambda lag_s: lag_s < 1.5)


async def test_a_checkpoint_that_is_not_followed_by_another_ages(
    gateway: RunningGateway,
    http: aiohttp.ClientSession,
    scraper: Scraper,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "audit_checkpoint_age_seconds"
    caller = Caller(gateway, http, await gateway.issue_key())
    assert (await caller.post("openai", ask("openai"))).status == 200
    await scraper.until(name, lambda age_s: age_s >= 0)
    integrator = gateway.plane._integration.integrator()
    with monkeypatch.context() as patch:

        async def fails() -> None:
            raise OSError("broken on purpose")

        patch.setattr(integrator._trees, "trees", fails)
        patch.setattr(integrator, "_period_us", 100_000)
        await scraper.until(name, lambda age_s: age_s > 1)
    monkeypatch.setattr(integrator, "_period_us", 100_000)
    await scraper.until(name, lambda age_s: age_s < 1)


async def test_a_refusal_is_counted_by_its_code(
    gateway: RunningGateway, http: aiohttp.ClientSession, scraper: Scraper
) -> None:
    key = await gateway.issue_key()
    caller = Caller(gateway, http, key)
    assert (await caller.post("openai", ask("openai"))).status == 200
    assert await scraper.series("refusals_total") == {}
    assert (await caller.with_key("nobody's").post("openai", ask("openai"))).status == 401
    await gateway.limit(f"key:{key.split('_')[2]}", 1)
    assert (await caller.post("openai", ask("openai", model=GPT_TARGET))).status == 429

    found = await scraper.series("refusals_total")
    assert {dict(key)["code"]: n for key, n in found.items()} == {
        "invalid_api_key": 1,
        "insufficient_quota": 1,
    }


async def test_a_loop_that_is_held_up_is_late(gateway: RunningGateway, scraper: Scraper) -> None:
    async def hold_up() -> None:
        time.sleep(0.6)  # noqa: ASYNC251 - what must not be done

    name = "loop_lag_seconds"
    await scraper.until(f"{name}_count", lambda count: count > 0)
    await gateway.does(hold_up())
    await scraper.until(f"{name}_sum", lambda lag_s: lag_s > 0.3)
    total = await scraper.value(f"{name}_bucket", le="+Inf") or 0
    assert total > (await scraper.value(f"{name}_bucket", le="0.25") or 0)


async def test_what_alarms_watch_of_each_target_is_there_from_the_start(
    gateway: RunningGateway, scraper: Scraper
) -> None:
    for target in gateway.plane.snapshots.board.targets.values():
        name = target.name
        assert await scraper.value("withheld_attempts_total", target=name, kind="fallback") == 0
        assert await scraper.value("credentials_refused_total", target=name) == 0
        sent = {"data_class": "S4", "jurisdiction": target.jurisdiction}
        assert await scraper.value("requests_by_data_class_total", **sent) == 0


async def test_times_do_not_gather_while_a_device_of_the_audit_log_hangs(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung: list[bool] = []

    async def hang() -> None:
        hung.append(True)
        await asyncio.Event().wait()

    monkeypatch.setattr(gateway.plane._evidence, "tend", hang)
    while not hung:
        await asyncio.sleep(0.02)
    overhead = gateway.plane.metrics.requests._overhead
    overhead.note(5)

    for _ in range(250):
        if not overhead._noted:
            break
        await asyncio.sleep(0.02)
    assert overhead._noted == []
