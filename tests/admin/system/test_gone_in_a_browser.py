"""A worker is killed with open requests and its disk is lost: two people end them in a browser."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import func, select

from gateway.audit.projecting.projection import RETIRED
from gateway.audit.proving.checkpoints import OTHERS_NAME
from gateway.audit.reckoning import GONE
from gateway.clock import StoppedClock, SystemClock
from gateway.identity import Peppers
from gateway.oversight.access import Grant
from gateway.secrets.credentials import pepper
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.identity.people import PeopleStore
from gateway.store.schema.audit import audit_records
from gateway.types import AuditRecord
from tests.admin import seeding
from tests.admin.chromium import Window, window
from tests.admin.listener import ON_BOTH, Listener
from tests.faults.test_kills import serving
from tests.free_ports import free_port
from tests.running_gateway import BRISK_PROCESS
from tests.upstreams import Answer, RecordingUpstream


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(240)]
SLOW = """
[data_plane]
port = {port}
[providers.slow]
kind = "engine"
base_url = "{url}"
jurisdiction = "in-house"
[targets.slow]
provider = "slow"
model = "fake-model"
catalogue = "in-house"
"""
LONG_S = 1_000.0
WHY = "its machine burnt down"


@pytest.fixture
async def upstream() -> AsyncIterator[RecordingUpstream]:
    """It takes requests and never answers."""
    async with RecordingUpstream() as upstream:
        upstream.answer(Answer(fault="hang"))
        yield upstream
        await upstream.stop()


class Lost:
    """The worker `w0` of a listener's own configuration."""

    def __init__(self, listener: Listener, port: int) -> None:
        self.listener = listener
        self._url = f"http://127.0.0.1:{port}"
        self.directory = listener.settings.path(listener.settings.audit.directory)

    async def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        order = [sys.executable, "-m", "gateway", *words]
        order += ["--config", str(self.listener.config_file)]
        return await asyncio.to_thread(
            subprocess.run, order, capture_output=True, text=True, check=False, timeout=60
        )

    async def key(self) -> str:
        async with self.listener.database() as database:
            peppers = Peppers({1: pepper(self.listener.settings)})
            keys = KeyStore(database, peppers, SystemClock())
            return (await keys.issue(NewKey(Place("acme", "lab", "bot"), "a", "test"))).reveal()

    async def leave(self, upstream: RecordingUpstream) -> None:
        """Killed while two requests wait for their answers, and then its folder is deleted."""
        key = await self.key()
        async with serving(self.listener.config_file, self._url, BRISK_PROCESS) as process:
            asking = [asyncio.create_task(self._ask(key)) for _ in range(2)]
            async with asyncio.timeout(60):
                while len(upstream.requests) < 2 or await self._begun() < 2:
                    await asyncio.sleep(0.05)
            # As the pages of operations say: kept where this machine does not lose it.
            keys = await self.command("audit", "key")
            process.kill()
            await process.wait()
            await asyncio.gather(*asking)
        (self.directory / OTHERS_NAME).write_text(keys.stdout, encoding="utf-8")
        shutil.rmtree(self.directory / "w0")

    async def _ask(self, key: str) -> None:
        body = {"model": "slow", "messages": [{"role": "user", "content": "hello"}]}
        headers = {"authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(headers=headers) as http:
            with suppress(aiohttp.ClientError):
                await http.post(f"{self._url}/v1/chat/completions", json=body)

    async def _begun(self) -> int:
        query = select(func.count()).where(audit_records.c.stage == "intent")
        async with self.listener.database() as database, database.reading() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def outcomes(self) -> list[AuditRecord]:
        async with self.listener.database() as database:
            rows = DatabaseAuditSink(database, self.directory).records(AuditQuery(stage="outcome"))
            return [row.projected.record async for row in rows]

    async def is_retired(self) -> bool:
        async with self.listener.database() as database:
            return (await DatabaseAuditSink(database).positions())["w0"] == RETIRED


async def asks(seen: Window) -> None:
    """Petra, who may also agree, but not to her own."""
    await seen.sign_in("petra", seeding.PASSWORD)
    await seen.open("/system/gone")
    await seen.page.click("main a:text-is('w0')")
    await seen.page.fill("#field-reason", WHY)
    await seen.page.click("text=Ask to retire it for good")
    await seen.page.wait_for_selector("text=You requested this, so another person must decide.")
    assert await seen.page.locator("text=Agree: retire it for good").count() == 0
    assert await seen.page.locator("text=Withdraw it").count() == 1


async def agrees(seen: Window) -> None:
    """Anton, from the first page on."""
    await seen.sign_in("anton", seeding.PASSWORD)
    await seen.page.click("text=petra requests to retire the worker w0")
    await seen.page.fill("#field-reason", "the data centre confirmed it")
    await seen.page.click("text=Agree: retire it for good")
    await seen.page.wait_for_selector("text=Retired by anton")


@pytest.mark.long
@ON_BOTH
async def test_two_people_end_what_a_killed_worker_left_whose_folder_is_deleted(
    tmp_path: Path, listener_url: str, upstream: RecordingUpstream
) -> None:
    port = free_port()
    listener = Listener(tmp_path, listener_url, SLOW.format(port=port, url=upstream.url))
    listener.clock = StoppedClock(SystemClock().utc_us())
    async with listener:
        lost = Lost(listener, port)
        await lost.leave(upstream)
        listener.clock.advance(LONG_S)
        await seeding.person(listener, "petra", "platform_admin")
        await seeding.person(listener, "anton", "approver")
        async with listener.database() as database:
            await PeopleStore(database, listener.clock).grant("petra", Grant("approver", "*"))
        async with window(listener) as seen:
            await asks(seen)
            assert not await lost.is_retired()
            assert seen.problems == []
        async with window(listener, theme="dark", width=390) as seen:
            await agrees(seen)
            assert await seen.violations() == []
            assert seen.problems == []
        await check_ended(lost, is_shared=listener_url.startswith("postgresql"))


async def check_ended(lost: Lost, *, is_shared: bool) -> None:
    """The name is retired, and each request ended where the database still knows its intent."""
    assert await lost.is_retired()
    found: list[Any] = [(each.error, each.detail["worker"]) for each in await lost.outcomes()]
    assert found == ([(GONE, "w0")] * 2 if is_shared else [])
    verified = await lost.command("audit", "verify", "--directory", str(lost.directory))
    assert verified.returncode == 0, verified.stdout
    if is_shared:  # SQLite reads its records from segments, of which some are lost.
        checked = await lost.command("audit", "fsck")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert "open:" not in checked.stdout
    started = await lost.command("serve")
    assert started.returncode != 0
    assert "this name was retired" in started.stderr
