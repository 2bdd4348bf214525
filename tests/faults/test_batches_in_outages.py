"""An upstream that answers nobody for a while costs a batch time, and not its lines."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest

from tests.conformance.test_batches import ended, make
from tests.faults.test_batches import UNHURRIED, all_results, asked, marked, speaking
from tests.running_gateway import RunningGateway, Upstreams
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
