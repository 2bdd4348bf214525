"""An operator takes a replica out of service: no stream is cut, and nothing new goes there."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gateway.pool.parity import QUESTION
from tests.cli.operator import Ended, Operator
from tests.running_gateway import RunningGateway, Upstreams
from tests.upstreams import Answer, RecordingUpstream


pytestmark = pytest.mark.anyio

MORE = """
[providers.replica-1]
kind = "engine"
base_url = "{first}"
jurisdiction = "in-house"
[providers.replica-2]
kind = "engine"
base_url = "{second}"
jurisdiction = "in-house"
[providers.house]
kind = "pool"
members = ["replica-1", "replica-2"]
jurisdiction = "in-house"
[targets.pooled]
provider = "house"
model = "fake-model"
catalogue = "in-house"
"""
TEXT = "one two three four five six"


@pytest.fixture
async def second() -> AsyncIterator[RecordingUpstream]:
    async with RecordingUpstream() as upstream:
        yield upstream


@pytest.fixture
async def gateway(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, second: RecordingUpstream
) -> AsyncIterator[RunningGateway]:
    more = MORE.format(first=upstreams.engine.url, second=second.url)
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as running:
        yield running


class House:
    """A pool of two replicas, and the operator who looks after it."""

    def __init__(
        self,
        gateway: RunningGateway,
        replicas: dict[str, RecordingUpstream],
        http: aiohttp.ClientSession,
        operator: Operator,
    ) -> None:
        self.gateway, self.replicas, self.http, self.operator = gateway, replicas, http, operator
        self.key = ""

    async def post(self, text: str, *, stream: bool = False) -> aiohttp.ClientResponse:
        self.key = self.key or await self.gateway.issue_key()
        body = {"model": "pooled", "messages": [{"role": "user", "content": text}]}
        headers = {"authorization": f"Bearer {self.key}"}
        url = f"{self.gateway.url}/v1/chat/completions"
        return await self.http.post(url, json={**body, "stream": stream}, headers=headers)

    def asked(self, name: str) -> int:
        """How many calls of ours; members are compared with a question of the pool's own."""
        found = [each for each in self.replicas[name].requests if "completions" in each.path]
        return sum(QUESTION.encode() not in each.body for each in found)

    def answer(self, answer: Answer) -> None:
        for upstream in self.replicas.values():
            upstream.answer(answer)

    async def types(self, *words: str) -> Ended:
        return await asyncio.to_thread(self.operator.config, "pool", *words)

    async def until(self, wanted: dict[str, int]) -> None:
        """Wait until the gateway says so of its drained members."""
        async with asyncio.timeout(20):
            while True:
                async with self.http.get(f"{self.gateway.url}/health/ready") as reply:
                    if (await reply.json()).get("draining", {}) == wanted:
                        return
                await asyncio.sleep(0.02)


@pytest.fixture
def house(
    gateway: RunningGateway,
    upstreams: Upstreams,
    second: RecordingUpstream,
    http: aiohttp.ClientSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> House:
    operator = Operator(tmp_path, monkeypatch, capsys)
    operator.config_file = gateway.config_file
    replicas = {"replica-1": upstreams.engine, "replica-2": second}
    return House(gateway, replicas, http, operator)


async def test_a_replica_is_drained_and_comes_back(house: House) -> None:
    release = asyncio.Event()
    house.answer(Answer(text=TEXT, hold=release))
    stream = asyncio.create_task(house.post("Count.", stream=True))
    while not (busy := "".join(name for name in house.replicas if house.asked(name))):
        await asyncio.sleep(0.01)
    other = next(name for name in house.replicas if name != busy)
    house.answer(Answer())

    assert (await house.types("drain", busy, "--reason", "new weights")).status == 0
    await house.until({busy: 1})
    for number in range(6):
        assert (await house.post(f"Question {number}")).status == 200
    assert (house.asked(busy), house.asked(other)) == (1, 6)
    listed = (await house.types("list")).output
    assert json.loads(listed)["reason"] == "new weights"

    release.set()
    text = (await (await stream).read()).decode()
    assert "six" in text
    assert text.rstrip().endswith("[DONE]")
    await house.until({busy: 0})

    assert (await house.types("resume", busy)).status == 0
    await house.until({})
    async with asyncio.timeout(20):
        while house.asked(busy) == 1:
            assert (await house.post("Count again.")).status == 200


async def test_only_a_pools_member_can_be_drained_and_only_a_drained_one_given_back(
    house: House,
) -> None:
    unknown = await house.types("drain", "engine")
    assert (unknown.status, "replica-1, replica-2" in unknown.errors) == (2, True)
    assert (await house.types("resume", "replica-1")).status == 2
