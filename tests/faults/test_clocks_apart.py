"""Workers whose clocks differ by minutes: leases end by the database's, each line is sent once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs

from gateway.configuration.reading import load_settings
from tests.conformance.test_batches import make
from tests.faults.test_gone_workers_batches import HASTY, Killed, check_whole, running
from tests.faults.test_kills import configured, issued, serving
from tests.faults.test_native_batches import MORE, TOKENS, asking, live_calls, speaking
from tests.free_ports import free_port
from tests.running_gateway import Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(180)]
OFF = """
import gateway.clock
own = gateway.clock.SystemClock.utc_us
gateway.clock.SystemClock.utc_us = lambda clock: own(clock) + {off_s} * 1_000_000
"""
LEASES = 3.5
"""Seconds that a call takes: longer than a lease, which has to be kept meanwhile."""


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    async with Upstreams() as upstreams:
        yield upstreams


@pytest.fixture(autouse=True)
def _is_hasty_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.pacing.rhythm.BATCH_LEASES_S", 0.3)
    monkeypatch.setattr("gateway.store.batching.lines.LEASE_US", 3_000_000)


@pytest.mark.parametrize("off_s", [300, -300])
async def test_neither_takes_what_the_other_is_sending(
    tmp_path: Path, database_url: str, upstreams: Upstreams, off_s: int
) -> None:
    hold, port = asyncio.Event(), free_port()
    upstreams.openai.answer(structs.replace(TOKENS, hold=hold))
    more = MORE.partition("30.0")[2]
    config_file = await configured(tmp_path, database_url, upstreams, port, more=more)
    key, url = await issued(load_settings(config_file)), f"http://127.0.0.1:{port}"
    async with (
        serving(config_file, url, HASTY + OFF.format(off_s=off_s)),
        running(tmp_path, database_url, upstreams, managed="") as gateway,
        speaking(url, key) as client,
    ):
        batch = await make(client, asking(16))
        async with asyncio.timeout(60):
            while len(live_calls(upstreams)) < 16:
                await asyncio.sleep(0.05)
        await asyncio.sleep(LEASES)
        hold.set()
        left = Killed(config_file, key, batch.id)
        batch, found = await left.ended(gateway)
        ends = await left.until_all_have_ended()
    assert (batch.status, len(found)) == ("completed", 16)
    assert {each.error for each in ends.values()} == {""}
    assert len(live_calls(upstreams)) == len(ends) == 16
    check_whole(left)


@pytest.mark.long
@pytest.mark.parametrize("off_s", [300, -300])
async def test_who_dies_leaves_lines_that_the_other_takes_when_their_leases_are_over(
    tmp_path: Path, database_url: str, upstreams: Upstreams, off_s: int
) -> None:
    hold, port = asyncio.Event(), free_port()
    upstreams.openai.answer(structs.replace(TOKENS, hold=hold))
    more = MORE.partition("30.0")[2]
    config_file = await configured(tmp_path, database_url, upstreams, port, more=more)
    key, url = await issued(load_settings(config_file)), f"http://127.0.0.1:{port}"
    skewed = HASTY + OFF.format(off_s=off_s)
    async with serving(config_file, url, skewed) as worker, speaking(url, key) as client:
        batch = await make(client, asking(4))
        async with asyncio.timeout(60):
            while len(live_calls(upstreams)) < 4:
                await asyncio.sleep(0.05)
        worker.kill()
        await worker.wait()
    hold.set()
    left = Killed(config_file, key, batch.id)
    async with running(tmp_path, database_url, upstreams, managed="") as gateway:
        async with asyncio.timeout(30):
            batch, found = await left.ended(gateway)
    assert (batch.status, len(found)) == ("completed", 4)
    assert len(live_calls(upstreams)) == 8
