"""Two workers behind a PgBouncer that restarts under load: requests go on, money and log add up."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from gateway.errors import NotReady
from tests.databases import PostgresServer
from tests.faults.envelopes import Caller
from tests.faults.test_database_faults import (
    ACCOUNT,
    CALLERS,
    Load,
    numbered,
    question,
    until_numbered,
)
from tests.pgbouncer import NEEDED, PgBouncer
from tests.running_gateway import RunningGateway, Upstreams


pytestmark = [
    pytest.mark.anyio,
    pytest.mark.postgres,
    pytest.mark.timeout(300),
    NEEDED,
]
WORKERS = ("w0", "w1")
LIMIT = 10**9


@pytest.fixture
def direct_url(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_migrated()
    yield url
    postgres_server.drop(url)


@pytest.fixture(params=["session", "transaction"])
def pgbouncer(
    request: pytest.FixtureRequest, tmp_path: Path, direct_url: str
) -> Iterator[PgBouncer]:
    pgbouncer = PgBouncer(tmp_path, direct_url, request.param)
    pgbouncer.start()
    yield pgbouncer
    pgbouncer.stop()


@pytest.fixture
async def pair(
    pgbouncer: PgBouncer, direct_url: str, tmp_path: Path, own_upstreams: Upstreams
) -> AsyncIterator[list[RunningGateway]]:
    async with AsyncExitStack() as running:
        url = pgbouncer.url(direct_url)
        made = [RunningGateway(tmp_path, url, own_upstreams, worker=name) for name in WORKERS]
        yield [await running.enter_async_context(each) for each in made]


async def until(callers: list[Caller], status: int) -> None:
    """Every worker has heard of a change."""
    async with asyncio.timeout(10.0):
        for caller in callers:
            while (await caller.post("openai", question())).status != status:
                await asyncio.sleep(0.05)


async def test_two_workers_go_on_behind_a_pooler_that_restarts(
    pair: list[RunningGateway], pgbouncer: PgBouncer, http: aiohttp.ClientSession
) -> None:
    first, second = pair
    await first.limit(ACCOUNT, LIMIT)
    key = await first.issue_key()
    callers = [Caller(each, http, key) for each in pair]
    await until(callers, 200)
    loads = [Load(each) for each in callers]
    async with loads[0].running(), loads[1].running():
        for each in loads:
            await each.goes_on(2 * CALLERS)
        pgbouncer.stop()
        for each in loads:
            await each.goes_on(CALLERS)
        with pytest.raises(NotReady):
            await first.issue_key()
        pgbouncer.start()
        for each in loads:
            await each.goes_on(CALLERS)
    assert {reply.status for load in loads for reply in load.replies} == {200}
    await until_numbered(first, loads[0].served | loads[1].served)
    spent = sum(each.cost_microusd for each in await numbered(first) if each.stage == "outcome")
    assert spent
    for worker in pair:
        while worker.budget_left((ACCOUNT,)) != LIMIT - spent:
            await asyncio.sleep(0.05)
    await second.revoke_key(key)
    await until(callers, 401)
