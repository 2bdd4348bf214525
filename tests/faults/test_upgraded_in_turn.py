"""Workers on one PostgreSQL, upgraded one after the other while they serve.

The newer program is this one with one more migration, and one more field in every record and in
every report. It runs in processes of its own.
"""

import asyncio
import json
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import select

import migrations
from gateway.audit.proving.verify import verify_directory
from gateway.audit.segments import read_entries
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.store.engine import Database, open_database
from gateway.store.schema.audit import audit_records
from gateway.store.schema.version import known_schemas
from gateway.store.workers import WorkerTable
from tests.faults.envelopes import PATHS, TERMINALS, ask
from tests.faults.test_kills import MAIN, configured, issued, until_ready
from tests.free_ports import free_port
from tests.running_gateway import BRISK_PROCESS, CLAUDE_TARGET, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.postgres, pytest.mark.timeout(300)]
OLD = known_schemas()[-1]
NEW = f"{int(OLD) + 1:04}"
LATER = b'"later":1'
CLIENTS = 4
ANSWERS = 12
"""So many are waited for between two steps."""
STEP = f'''"""One migration more."""
import sqlalchemy as sa
from alembic import op
revision = "{NEW}"
down_revision = "{OLD}"
branch_labels = depends_on = None
floor = "{{floor}}"
def upgrade():
    for table in ("audit_records", "workers", "budgets", "budget_leases"):
        op.add_column(table, sa.Column("later", sa.Text, nullable=False, server_default="x"))
def downgrade():
    for table in ("audit_records", "workers", "budgets", "budget_leases"):
        op.drop_column(table, "later")
'''
NEWER = """
import migrations, gateway.audit.entries as entries, gateway.oversight.workers as workers
migrations.__path__ = [{folder!r}]
def more(encode):
    return lambda *told: (raw := encode(*told), raw.replace(b'{{', b'{{"later":1,', 1))[1]
workers.encoded = more(workers.encoded)
encoded = entries.encode_record
entries.encode_record = lambda record: (
    (told := encoded(record))[0], b'{{"later":1,' + told[1][1:]
)
"""

HELD = """
import asyncio, pathlib, gateway.worker.following as following
publish = following.Following.publish
async def held(self):
    pathlib.Path({there!r}).touch()
    while not pathlib.Path({go!r}).exists():
        await asyncio.sleep(0.01)
    await publish(self)
following.Following.publish = held
"""
"""A start that rests, long after it looked at the schema."""
MUTE = """
import gateway.worker.presence as presence
async def report(self):
    pass
presence.Presence.report = report
"""
"""A worker whose first report is not due yet, however long a test takes."""


class Worker:
    """One data plane, as the program before or after."""

    def __init__(self, config_file: Path, port: int) -> None:
        self.config_file = config_file
        self.url = f"http://127.0.0.1:{port}"
        self._said = config_file.with_suffix(".log")
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, program: str = "") -> None:
        with self._said.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", f"{BRISK_PROCESS}{program}\n{MAIN}"),
                *("serve", "--config", str(self.config_file)),
                stderr=log,
            )

    async def ready(self) -> None:
        assert self._process is not None
        await until_ready(self._process, self.url)

    async def ends(self, how: str = "wait") -> int:
        """Its exit status; `how` may be to `terminate` or to `kill` it."""
        assert self._process is not None
        if how != "wait":
            getattr(self._process, how)()
        return await self._process.wait()

    async def gone(self) -> None:
        """However it was left."""
        if self._process is not None and self._process.returncode is None:
            await self.ends("kill")

    def said(self) -> list[str]:
        return self._said.read_text().splitlines()

    def heard(self, event: str) -> list[str]:
        """The reasons of one event of its log."""
        lines = (json.loads(line) for line in self.said())
        return [line["reason"] for line in lines if line["event"] == event]


