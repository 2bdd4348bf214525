"""What the metrics say against what was done: sequences, prompts, refusals, whoever leaves when."""

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from local_engine.serve.api.app import EngineApp
from tests.local_engine.served import Served, client_of, served


ENDLESS = {"model": "tiny", "max_tokens": 400, "ignore_eos": True}
CHAT = {**ENDLESS, "messages": [{"role": "user", "content": "hello"}]}
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def place(tiny_model_for_module: Path) -> AsyncIterator[Served]:
    async with served(tiny_model_for_module, max_running=4) as found:
        yield found


def counted(place: Served, name: str) -> float:
    lines = place.engine.metrics.counts.render().decode().splitlines()
    found = [line for line in lines if line.startswith(f"gatewright_engine_{name} ")]
    return float(found[0].split()[1]) if found else 0.0


async def until_stats(place: Served, **expected: int) -> None:
    while any(getattr(place.engine.stats(), name) != value for name, value in expected.items()):
        await asyncio.sleep(0.005)


class Leaver:
    """A caller who takes three pieces of a stream, no more of it, and leaves."""

    def __init__(self, body: dict[str, Any]) -> None:
        self._body: bytes | None = json.dumps(body).encode()
        self._num_taken = 0
        self._has_left = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self._body is None:
            await self._has_left.wait()
            return {"type": "http.disconnect"}
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        del message
        self._num_taken += 1
        if self._num_taken == 3:
            self._has_left.set()
            await asyncio.Event().wait()


@pytest.mark.parametrize("num_choices", [1, 3])
@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/chat/completions", CHAT), ("/v1/completions", {**ENDLESS, "prompt": "hello"})],
)
async def test_who_leaves_in_mid_stream_leaves_nothing_behind_and_is_counted(
    place: Served, path: str, body: dict[str, Any], num_choices: int
) -> None:
    app = EngineApp()
    app.attach("tiny", place.engine)
    before = asyncio.all_tasks()
    leaver = Leaver({**body, "stream": True, "n": num_choices})
    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    await app(scope, leaver.receive, leaver.send)
    assert asyncio.all_tasks() == before
    assert counted(place, 'requests_total{finish_reason="abort"}') == num_choices
    assert counted(place, "generation_tokens_total") >= 1
    await until_stats(place, num_running=0, num_waiting=0)


async def test_a_prompt_that_nobody_came_to_is_not_counted_as_read(place: Served) -> None:
    async with client_of(place.engine) as client:
        place.fragile.may_run.clear()
        asked = {**CHAT, "max_tokens": 1}
        together = [
            asyncio.create_task(client.post("/v1/chat/completions", json=asked)) for _ in range(5)
        ]
        while place.engine._link.num_open < 5:
            await asyncio.sleep(0.005)
        together[-1].cancel()
        await asyncio.wait({together[-1]})
        place.fragile.may_run.set()
        usages = [(await task).json()["usage"] for task in together[:4]]
    assert counted(place, 'requests_total{finish_reason="abort"}') == 1
    assert counted(place, "prompt_tokens_total") == sum(usage["prompt_tokens"] for usage in usages)


async def test_what_the_worker_does_not_take_in_is_a_refusal_and_no_end(place: Served) -> None:
    async with client_of(place.engine) as client:
        asked = {**CHAT, "guided_regex": "(a"}
        assert (await client.post("/v1/chat/completions", json=asked)).status_code == 400
    assert counted(place, 'requests_refused_total{code="invalid_grammar"}') == 1
    assert counted(place, 'requests_total{finish_reason="abort"}') == 0
    assert counted(place, "prompt_tokens_total") == 0


async def test_who_is_refused_while_no_model_is_there_is_counted() -> None:
    async with client_of(None) as client:
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 503
        text = (await client.get("/metrics")).text
    assert 'requests_refused_total{code="model_loading"} 1.0' in text


async def test_who_asks_whether_a_model_is_there_is_not_refused() -> None:
    async with client_of(None) as client:
        for path in ("/health", "/health/ready"):
            assert (await client.get(path)).status_code == 503
        text = (await client.get("/metrics")).text
    assert "requests_refused_total{" not in text
