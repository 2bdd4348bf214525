"""An operator replaces the master key while requests are served: what was said stays readable."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gateway.audit.content_keys.keys import read_keys
from gateway.audit.projecting.export import export_records, segment_rows
from gateway.clock import SystemClock
from gateway.secrets.credentials import master_key
from gateway.secrets.envelope import create_key_file
from gateway.secrets.secret import Secret
from gateway.store.engine import open_database
from gateway.store.sealing.sealed_secrets import SealedSecretTable
from tests.faults.envelopes import Caller, ask
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.either]
SECRETS = """
[secrets]
master_key = {{ file = "var/{present}.key" }}
other_master_keys = [{others}]
refresh_s = 0.05
"""


class House:
    """One gateway after another, over the same folder and database."""

    def __init__(self, folder: Path, database_url: str, upstreams: Upstreams) -> None:
        self._folder, self._url, self._upstreams = folder, database_url, upstreams

    @asynccontextmanager
    async def under(self, present: str, *others: str) -> AsyncIterator[RunningGateway]:
        """A worker with this master key, and these beside it."""
        named = ", ".join(f'{{ file = "var/{name}.key" }}' for name in others)
        more = SECRETS.format(present=present, others=named)
        gateway = RunningGateway(self._folder, self._url, self._upstreams, more=more)
        text = gateway.config_file.read_text()
        in_file = 'credential = { file = "var/upstream.key" }'
        gateway.config_file.write_text(text.replace(in_file, 'credential = { db = "claude" }', 1))
        async with gateway:
            yield gateway


async def contents(gateway: RunningGateway) -> list[str]:
    """What can be read of what was recorded."""
    rows = export_records(
        segment_rows(gateway.audit_folder),
        directory=gateway.audit_folder,
        keys=master_key(gateway.settings),
    )
    found = [line async for line in rows]
    assert not any("content_error" in line for line in found)
    return [str(line["content"]) for line in found if "content" in line]


async def resealed(gateway: RunningGateway) -> str:
    """The command, as a process beside the worker."""
    words = ("-m", "gateway", "secrets", "reseal", "--config", str(gateway.config_file))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    return output.decode()


@asynccontextmanager
async def asking(caller: Caller, body: dict[str, object]) -> AsyncIterator[list[int]]:
    """Requests one after another, some before and some after what is done meanwhile."""
    statuses: list[int] = []
    ended = asyncio.Event()

    async def traffic() -> None:
        while not ended.is_set():
            statuses.append((await caller.post("openai", body)).status)

    async def more() -> None:
        served = len(statuses)
        while len(statuses) == served:
            await asyncio.sleep(0.01)

    task = asyncio.create_task(traffic())
    await more()
    yield statuses
    await more()
    ended.set()
    await task


async def test_requests_go_on_while_the_master_key_is_replaced_and_nothing_is_lost(
    tmp_path: Path, database_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    house, body = House(tmp_path, database_url, upstreams), ask("openai", model=CLAUDE_TARGET)
    async with house.under("old") as gateway:
        key = await gateway.issue_key()
        database = open_database(gateway.settings.database_url)
        table = SealedSecretTable(database, master_key(gateway.settings), SystemClock())
        await table.seal("claude", Secret("value-of-an-upstream"), "a test")
        await database.close()
        await gateway.reaches_all()
        assert (await Caller(gateway, http, key).post("openai", body)).status == 200
        said = await contents(gateway)
        assert said

    create_key_file(tmp_path / "var" / "next.key")
    async with house.under("next", "old") as gateway:
        await gateway.reaches_all()
        async with asking(Caller(gateway, http, key), body) as statuses:
            told = await resealed(gateway)
        assert set(statuses) == {200}
        assert "secrets: 1 sealed anew" in told
        assert "(secrets.other_master_keys[0]): nothing hangs on it" in told
        both = await contents(gateway)
        assert both[: len(said)] == said
        assert len(both) > len(said)
        lines = read_keys(gateway.audit_folder / gateway.settings.audit.worker)
        assert {line.master for line in lines} == {master_key(gateway.settings).key_id}

    async with house.under("next") as gateway:
        await gateway.reaches_all()
        assert (await Caller(gateway, http, key).post("openai", body)).status == 200
        assert (await contents(gateway))[: len(both)] == both