class Balancer:
    """A load balancer and callers behind it: whom it takes out gets no new requests."""

    def __init__(self, workers: dict[str, Worker], key: str) -> None:
        self._workers, self._headers = workers, {"authorization": f"Bearer {key}"}
        self._under_way: Counter[str] = Counter()
        self._out = ""
        self.answered: Counter[str] = Counter()
        self.failed: list[str] = []

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[None]:
        http = aiohttp.ClientSession(headers=self._headers)
        async with http, asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._client(http, n)) for n in range(CLIENTS)]
            yield
            for task in tasks:
                task.cancel()

    async def _client(self, http: aiohttp.ClientSession, number: int) -> None:
        while True:
            number += 1
            serving = [name for name in sorted(self._workers) if name != self._out]
            name = serving[number % len(serving)]
            self._under_way[name] += 1
            try:
                await self._ask(http, name, stream=number % 3 == 0)
            except (aiohttp.ClientError, ConnectionError) as error:
                self.failed.append(f"{name}: {error!r}")
            finally:
                self._under_way[name] -= 1
            await asyncio.sleep(0.02)

    async def _ask(self, http: aiohttp.ClientSession, name: str, *, stream: bool) -> None:
        url = self._workers[name].url + PATHS["openai"]
        async with http.post(
            url, json=ask("openai", model=CLAUDE_TARGET, stream=stream)
        ) as response:
            seen = await response.read()
        if response.status != 200 or (stream and TERMINALS["openai"] not in seen):
            self.failed.append(f"{name}: {response.status} {seen[:300]!r}")
        self.answered[name] += 1

    async def serves(self) -> None:
        """Until each worker has answered for a while."""
        before = Counter(self.answered)
        while any(self.answered[name] < before[name] + ANSWERS for name in self._workers):
            await asyncio.sleep(0.01)

    async def restart(self, name: str, program: str = "", *, how: str = "terminate") -> None:
        """As another program: what it was asked before is answered, and new requests wait."""
        self._out = name
        while self._under_way[name]:
            await asyncio.sleep(0.01)
        await self._workers[name].ends(how)
        await self._workers[name].start(program)
        await self._workers[name].ready()
        self._out = ""
        await self.serves()


@pytest.fixture
def database_url(postgres_server: Any) -> Iterator[str]:
    url = postgres_server.create_migrated()
    yield url
    postgres_server.drop(url)


@asynccontextmanager
async def installed(
    folder: Path, database_url: str, upstreams: Upstreams
) -> AsyncIterator[dict[str, Worker]]:
    """Two workers of one installation on one machine; none has been started."""
    ports = free_port(), free_port()
    first = await configured(folder, database_url, upstreams, ports[0])
    text = first.read_text().replace(f"port = {ports[0]}", f"port = {ports[1]}")
    second = folder / "second.toml"
    second.write_text(text.replace('worker = "w0"', 'worker = "w1"'))
    workers = {"w0": Worker(first, ports[0]), "w1": Worker(second, ports[1])}
    try:
        yield workers
    finally:
        for worker in workers.values():
            await worker.gone()


def newer_program(folder: Path, floor: str) -> str:
    """Statements that make a process the newer program."""
    made = folder / "migrations"
    shutil.copytree(migrations.__path__[0], made)
    (made / "versions" / f"{NEW}_one_more.py").write_text(STEP.format(floor=floor))
    return NEWER.format(folder=str(made))


