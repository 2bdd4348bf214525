"""An upstream that answers nobody for a while costs a batch time, but no lines."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.store.batching.lines import LineStore
from tests.conformance.test_batches import ended, line, make
from tests.faults.test_batches import UNHURRIED, all_results, asked, marked, speaking
from tests.running_gateway import GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer, RecordedRequest


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(120)]


@pytest.fixture
async def gateway(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RunningGateway]:
    monkeypatch.setattr("gateway.batching.runner.FAILED_REST_S", 0.02)
    monkeypatch.setattr("gateway.batching.runner.REST_S_MAX", 0.02)
    async with RunningGateway(tmp_path, database_url, own_upstreams, more=UNHURRIED) as running:
        yield running


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with speaking(gateway.url, await gateway.issue_key()) as client:
        yield client


@pytest.mark.parametrize("status", [500, 401])
async def test_an_upstream_that_fails_at_everything_for_a_while_costs_no_line(
    status: int,
    client: openai.AsyncOpenAI,
    own_upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or that does not know our credential; thirty tries would have been the end of ten lines."""
    engine = own_upstreams.engine

    def answer_to(_: RecordedRequest) -> Answer:
        return Answer(status=status if len(engine.calls) <= 30 else 200)

    monkeypatch.setattr(engine, "answer_to", answer_to)
    batch = await ended(client, await make(client, marked(12)))
    found = await all_results(client, batch)

    assert Counter(wire["response"]["status_code"] for wire in found.values()) == {200: 12}
    assert asked(own_upstreams).total() == 30 + 12


async def test_lines_that_it_always_fails_at_end_after_three_tries_behind_the_others(
    client: openai.AsyncOpenAI, own_upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer_to(request: RecordedRequest) -> Answer:
        return Answer(status=500 if b"9 " in request.body else 200)

    monkeypatch.setattr(own_upstreams.engine, "answer_to", answer_to)
    lines = [line.replace(b'"}]', b' "}]') for line in marked(60)]
    batch = await ended(client, await make(client, lines))
    found = await all_results(client, batch)

    failed = {name for name, wire in found.items() if wire["response"]["status_code"] != 200}
    assert failed == {f"q-{at}" for at in range(9, 60, 10)}
    calls = asked(own_upstreams)
    assert Counter(calls.values()) == {1: 54, 3: 6}


async def test_lines_that_are_answered_elsewhere_do_not_wait_for_those_that_are_not(
    client: openai.AsyncOpenAI,
    own_upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put_back, rests = LineStore.put_back, list[bool]()

    async def puts_back(
        self: LineStore, claim: Any, due_us: int, *, rests_until_us: int = 0, **more: Any
    ) -> bool:
        rests.append(rests_until_us > 0)
        return await put_back(self, claim, due_us, rests_until_us=rests_until_us, **more)

    monkeypatch.setattr(LineStore, "put_back", puts_back)
    monkeypatch.setattr("gateway.batching.runner.REST_S_MAX", 60.0)
    own_upstreams.openai.answer(Answer(status=500))
    elsewhere = [line(f"o-{at}", model=GPT_TARGET) for at in range(40)]
    batch = await make(
        client, [each for two in zip(marked(40), elsewhere, strict=True) for each in two]
    )
    completed = 0
    while completed < 40:
        counts = (await client.batches.retrieve(batch.id)).request_counts
        assert counts is not None
        assert counts.failed == 0
        completed = counts.completed
        await asyncio.sleep(0.02)
    await client.batches.cancel(batch.id)

    # Those that fail before the first is answered that would tell may rest.
    assert len(rests) > 20
    assert rests.count(True) <= 8
