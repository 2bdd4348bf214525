"""SIGKILL to a data plane under 64 clients: every end that a caller saw is recorded, once.

And every request that an upstream saw has its intent. `make faults` kills fifty times.
"""

import asyncio
import json
import os
import random
import re
import secrets
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from gateway.audit.disk import Disk
from gateway.audit.projecting.export import export_records, segment_rows
from gateway.audit.proving.checkpoints import verifier_keys
from gateway.audit.proving.exported import CheckpointFiles
from gateway.audit.proving.fsck import SignedRoots, check_signed
from gateway.audit.proving.verify import verify_directory
from gateway.cli.init import prepare
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.identity import Peppers
from gateway.secrets.credentials import master_key, pepper
from gateway.store.engine import open_database
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.identity.keys import KeyStore, NewKey
from tests.faults.envelopes import PATHS, TERMINALS, ask
from tests.free_ports import free_port
from tests.running_gateway import CLAUDE_TARGET, CONFIG, DEMO, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(3600)]
KILLS = int(os.environ.get("GATEWRIGHT_FAULT_SIGKILLS", "1"))
CLIENTS = 64
MAIN = "import sys, gateway.__main__; sys.exit(gateway.__main__.main())"
MARK = re.compile(r"mark \d+ end")


class Clients:
    """Sixty-four of them: half stream, each request carries a mark of its own."""

    def __init__(self, url: str, key: str) -> None:
        self._url, self._headers = url, {"authorization": f"Bearer {key}"}
        self.ended: list[str] = []
        """Ids of requests whose caller saw the end of a good answer."""
        self.sent = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with aiohttp.ClientSession() as http:
            tasks = [asyncio.create_task(self._client(http, n)) for n in range(CLIENTS)]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _client(self, http: aiohttp.ClientSession, number: int) -> None:
        while True:
            try:
                await self._ask(http, stream=number % 2 == 0)
            except (aiohttp.ClientError, ConnectionError):
                await asyncio.sleep(0.05)

    async def _ask(self, http: aiohttp.ClientSession, *, stream: bool) -> None:
        self.sent += 1
        message = {"role": "user", "content": f"mark {self.sent} end"}
        body = ask("openai", model=CLAUDE_TARGET, stream=stream, messages=[message])
        url = self._url + PATHS["openai"]
        async with http.post(url, json=body, headers=self._headers) as response:
            request_id = response.headers["x-request-id"]
            seen = await response.read()
        if response.status == 200 and (not stream or TERMINALS["openai"] in seen):
            self.ended.append(request_id)


