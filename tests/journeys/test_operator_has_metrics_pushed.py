"""An operator's collector of OpenTelemetry is pushed metrics; requests do not notice it."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from aiohttp import web

from tests.promql import scraped
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

QUESTION: Any = [{"role": "user", "content": "What does a receipt prove?"}]
BEARER = "a-collector-s-own-word-0000"


class Collector:
    """Keeps what comes; away until it is started."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.posts: list[dict[str, Any]] = []
        self.heads: list[dict[str, str]] = []
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        application = web.Application()
        application.router.add_post("/v1/metrics", self._take)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        self.heads.append({name.lower(): value for name, value in request.headers.items()})
        self.posts.append(json.loads(await request.read()))
        return web.json_response({})

    async def next(self) -> dict[str, dict[str, Any]]:
        """What is told from now on, by name."""
        count = len(self.posts) + 1  # One may be under way that knows nothing of what came last.
        while len(self.posts) <= count:
            await asyncio.sleep(0.05)
        (resource,) = self.posts[-1]["resourceMetrics"]
        assert said(resource["resource"]) == {
            "service.name": "gatewright",
            "service.instance.id": "w0",
        }
        return {
            each["name"]: each for scope in resource["scopeMetrics"] for each in scope["metrics"]
        }


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    yield made
    await made.stop()


@pytest.fixture
async def gateway(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, collector: Collector
) -> AsyncIterator[RunningGateway]:
    tmp_path.joinpath("bearer").write_text(BEARER)
    tmp_path.joinpath("bearer").chmod(0o600)
    more = f"""
[metrics]
url = "http://127.0.0.1:{collector.port}/v1/metrics"
credential = {{ file = "bearer" }}
period_s = 1.0
"""
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as running:
        yield running


def said(point: dict[str, Any]) -> dict[str, str]:
    return {each["key"]: each["value"]["stringValue"] for each in point["attributes"]}


def points(metric: dict[str, Any]) -> list[dict[str, Any]]:
    (found,) = [
        metric[kind]["dataPoints"] for kind in ("histogram", "sum", "gauge") if kind in metric
    ]
    return list(found)


async def ask_both(gateway: RunningGateway) -> None:
    """One stream of Claude, and one whole answer of GPT."""
    key = await gateway.issue_key()
    async with (
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key, max_retries=0) as claude,
        claude.messages.stream(model=CLAUDE_TARGET, messages=QUESTION, max_tokens=64) as stream,
    ):
        assert await stream.get_final_text()
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0) as gpt:
        answer = await gpt.chat.completions.create(model=GPT_TARGET, messages=QUESTION)
    assert answer.choices


async def test_a_collector_gets_calls_in_the_words_of_the_conventions(
    gateway: RunningGateway, upstreams: Upstreams, collector: Collector
) -> None:
    await collector.start()
    await ask_both(gateway)
    upstreams.openai.answer_once(Answer(status=500))
    key = await gateway.issue_key()
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0) as gpt:
        with pytest.raises(openai.InternalServerError):
            await gpt.chat.completions.create(model=GPT_TARGET, messages=QUESTION)

    told = await collector.next()

    assert collector.heads[-1]["authorization"] == f"Bearer {BEARER}"
    assert collector.heads[-1]["content-type"].startswith("application/json")
    calls = told["gen_ai.client.inference.duration"]
    assert calls["unit"] == "s"
    assert calls["histogram"]["aggregationTemporality"] == 2
    by_target = {
        (said(each)["gatewright.target"], said(each).get("error.type", "")): each
        for each in points(calls)
    }
    assert {key: each["count"] for key, each in by_target.items()} == {
        (CLAUDE_TARGET, ""): "1",
        (GPT_TARGET, ""): "1",
        (GPT_TARGET, "upstream_refused"): "1",
    }
    assert said(by_target[CLAUDE_TARGET, ""]) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-opus-5-5",
        "gatewright.target": CLAUDE_TARGET,
    }
    for each in by_target.values():
        assert len(each["bucketCounts"]) == len(each["explicitBounds"]) + 1
        assert sum(map(int, each["bucketCounts"])) == int(each["count"])
        assert 0 < int(each["startTimeUnixNano"]) < int(each["timeUnixNano"])
    (first,) = points(told["gen_ai.client.inference.time_to_first_chunk"])
    assert said(first)["gatewright.target"] == CLAUDE_TARGET
    assert first["sum"] <= by_target[CLAUDE_TARGET, ""]["sum"]
    for name, tokens in (("input", "11"), ("output", "7")):
        metric = told[f"gen_ai.client.inference.usage.{name}_tokens"]
        assert (metric["unit"], metric["sum"]["isMonotonic"]) == ("{token}", True)
        assert [each["asInt"] for each in points(metric)][:2] == [tokens, tokens]
        assert {said(each)["gen_ai.token.modality"] for each in points(metric)} == {"unknown"}


async def test_all_that_a_scrape_has_is_pushed_under_the_same_names(
    gateway: RunningGateway, collector: Collector, http: aiohttp.ClientSession
) -> None:
    await collector.start()
    await ask_both(gateway)
    told = await collector.next()
    async with http.get(f"{gateway.url}/metrics") as reply:
        samples = scraped(await reply.text())

    ours = {name for name in told if not name.startswith("gen_ai.")}
    assert ours == {
        name.removesuffix("_bucket")
        for name in samples
        if not name.endswith(("_created", "_sum", "_count"))
    }
    (ready,) = points(told["gatewright_ready"])
    assert ready["asDouble"] == 1
    (age,) = points(told["gatewright_snapshot_age_seconds"])
    assert 0 <= age["asDouble"] < 60
    requests = {said(each)["target"]: each for each in points(told["gatewright_requests_total"])}
    assert requests[GPT_TARGET]["asDouble"] == 1
    whole = points(told["gatewright_request_duration_seconds"])
    assert sorted(each["count"] for each in whole) == ["1", "1"]


async def test_a_collector_that_is_away_holds_nobody_up_and_gets_all_when_it_is_back(
    gateway: RunningGateway, collector: Collector
) -> None:
    await ask_both(gateway)
    await asyncio.sleep(1.5)  # At least one post finds nobody.

    await collector.start()
    told = await collector.next()

    requests = {said(each)["target"]: each for each in points(told["gatewright_requests_total"])}
    assert {target: each["asDouble"] for target, each in requests.items()} == {
        CLAUDE_TARGET: 1,
        GPT_TARGET: 1,
    }


async def test_what_was_counted_last_is_told_when_the_worker_stops(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, collector: Collector
) -> None:
    await collector.start()
    more = f"""
[metrics]
url = "http://127.0.0.1:{collector.port}/v1/metrics"
period_s = 3600.0
"""
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as running:
        await ask_both(running)

    (resource,) = collector.posts[-1]["resourceMetrics"]
    told = {each["name"]: each for scope in resource["scopeMetrics"] for each in scope["metrics"]}
    assert {
        said(each)["target"]: each["asDouble"] for each in points(told["gatewright_requests_total"])
    } == {CLAUDE_TARGET: 1, GPT_TARGET: 1}


async def test_nobody_is_told_anything_who_is_not_in_the_settings(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> None:
    async with RunningGateway(tmp_path, sqlite_url, upstreams) as running:
        assert "metrics" not in {each.get_name() for each in running.plane._upkeep._tasks}
