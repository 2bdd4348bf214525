"""A running worker's word about itself: written soon after a change, and never in a call's way."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import msgspec
import pytest
from msgspec import structs

from gateway.clock import SystemClock
from gateway.configuration.disclosing import settings_digest
from gateway.identity import Peppers
from gateway.oversight.workers import WorkerReport, applied_us
from gateway.secrets.credentials import pepper
from gateway.store.engine import open_database
from gateway.store.identity.keys import KeyStore
from gateway.store.schema.version import newest_schema
from gateway.store.workers import WorkerTable
from gateway.worker.presence import prices_digest
from tests.gateway.providers.samples import make_target
from tests.running_gateway import CLAUDE_TARGET, DEMO, RunningGateway, Upstreams
from tests.upstreams import Answer, RecordingUpstream


pytestmark = pytest.mark.anyio
METRICS = """gatewright_engine_num_requests_waiting 3.0
gatewright_engine_num_requests_running 2.0
gatewright_engine_kv_cache_usage_ratio 0.25
gatewright_engine_kv_blocks 400.0
gatewright_engine_generation_tokens_total 1000.0
"""
FAR_POOL = """
[providers.replica]
kind = "engine"
base_url = "{url}"
jurisdiction = "far"
[providers.far]
kind = "pool"
members = ["replica"]
jurisdiction = "far"
[targets.far-model]
provider = "far"
model = "far-model"
catalogue = "in-house"
"""


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    async with Upstreams() as running:
        running.engine.texts["/metrics"] = METRICS
        yield running


async def reports(gateway: RunningGateway) -> list[WorkerReport]:
    database = open_database(gateway.settings.database_url, pooled=False)
    try:
        return list(await WorkerTable(database).all())
    finally:
        await database.close()


async def until(
    gateway: RunningGateway, holds: Callable[[list[WorkerReport]], bool]
) -> list[WorkerReport]:
    async with asyncio.timeout(30):
        while not holds(found := await reports(gateway)):
            await asyncio.sleep(0.05)
    return found


async def test_a_worker_says_what_it_is_and_what_it_serves_by(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    async with RunningGateway(tmp_path, database_url, upstreams) as gateway:
        (said,) = await until(
            gateway,
            lambda all_: bool(all_ and all_[0].members and all_[0].members[0].waiting is not None),
        )
        assert (said.worker, said.pid, said.schema) == ("w0", os.getpid(), newest_schema())
        assert said.settings_digest == settings_digest(gateway.settings)
        assert said.revision == said.applied[-1].revision >= 0
        assert len(said.snapshot_digest) == 32
        board = gateway.plane.snapshots.board
        assert said.prices_digest == prices_digest(board.targets)
        assert said.problems == ()
        assert set(said.breakers) == set(gateway.settings.targets)
        assert said.breakers[CLAUDE_TARGET] == "closed"
        assert said.metrics["gatewright_audit_healthy"] in {0.0, 1.0}
        (engine,) = said.members
        assert (engine.provider, engine.member, engine.engine) == ("engine", "engine", "gatewright")
        assert (engine.state, engine.models) == ("up", ("fake-model",))
        assert (engine.waiting, engine.running) == (3, 2)
        assert (engine.blocks_used, engine.blocks_total) == (100, 400)
        assert engine.prefix_hit_share is None, "this engine does not say"

    assert await reports(gateway) == [], "it stopped in good order"


def test_prices_are_compared_by_what_is_paid_and_not_by_where_it_was_read() -> None:
    target = make_target("one")
    price = structs.replace(target.price, output_microusd_per_mtok=7)
    source = structs.replace(target.price, source="elsewhere", as_of="2026-02-03")
    digests = {
        prices_digest({"one": structs.replace(target, price=each)})
        for each in (target.price, price, source)
    }

    assert len(digests) == 2
    assert prices_digest({"two": target}) not in digests


async def test_replicas_of_different_pools_that_answer_otherwise_are_told_of(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> None:
    upstreams.engine.models = ({"id": "fake-model", "digest": "sha256:1"},)
    async with RecordingUpstream(({"id": "far-model", "digest": "sha256:1"},)) as far:
        far.answer(Answer(text="Something else."))
        more = FAR_POOL.format(url=far.url)
        async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as gateway:
            (said,) = await until(
                gateway,
                lambda all_: bool(all_ and all_[0].members and all_[0].members[0].differs),
            )
        assert {(each.provider, each.member) for each in said.members if each.differs} == {
            ("far", "replica"),
            ("engine", "engine"),
        }
        calls = (*far.calls, *upstreams.engine.calls)
        asked = [call.json for call in calls if call.path.endswith("completions")]
        assert {each["model"] for each in asked} == {"far-model", "fake-model"}
        texts = {msgspec.json.encode(each["messages"]).decode() for each in asked}
        assert len(texts) == 1, "one question, and nothing of anybody"


async def test_a_revoked_key_is_seen_to_be_dead_in_the_next_word(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    async with RunningGateway(tmp_path, database_url, upstreams) as gateway:
        text = await gateway.issue_key()
        database = open_database(gateway.settings.database_url, pooled=False)
        try:
            peppers = Peppers({1: pepper(gateway.settings)})
            store = KeyStore(database, peppers, SystemClock())
            (key,) = await store.keys(DEMO.organisation)
            await store.revoke(key.key_id)
            (dead,) = await store.keys(DEMO.organisation)
        finally:
            await database.close()
        assert dead.revoked_us is not None
        assert dead.revoked_revision is not None
        wanted = dead.revoked_revision
        (said,) = await until(gateway, lambda all_: all_[0].revision >= wanted)
        since_us = applied_us(said, wanted)
        assert since_us is not None
        assert since_us >= dead.revoked_us
        async with aiohttp.ClientSession() as http:
            headers = {"authorization": f"Bearer {text}"}
            async with http.get(f"{gateway.url}/v1/models", headers=headers) as reply:
                assert reply.status == 401


async def test_a_worker_whose_reports_cannot_be_stored_serves_on(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> None:
    async with RunningGateway(tmp_path, sqlite_url, upstreams) as gateway:
        key = await gateway.issue_key()
        database = open_database(gateway.settings.database_url, pooled=False)
        async with database.writing() as connection:
            await connection.exec_driver_sql("DROP TABLE workers")
        await database.close()
        gateway.loop.call_soon_threadsafe(gateway.plane._presence.wake.set)
        async with aiohttp.ClientSession() as http:
            headers = {"authorization": f"Bearer {key}"}
            body = {"model": "house-model", "messages": [{"role": "user", "content": "Hello."}]}
            for _ in range(3):
                async with http.post(
                    f"{gateway.url}/v1/chat/completions", json=body, headers=headers
                ) as reply:
                    assert reply.status == 200
