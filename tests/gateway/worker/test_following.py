"""What a worker follows: every change to its end, and no key before what holds it back."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from gateway.clock import SystemClock
from gateway.errors import NotReady
from gateway.identity import KeyTable, KeyText, Peppers
from gateway.money.rates import RateLimit
from gateway.rollout.versions import Level
from gateway.secrets.credentials import pepper
from gateway.store.engine import open_database
from gateway.store.identity.keys import KeyStore, NewKey
from gateway.store.money.rate_limits import RateLimitTable
from gateway.store.policies.documents import PolicyStore
from tests.faults.envelopes import Caller, ask
from tests.running_gateway import DEMO, RunningGateway, Upstreams


pytestmark = pytest.mark.anyio
NOBODY = RateLimit("org:acme", requests_per_minute=0)
LIMITS = "gateway.store.money.rate_limits.RateLimitTable.all"


@pytest.fixture
def own(tmp_path: Path, sqlite_url: str, upstreams: Upstreams) -> RunningGateway:
    return RunningGateway(tmp_path, sqlite_url, upstreams)


async def limit(gateway: RunningGateway, rate: RateLimit) -> None:
    database = open_database(gateway.settings.database_url)
    try:
        await RateLimitTable(database).set(rate)
    finally:
        await database.close()


async def issue(gateway: RunningGateway) -> KeyText:
    """A key that the worker need not know yet."""
    database = open_database(gateway.settings.database_url)
    try:
        store = KeyStore(database, Peppers({1: pepper(gateway.settings)}), SystemClock())
        return await store.issue(NewKey(DEMO, "test", "a test"))
    finally:
        await database.close()


async def until(caller: Caller, status: int) -> None:
    async with asyncio.timeout(20):
        while (await caller.post("openai", ask("openai"))).status != status:
            await asyncio.sleep(0.01)


async def test_a_limit_is_followed_although_the_database_went_away_after_the_keys(
    own: RunningGateway, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with own as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        await until(caller, 200)
        refused: list[bool] = []
        read = RateLimitTable.all

        async def away_once(table: RateLimitTable) -> list[RateLimit]:
            if not refused:
                refused.append(True)
                raise NotReady("the database does not answer")
            return await read(table)

        monkeypatch.setattr(LIMITS, away_once)
        await limit(gateway, NOBODY)
        await until(caller, 429)
        assert refused


async def test_a_new_key_waits_for_its_limits_and_a_revoked_one_is_dead_without_them(
    own: RunningGateway, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: RateLimitTable) -> list[RateLimit]:
        raise NotReady("the database does not answer")

    async with own as gateway:
        former = await gateway.issue_key()
        await until(Caller(gateway, http, former), 200)
        with monkeypatch.context() as cut:
            cut.setattr(LIMITS, away)
            new = await issue(gateway)
            await limit(gateway, RateLimit(f"key:{new.key_id}", requests_per_minute=0))
            await gateway.revoke_key(former)
            await until(Caller(gateway, http, former), 401)
            caller = Caller(gateway, http, new.reveal())
            assert (await caller.post("openai", ask("openai"))).status == 401
        async with asyncio.timeout(20):
            while new.key_id not in gateway.plane.snapshots.current().keys.records:
                await asyncio.sleep(0.001)
        assert (await caller.post("openai", ask("openai"))).status == 429


async def test_a_limit_that_is_set_while_a_worker_starts_is_followed(
    own: RunningGateway,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = ""
    async with own as gateway:
        key = await gateway.issue_key()
    limited: list[bool] = []
    read = KeyStore.table

    async def after_a_limit(store: KeyStore) -> KeyTable:
        if not limited:
            limited.append(True)
            await limit(gateway, NOBODY)
        return await read(store)

    monkeypatch.setattr(KeyStore, "table", after_a_limit)
    again = RunningGateway(own.folder, own.settings.database_url, upstreams)
    async with again as started:
        reply = await Caller(started, http, key).post("openai", ask("openai"))
        assert reply.status == 429


async def test_a_worker_that_hears_of_changes_and_cannot_follow_them_refuses_service(
    own: RunningGateway, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unreadable(_: PolicyStore) -> dict[str, Level]:
        raise NotReady("the database does not answer")

    async with own as gateway:
        key = await gateway.issue_key()
        caller = Caller(gateway, http, key)
        await until(caller, 200)
        monkeypatch.setattr("gateway.snapshot.STALE_AFTER_S", 1.0)
        with monkeypatch.context() as cut:
            cut.setattr(PolicyStore, "levels", unreadable)
            await gateway.revoke_key(key)
            await until(caller, 503)
        await until(caller, 401)
