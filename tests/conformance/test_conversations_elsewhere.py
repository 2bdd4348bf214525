"""Conversations at two workers, in batches, and where policy keeps less than everything."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import openai
import pytest

from gateway.app import DataPlane
from gateway.clock import HOUR_US, SystemClock
from gateway.store.identity.keys import Place
from tests import running_gateway
from tests.conformance.test_batches import ended, line, make, results
from tests.conformance.test_conversations import FACT, SAID, texts
from tests.running_gateway import (
    CLAUDE_TARGET,
    DEMO,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

DEADLINE = "[inspection]\ndeadline_s = 5.0\n"
MORE = """
[inspection]
deadline_s = 5.0
[policy]
file = "{policy}"
"""
POLICY = """
name = "levels"
version = 1
[[constraints]]
name = "keep"
when = 'project == "private"'
audit_content = "{level}"
"""
Workers = tuple[RunningGateway, RunningGateway]


@pytest.fixture(params=["none", "redacted"])
async def private(
    request: pytest.FixtureRequest, tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.format(level=request.param))
    more = MORE.format(policy=policy)
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        yield gateway


async def test_where_policy_keeps_less_nothing_is_added(
    private: RunningGateway, upstreams: Upstreams
) -> None:
    key = await private.issue_key(Place("acme", "research", "private"))
    async with openai.AsyncOpenAI(base_url=f"{private.url}/v1", api_key=key) as client:
        talk = await client.conversations.create()
        with pytest.raises(openai.PermissionDeniedError) as caught:
            await client.conversations.items.create(talk.id, items=[FACT])
        assert caught.value.code == "policy_denied"
        with pytest.raises(openai.PermissionDeniedError):
            await client.conversations.create(items=[FACT])
        made = await client.responses.create(
            model=ENGINE_TARGET, input="Good morning", conversation=talk.id
        )
        assert (made.conversation, made.to_dict()["store"]) == (None, False)
        stream = await client.responses.create(
            model=GPT_TARGET, input="Good morning", conversation=talk.id, stream=True
        )
        assert [event.type async for event in stream][-1] == "response.completed"
        assert await texts(client, talk.id) == []
    async with openai.AsyncOpenAI(
        base_url=f"{private.url}/v1", api_key=await private.issue_key(DEMO)
    ) as other:
        assert (await other.conversations.create(items=[FACT])).id


async def test_a_line_of_a_batch_goes_on_with_none(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key()
    url = "/v1/responses"
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        talk = await client.conversations.create(items=[FACT])
        lines = [
            line("with", url, messages=None, input="Good morning", conversation=talk.id),
            line("without", url, messages=None, input="Good morning"),
        ]
        batch = await ended(client, await make(client, lines, url))
        refused = (await results(client, batch.error_file_id))["with"]["response"]
        assert refused["status_code"] == 400
        assert refused["body"]["error"]["param"] == "conversation"
        assert set(await results(client, batch.output_file_id)) == {"without"}
        assert await texts(client, talk.id) == [FACT["content"]]


@pytest.fixture
async def workers(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> AsyncIterator[Workers]:
    async with (
        RunningGateway(tmp_path, database_url, upstreams, more=DEADLINE) as one,
        RunningGateway(tmp_path, database_url, upstreams, more=DEADLINE, worker="w1") as other,
    ):
        yield one, other


async def test_turns_at_two_workers_come_one_after_the_other_and_none_is_lost(
    workers: Workers, upstreams: Upstreams
) -> None:
    one, other = workers
    key = await one.issue_key()
    while key.split("_")[2] not in other.plane.snapshots.current().keys.records:
        await asyncio.sleep(0.01)
    async with (
        openai.AsyncOpenAI(base_url=f"{one.url}/v1", api_key=key, max_retries=30) as here,
        openai.AsyncOpenAI(base_url=f"{other.url}/v1", api_key=key, max_retries=30) as there,
    ):
        talk = await here.conversations.create(items=[FACT])

        async def turn(number: int) -> None:
            client, target = (here, there)[number % 2], (CLAUDE_TARGET, ENGINE_TARGET)[number % 2]
            await client.responses.create(
                model=target, input=f"Turn {number}", conversation=talk.id
            )

        await asyncio.gather(*map(turn, range(4)))
        said = await texts(there, talk.id)
        assert said[0] == FACT["content"]
        assert said[2::2] == [SAID] * 4
        assert sorted(said[1::2]) == [f"Turn {number}" for number in range(4)]
        seen = sorted(
            sum(f"Turn {number}".encode() in call.body for number in range(4))
            for call in (*upstreams.engine.calls, *upstreams.anthropic.calls)
            if b"Turn" in call.body
        )
        assert seen == [1, 2, 3, 4], "each turn sees all that came before it"
        await there.conversations.delete(talk.id)
        with pytest.raises(openai.NotFoundError):
            await here.conversations.retrieve(talk.id)


class Behind(SystemClock):
    """An hour behind, which is longer than any turn lasts."""

    def utc_us(self) -> int:
        return super().utc_us() - HOUR_US


async def test_a_turn_is_one_for_a_worker_whose_clock_is_behind(
    tmp_path: Path, database_url: str, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RunningGateway(tmp_path, database_url, upstreams, more=DEADLINE) as one:
        key = await one.issue_key()
        with monkeypatch.context() as changed:
            changed.setattr(running_gateway, "DataPlane", partial(DataPlane, clock=Behind()))
            late = RunningGateway(tmp_path, database_url, upstreams, more=DEADLINE, worker="w1")
            await late.__aenter__()
        async with (
            openai.AsyncOpenAI(base_url=f"{one.url}/v1", api_key=key, max_retries=0) as here,
            openai.AsyncOpenAI(base_url=f"{late.url}/v1", api_key=key, max_retries=0) as there,
        ):
            talk, hold = await here.conversations.create(), asyncio.Event()
            upstreams.engine.answer_once(Answer(hold=hold))
            turn = asyncio.create_task(
                there.responses.create(model=ENGINE_TARGET, input="x", conversation=talk.id)
            )
            await upstreams.engine.called()
            with pytest.raises(openai.ConflictError):
                await here.responses.create(model=CLAUDE_TARGET, input="y", conversation=talk.id)
            hold.set()
            await turn
            assert len(await texts(here, talk.id)) == 2
        await late.__aexit__(None, None, None)
