"""A platform engineer names a server for rate limits; a team's limit holds over all workers."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gateway.money.rates import RateLimit
from tests.faults.envelopes import Caller, ask
from tests.journeys.test_operator_limits_how_fast_a_team_asks import limit
from tests.redis_server import Server
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams


pytestmark = pytest.mark.anyio


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    await server.start()
    yield server
    await server.stop()


async def test_what_one_worker_let_through_the_other_counts(
    tmp_path: Path,
    sqlite_url: str,
    upstreams: Upstreams,
    server: Server,
    http: aiohttp.ClientSession,
) -> None:
    more = f'[rates]\nurl = "{server.url}"'
    async with (
        RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as one,
        RunningGateway(tmp_path, sqlite_url, upstreams, more=more, worker="w1") as other,
    ):
        key = await one.issue_key()
        first, second = Caller(one, http, key), Caller(other, http, await other.issue_key())
        for worker in (one, other):
            await limit(worker, RateLimit("ws:acme/research", requests_per_minute=1))
        body = ask("openai", model=CLAUDE_TARGET)
        assert (await first.post("openai", body)).status == 200
        reply = await second.post("openai", body)
        assert (reply.status, "retry-after" in reply.headers) == (429, True)