@asynccontextmanager
async def serving(
    config_file: Path, url: str, more: str = ""
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The data plane as a process of its own, ready; killed at the end if it still lives.

    `more` are statements that it obeys before it starts.
    """
    started = ("-c", f"{more}\n{MAIN}") if more else ("-m", "gateway")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *started, "serve", "--config", str(config_file)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await until_ready(process, url)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until_ready(process: asyncio.subprocess.Process, url: str) -> None:
    async with aiohttp.ClientSession() as http:
        while not await _is_ready(http, url):
            assert process.returncode is None, "it ended instead of getting ready"
            await asyncio.sleep(0.05)


async def _is_ready(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(f"{url}/health/ready") as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False


async def configured(
    folder: Path,
    database_url: str,
    upstreams: Upstreams,
    port: int,
    *,
    more: str = "",
    managed: str = "",
) -> Path:
    (folder / "var").mkdir()
    key_file = folder / "var" / "upstream.key"
    key_file.touch(mode=0o600)
    key_file.write_text(f"up-{secrets.token_hex(8)}")
    text = CONFIG.format(
        database_url=database_url,
        engine_url=upstreams.engine.url,
        anthropic_url=upstreams.anthropic.url,
        openai_url=upstreams.openai.url,
        worker="w0",
        more=f"[inspection]\ndeadline_s = 30.0\n{more}",
        managed=managed,
    )
    config_file = folder / "gatewright.toml"
    config_file.write_text(text.replace("port = 0", f"port = {port}"))
    await prepare(folder, config_file.name)
    return config_file


async def issued(settings: Settings) -> str:
    database = open_database(settings.database_url, pooled=False)
    try:
        keys = KeyStore(database, Peppers({1: pepper(settings)}), SystemClock())
        return (await keys.issue(NewKey(DEMO, "test", "a test"))).reveal()
    finally:
        await database.close()


async def test_kills_under_64_clients_lose_and_double_nothing(
    tmp_path: Path,
    sqlite_url: str,
    own_upstreams: Upstreams,
    capsys: pytest.CaptureFixture[str],
) -> None:
    port, dice = free_port(), random.Random(11)
    url = f"http://127.0.0.1:{port}"
    sink = '[sinks.archive]\nkind = "jsonl"\nfile = "archive.jsonl"\n'
    config_file = await configured(tmp_path, sqlite_url, own_upstreams, port, more=sink)
    settings = load_settings(config_file)
    clients = Clients(url, await issued(settings))
    for _ in range(KILLS):
        async with serving(config_file, url) as process, clients.running():
            before = len(clients.ended)
            while len(clients.ended) < before + CLIENTS:
                await asyncio.sleep(0.01)
            await asyncio.sleep(dice.uniform(0.0, 0.5))
            process.kill()
            await process.wait()
    archive = tmp_path / "archive.jsonl"
    async with serving(config_file, url):
        # A last start finds the end of the log, numbers what was left, and delivers it.
        while not delivered(archive) or max(delivered(archive)) < await numbers(settings):
            await asyncio.sleep(0.1)

    folder = settings.path(settings.audit.directory)
    assert verify_directory(folder).bad == ()
    lines = [
        line
        async for line in export_records(
            segment_rows(folder), directory=folder, keys=master_key(settings)
        )
    ]
    outcomes = Counter(line["request_id"] for line in lines if line["stage"] == "outcome")
    lost = set(clients.ended) - set(outcomes)
    doubled = [request for request, count in outcomes.items() if count > 1]
    begun = {line["request_id"] for line in lines if line["stage"] == "intent"}
    left_open = begun - set(outcomes)
    cut_off = [line for line in lines if line["error"] == "worker_crashed"]
    intents = [str(line.get("content")) for line in lines if line["stage"] == "intent"]
    recorded = set(MARK.findall(" ".join(intents)))
    marks = [MARK.findall(call.body.decode())[0] for call in own_upstreams.anthropic.calls]
    unrecorded = [mark for mark in marks if mark not in recorded]
    numbered, taken = await numbers(settings), delivered(archive)
    checkpoints = await contradictions(settings)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{KILLS} kills, {CLIENTS} clients: {len(clients.ended)} ends seen, lost "
            f"{len(lost)}, doubled {len(doubled)}; {len(marks)} upstream calls, "
            f"without an intent {len(unrecorded)}; cut off {len(cut_off)}, "
            f"left open {len(left_open)}; {checkpoints[0]} checkpoints, contradictions "
            f"{len(checkpoints[1])}; to the sink {len(taken)} of {numbered} records, "
            f"again {len(taken) - len(set(taken))}\n"
        )
    assert (lost, doubled, unrecorded, left_open) == (set(), [], [], set())
    assert not {line["request_id"] for line in cut_off} & set(clients.ended)
    # Each start but the first signs what the life before it left, in two places.
    assert (checkpoints[0] >= 2 * KILLS, checkpoints[1]) == (True, [])
    assert set(taken) == set(range(1, numbered + 1))
    assert numbered == len([line for line in lines if line["organisation"] == DEMO.organisation])


def delivered(archive: Path) -> list[int]:
    """Numbers of the records that a sink got, in its order; a kill may have cut off a line."""
    found = []
    for line in archive.read_bytes().splitlines() if archive.exists() else ():
        with suppress(ValueError):
            told = json.loads(line)
            if told["organisation"] == DEMO.organisation and "sequence" in told:
                found.append(told["sequence"])
    return found


async def contradictions(settings: Settings) -> tuple[int, list[str]]:
    """All checkpoints of the database and outside of it, against the records themselves."""
    database = open_database(settings.database_url, pooled=False)
    folder, name = settings.path(settings.audit.directory), DEMO.organisation
    signed = SignedRoots(name, verifier_keys(folder))
    try:
        trees = DatabaseAuditTrees(database)
        files = CheckpointFiles(settings.path(settings.audit.checkpoint_directory), Disk())
        signed.add(await trees.between(name, 0, 2**62)).add(filter(None, files.every(name)))
        rows = DatabaseAuditSink(database, folder).records(AuditQuery(organisation=name))
        _, bad = await check_signed(signed, rows, trees)
    finally:
        await database.close()
    return signed.count, [str(bad)] if bad else []


async def numbers(settings: Settings) -> int:
    """How many records the database has numbered, without a gap."""
    database = open_database(settings.database_url, pooled=False)
    try:
        sink = DatabaseAuditSink(database, settings.path(settings.audit.directory))
        query = AuditQuery(organisation=DEMO.organisation)
        found = [row.sequence async for row in sink.records(query)]
    finally:
        await database.close()
    assert found == list(range(1, len(found) + 1))
    return len(found)