async def types(program: str, *arguments: str) -> tuple[int, str]:
    """How a command of the newer program ends, and what it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"{program}\n{MAIN}", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def heard_of(database: Database, worker: str, schema: str) -> None:
    """Wait for a report, read by the older program."""
    while True:
        for report in await WorkerTable(database).all():
            if (report.worker, report.schema, report.problems) == (worker, schema, ()):
                return
        await asyncio.sleep(0.05)


async def stored(database: Database, settings: Settings) -> dict[str, int]:
    """Records in the database, by how they are written, each as its segment has it."""
    folder = settings.path(settings.audit.directory)
    columns = [audit_records.c[name] for name in ("worker", "segment", "offset_bytes", "raw")]
    async with database.reading() as connection:
        rows = (await connection.execute(select(*columns))).all()
    places = [tuple(row[:3]) for row in rows]
    written = read_entries(folder, places)
    assert [bytes(row.raw) for row in rows] == [written[place] for place in places]
    later = sum(LATER in row.raw for row in rows)
    return {"older": len(rows) - later, "newer": later}


async def test_workers_are_upgraded_one_after_the_other_and_no_request_fails(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    newer = newer_program(tmp_path, floor=OLD)
    async with installed(tmp_path, database_url, own_upstreams) as workers:
        first, second = workers.values()
        settings = load_settings(first.config_file)
        database = open_database(database_url, pooled=False)
        balancer = Balancer(workers, await issued(settings))
        for name, worker in workers.items():
            await worker.start()
            await worker.ready()
            await heard_of(database, name, OLD)
        async with balancer.asked():
            await balancer.serves()
            config = ("--config", str(first.config_file))
            migrated = await types(newer, "database", "migrate", *config)
            checked = await types("", "config", "check", *config)
            await balancer.serves()
            await balancer.restart("w0", newer)
            await heard_of(database, "w0", NEW)
            # Something is wrong with it, so the older one takes its place, and its log.
            await balancer.restart("w0", how="kill")
            await heard_of(database, "w0", OLD)
            await balancer.restart("w1", newer)
        for worker in workers.values():
            await worker.ends("terminate")
        records = await stored(database, settings)
        await database.close()

    assert migrated == (0, f"schema: {NEW}\n")
    assert balancer.failed == []
    newer_said = f"the database has schema {NEW}, which is newer than this program's {OLD}"
    permitted = f"{newer_said} and permits it for now: upgrade this process"
    assert (checked[0], checked[1].split("\n")[0]) == (0, f"schema: {permitted}")
    assert (first.heard("schema:newer"), second.heard("schema:newer")) == ([permitted], [])
    assert verify_directory(settings.path(settings.audit.directory)).bad == ()
    assert min(records.values()) >= 2 * ANSWERS
    assert sum(records.values()) >= 2 * sum(balancer.answered.values())


async def test_a_schema_that_needs_newer_programs_waits_for_the_older_and_refuses_them(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    newer = newer_program(tmp_path, floor=NEW)
    async with installed(tmp_path, database_url, own_upstreams) as workers:
        worker = workers["w0"]
        config = ("--config", str(worker.config_file))
        database = open_database(database_url, pooled=False)
        await worker.start()
        await worker.ready()
        await heard_of(database, "w0", OLD)
        under_it = await types(newer, "database", "migrate", *config)
        await worker.ends("terminate")
        migrated = await types(newer, "database", "migrate", *config)
        await worker.start()
        status = await worker.ends()
        checked = await types("", "config", "check", *config)
        await database.close()

    refusal = (
        f"gatewright: the database has schema {NEW}, which is newer than this program's {OLD} and"
        f" needs {NEW} at least: upgrade this process"
    )
    assert under_it[0] == 2
    assert "need the schema as it is: w0. Stop them first" in under_it[1]
    assert migrated == (0, f"schema: {NEW}\n")
    assert (status, worker.said()) == (2, [refusal])
    assert checked == (2, f"{refusal}\n")


async def test_a_start_that_a_migration_overtook_is_refused_before_it_serves(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    newer = newer_program(tmp_path, floor=NEW)
    there, go = tmp_path / "there", tmp_path / "go"
    async with installed(tmp_path, database_url, own_upstreams) as workers:
        worker = workers["w0"]
        await worker.start(HELD.format(there=str(there), go=str(go)))
        while not there.exists():
            await asyncio.sleep(0.01)
        migrated = await types(newer, "database", "migrate", "--config", str(worker.config_file))
        go.touch()
        status = await worker.ends()
        database = open_database(database_url, pooled=False)
        rows = await WorkerTable(database).all()
        await database.close()

    assert migrated == (0, f"schema: {NEW}\n")
    assert status == 2
    (said,) = worker.said()
    assert f"needs {NEW} at least: upgrade this process" in said
    assert rows == []


async def test_a_worker_is_known_to_who_migrates_as_soon_as_it_serves(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    newer = newer_program(tmp_path, floor=NEW)
    async with installed(tmp_path, database_url, own_upstreams) as workers:
        worker = workers["w0"]
        await worker.start(MUTE)
        await worker.ready()
        under_it = await types(newer, "database", "migrate", "--config", str(worker.config_file))
        await worker.ends("terminate")

    assert under_it[0] == 2
    assert "need the schema as it is: w0. Stop them first" in under_it[1]
