"""A budget owner is told by web hook at 50, 80 and 100 % of each window, once each."""

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import openai
import pytest
from aiohttp import web

from gateway.clock import SystemClock
from gateway.money.budgets import Limit
from gateway.store.engine import open_database
from gateway.store.money.leases import LeaseTable
from tests.faults.envelopes import Caller, ask
from tests.running_gateway import GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio
TOKEN = "hook-token-for-tests"


class Hook:
    """What the web hook was told, and what it says to that."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.credentials: set[str] = set()
        self.signing_key = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
        self.ids: list[str] = []
        self.status = 204
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.credentials.add(request.headers.get("authorization", ""))
        body = await request.read()
        with openai.OpenAI(api_key="none", webhook_secret=self.signing_key) as client:
            client.webhooks.verify_signature(body, request.headers)
        self.ids.append(request.headers["webhook-id"])
        if self.status == 204:
            self.told.append(msgspec.json.decode(body))
        return web.Response(status=self.status)

    def said(self, window: str) -> list[int]:
        return [each["percent"] for each in self.told if each["window"] == window]


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    hook = Hook()
    application = web.Application()
    application.router.add_post("/alerts", hook.take)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    hook.url = f"http://127.0.0.1:{runner.addresses[0][1]}/alerts"
    yield hook
    await runner.cleanup()


async def test_each_percentage_of_each_window_is_told_once_with_the_amounts(
    tmp_path: Path,
    sqlite_url: str,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    hook: Hook,
) -> None:
    token = tmp_path / "hook.token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    key = tmp_path / "hook.key"
    key.touch(mode=0o600)
    key.write_text(hook.signing_key)
    more = f'[alerts]\nurl = "{hook.url}"\ncredential = {{ file = "{token}" }}\n'
    more += f'signing_key = {{ file = "{key}" }}'
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())

        async def spend() -> int:
            upstreams.openai.answer(Answer(input_tokens=1000, output_tokens=10))
            reply = await caller.post("openai", ask("openai", model=GPT_TARGET))
            assert reply.status == 200
            return int(reply.headers["x-gatewright-cost-microusd"])

        async def tell() -> None:
            """What the worker does every five seconds."""
            alerting = gateway.plane._alerting
            assert alerting is not None
            await gateway.does(gateway.plane._ledger.flush())
            await gateway.does(alerting.perform())

        price = await spend()
        database = open_database(gateway.settings.database_url)
        table = LeaseTable(database, SystemClock())
        await table.set_limit(Limit("org:acme", 10 * price, "day"))
        await table.set_limit(Limit("org:acme", 100 * price, "total"))
        await database.close()
        while gateway.budget_left(("org:acme",)) is None:
            await asyncio.sleep(0.01)

        seen = []
        for _ in range(10):
            await spend()
            await tell()
            seen.append(len(hook.said("day")))
        assert seen == [0, 0, 0, 0, 1, 1, 1, 2, 2, 3]

    assert hook.said("day") == [50, 80, 100]
    assert hook.said("total") == []
    first = hook.told[0]
    assert first.pop("window_start_us") % 86_400_000_000 == 0, "days begin at midnight UTC"
    assert first == {
        "event": "budget.used",
        "account": "org:acme",
        "level": "organisation",
        "percent": 50,
        "spent_microusd": 5 * price,
        "limit_microusd": 10 * price,
        "window": "day",
    }
    assert hook.credentials == {f"Bearer {TOKEN}"}
    assert len(set(hook.ids)) == 3, "each alert is a message of its own"
