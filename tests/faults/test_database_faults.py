"""The database stops, dies, freezes, turns read-only or is locked: requests go on, nothing is lost.

Rows 5 to 14 of the fault matrix. `make faults` stops it for 30 seconds and kills it twenty times.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import asyncpg
import pytest
from sqlalchemy.engine import make_url

from gateway.audit.disk import Disk
from gateway.audit.segments import segment_path
from gateway.errors import NotReady
from gateway.store.engine import open_database
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.types import AuditRecord
from tests.faults.envelopes import Caller, Reply, ask, check_error, untouched
from tests.faults.own_postgres import OwnPostgres, own_postgres
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.postgres, pytest.mark.timeout(600)]
OUTAGE_S = float(os.environ.get("GATEWRIGHT_FAULT_OUTAGE_S", "0.5"))
KILLS = int(os.environ.get("GATEWRIGHT_FAULT_KILLS", "1"))
CALLERS = 8
MEASURED = int(os.environ.get("GATEWRIGHT_FAULT_MEASURED", "8"))
"""Requests before and after a device fails whose times are compared."""
ACCOUNT = "org:acme"


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as server:
        yield server


@pytest.fixture
def url(server: OwnPostgres) -> Iterator[str]:
    url = server.create_migrated()
    yield url
    server.drop(url)


@pytest.fixture
async def running(
    tmp_path: Path, url: str, own_upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    more = "append_deadline_s = 3.0"
    async with RunningGateway(tmp_path, url, own_upstreams, more=more) as gateway:
        yield gateway


@pytest.fixture
async def one(running: RunningGateway, http: aiohttp.ClientSession) -> Caller:
    return Caller(running, http, await running.issue_key())


def say(capsys: pytest.CaptureFixture[str], figures: str) -> None:
    """Print figures although the log of the gateway is not shown."""
    with capsys.disabled():
        sys.stdout.write(f"\n{figures}\n")


def p99_ms(ascending: list[float]) -> str:
    return f"{ascending[int(len(ascending) * 0.99)] * 1000:.0f} ms"


def p50_ms(ascending: list[float]) -> str:
    return f"{ascending[len(ascending) // 2] * 1000:.0f} ms"


async def issue_until_refused(gateway: RunningGateway) -> None:
    """The server hears of a setting a moment after it was told."""
    while True:
        await gateway.issue_key()


def question(*, stream: bool = False) -> dict[str, object]:
    return ask("openai", model=CLAUDE_TARGET, stream=stream)


class Load:
    """Callers who ask again and again, and what they were told."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.replies: list[Reply] = []
        self.took_s: list[float] = []
        self._is_over = False

    async def _ask(self, number: int) -> None:
        while not self._is_over:
            begun_s = time.monotonic()
            reply = await self._caller.post("openai", question(stream=number % 2 == 0))
            self.replies.append(reply)
            self.took_s.append(time.monotonic() - begun_s)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Load"]:
        tasks = [asyncio.create_task(self._ask(number)) for number in range(CALLERS)]
        try:
            yield self
        finally:
            self._is_over = True
            await asyncio.gather(*tasks)

    async def goes_on(self, count: int) -> None:
        """Until so many more requests were answered."""
        wanted = len(self.replies) + count
        while len(self.replies) < wanted:
            await asyncio.sleep(0.01)

    @property
    def served(self) -> set[str]:
        return {reply.request_id for reply in self.replies if reply.status == 200}


async def numbered(gateway: RunningGateway) -> list[AuditRecord]:
    """What the database has of the log, in its order."""
    database = open_database(gateway.settings.database_url, pooled=False)
    try:
        sink = DatabaseAuditSink(database, gateway.audit_folder)
        rows = [row async for row in sink.records(AuditQuery(organisation="acme"))]
        assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))
        return [row.projected.record for row in rows]
    finally:
        await database.close()


async def until_numbered(gateway: RunningGateway, wanted: set[str]) -> None:
    """Until every one of these requests has its outcome there, and none has two."""
    while True:
        try:
            records = await numbered(gateway)
        except NotReady:
            records = []
        outcomes = [record.request_id for record in records if record.stage == "outcome"]
        if wanted <= set(outcomes):
            break
        await asyncio.sleep(0.1)
    assert len(outcomes) == len(set(outcomes))


async def test_requests_go_on_while_the_database_is_stopped_and_the_backlog_drains(
    running: RunningGateway,
    one: Caller,
    server: OwnPostgres,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await running.limit(ACCOUNT, 10**9)
    async with Load(one).running() as load:
        await load.goes_on(2 * CALLERS)
        server.stop()
        try:
            await asyncio.sleep(OUTAGE_S)
            await load.goes_on(CALLERS)
            with pytest.raises((NotReady, OSError)):
                await running.issue_key()
        finally:
            server.start()
        await load.goes_on(CALLERS)
    assert {reply.status for reply in load.replies} == {200}
    await until_numbered(running, load.served)
    spent = sum(r.cost_microusd for r in await numbered(running) if r.stage == "outcome")
    while (left := running.budget_left((ACCOUNT,))) != 10**9 - spent:
        assert left is not None
        await asyncio.sleep(0.05)
    say(capsys, f"stopped for {OUTAGE_S:g} s: {len(load.replies)} requests, all served, none lost")


async def until_ready_is(running: RunningGateway, http: aiohttp.ClientSession, status: int) -> str:
    """How long that takes, in words."""
    begun_s = time.monotonic()
    while True:
        async with http.get(f"{running.url}/health/ready") as response:
            if response.status == status:
                return f"{time.monotonic() - begun_s:.1f} s"
        await asyncio.sleep(0.02)


async def test_a_killed_database_comes_back_without_a_stuck_pool(
    running: RunningGateway,
    one: Caller,
    server: OwnPostgres,
    capsys: pytest.CaptureFixture[str],
) -> None:
    longest_s = 0.0
    async with Load(one).running() as load:
        for _ in range(KILLS):
            await load.goes_on(CALLERS)
            server.kill()
            await load.goes_on(CALLERS)
            server.start()
            started_s = time.monotonic()
            await until_numbered(running, load.served)
            longest_s = max(longest_s, time.monotonic() - started_s)
    assert {reply.status for reply in load.replies} == {200}
    await until_numbered(running, load.served)
    say(
        capsys,
        f"killed {KILLS} times: {len(load.replies)} requests, all served, none lost; "
        f"all numbered {longest_s:.1f} s after a start at most",
    )


async def test_a_database_that_turned_read_only_is_left_and_found_again(
    running: RunningGateway,
    one: Caller,
    server: OwnPostgres,
    http: aiohttp.ClientSession,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with Load(one).running() as load:
        await load.goes_on(CALLERS)
        await until_ready_is(running, http, 200)
        with server.read_only():
            noticed = await until_ready_is(running, http, 503)
            with pytest.raises(NotReady):
                await issue_until_refused(running)
            await load.goes_on(4 * CALLERS)
        found = await until_ready_is(running, http, 200)
        await until_numbered(running, load.served)
    # What can be served is served; who balances load sends new requests elsewhere meanwhile.
    assert {reply.status for reply in load.replies} == {200}
    await running.issue_key()
    say(capsys, f"read-only: noticed after {noticed}, ready again after {found}")


async def test_a_locked_or_frozen_database_holds_no_request_up(
    running: RunningGateway,
    one: Caller,
    server: OwnPostgres,
    url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    holder = await asyncpg.connect(_plain(url))
    count = max(4 * CALLERS, MEASURED)
    async with Load(one).running() as load:
        await load.goes_on(count)
        usual = len(load.replies)
        async with holder.transaction():
            # One table: several are locked one after the other, and a worker between them would
            # wait for one of them while this waits for what the worker has.
            await holder.execute("LOCK TABLE audit_records")
            await load.goes_on(count)
        locked = len(load.replies)
        with server.frozen():
            await load.goes_on(count)
        frozen = len(load.replies)
        await until_numbered(running, load.served)
    await holder.close()
    assert {reply.status for reply in load.replies} == {200}
    slowest = [
        p99_ms(sorted(load.took_s[first:last]))
        for first, last in ((0, usual), (usual, locked), (locked, frozen))
    ]
    say(capsys, "p99 {}, with its tables locked {}, frozen {}".format(*slowest))


async def test_when_all_connections_are_taken_requests_go_on_and_operators_are_refused(
    running: RunningGateway,
    one: Caller,
    server: OwnPostgres,
    url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    held: list[asyncpg.Connection] = []
    async with Load(one).running() as load:
        with pytest.raises(asyncpg.PostgresError):
            await take_all(url, held)
        begun_s = time.monotonic()
        with pytest.raises(NotReady):
            await running.issue_key()
        say(capsys, f"no connection left: refused after {time.monotonic() - begun_s:.2f} s")
        await load.goes_on(4 * CALLERS)
        for connection in held:
            await connection.close()
        await until_numbered(running, load.served)
    assert {reply.status for reply in load.replies} == {200}


async def test_when_a_workers_own_connections_are_taken_callers_are_refused_in_time(
    running: RunningGateway,
    one: Caller,
    http: aiohttp.ClientSession,
    capsys: pytest.CaptureFixture[str],
) -> None:
    database = running.plane._database
    listed, headers = f"{running.url}/v1/batches", one.headers("openai")
    held = AsyncExitStack()

    async def asked() -> tuple[int, float]:
        begun_s = time.monotonic()
        async with http.get(listed, headers=headers) as answer:
            await answer.read()
            return answer.status, time.monotonic() - begun_s

    async def take() -> None:
        """On the gateway's own loop, until there is none left."""
        with suppress(NotReady):
            while True:
                _ = await held.enter_async_context(database.reading())

    await running.does(take())
    found = await asyncio.gather(*(asked() for _ in range(CALLERS)))
    reply = await one.post("openai", question())
    await running.does(held.aclose())
    slowest_s = max(took_s for _, took_s in found)
    say(capsys, f"own connections taken: refused after {slowest_s:.2f} s at most")
    assert {status for status, _ in found} == {503}
    assert slowest_s < 2.0
    assert reply.status == 200
    assert (await asked())[0] == 200


async def take_all(url: str, held: list[asyncpg.Connection]) -> None:
    while True:
        held.append(await asyncpg.connect(_plain(url)))


def is_carried(gateway: RunningGateway) -> bool:
    """Whether the second device took the last record."""
    return gateway.plane._evidence.is_carried


class BadDisk(Disk):
    """A disk that hangs or fails from some moment on."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.is_full = False

    def sync(self, descriptor: int) -> None:
        self.goes_on.wait()
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().sync(descriptor)


@pytest.fixture
def disk(running: RunningGateway) -> Iterator[BadDisk]:
    """The running worker's, from now on."""
    disk = BadDisk()
    running.plane._audit._device._disk = disk
    yield disk
    disk.goes_on.set()
    disk.is_full = False


@pytest.mark.parametrize("how", ["hangs", "is_full"])
async def test_while_the_audit_disk_cannot_the_database_carries_the_log(
    running: RunningGateway,
    one: Caller,
    disk: BadDisk,
    capsys: pytest.CaptureFixture[str],
    how: str,
) -> None:
    async with Load(one).running() as load:
        await load.goes_on(MEASURED)
        before = len(load.replies)
        if how == "hangs":
            disk.goes_on.clear()
        else:
            disk.is_full = True
        await load.goes_on(4 * CALLERS)
        assert is_carried(running)
        after = len(load.replies)
        await load.goes_on(MEASURED)
        until = len(load.replies)
        disk.goes_on.set()
        disk.is_full = False
        while is_carried(running):
            await asyncio.sleep(0.02)
    assert {reply.status for reply in load.replies} == {200}
    await until_numbered(running, load.served)
    usual, meanwhile, carried = (
        sorted(load.took_s[first:last])
        for first, last in ((0, before), (before, after), (after, until))
    )
    # Whoever came while the device hung waited for its deadline once, and nobody after that.
    assert max(meanwhile) < 2 * running.settings.audit.append_deadline_s
    assert max(carried) < running.settings.audit.append_deadline_s
    say(
        capsys,
        f"disk {how}: p99 {p99_ms(usual)}, at first {p99_ms(meanwhile)}, then "
        f"{p99_ms(carried)} (p50 {p50_ms(usual)} and {p50_ms(carried)})",
    )
    receipts = [reply.headers["x-gatewright-receipt"] for reply in load.replies]
    assert len({receipt.split(".")[0] for receipt in receipts}) == 2


async def test_with_neither_disk_nor_database_nothing_is_sent_and_both_are_found_again(
    running: RunningGateway,
    own_upstreams: Upstreams,
    one: Caller,
    server: OwnPostgres,
    disk: BadDisk,
) -> None:
    disk.is_full = True
    server.stop()
    try:
        replies = await asyncio.gather(*(one.post("openai", question()) for _ in range(CALLERS)))
        for reply in replies:
            check_error(reply, "openai", "audit_unavailable")
        assert untouched(own_upstreams)
    finally:
        server.start()
    while (await one.post("openai", question())).status != 200:
        await asyncio.sleep(0.05)
    assert is_carried(running)
    disk.is_full = False
    while is_carried(running):
        await one.post("openai", question())


async def test_a_segment_deleted_under_load_loses_no_numbered_record(
    running: RunningGateway, one: Caller
) -> None:
    async with Load(one).running() as load:
        await load.goes_on(2 * CALLERS)
        segment, _ = running.plane._audit.position
        segment_path(running.audit_folder / "w0", segment).unlink()
        gone_s = time.monotonic()
        while running.plane._audit.position[0] == segment:
            await load.goes_on(CALLERS)
        assert time.monotonic() - gone_s < 5.0
        await load.goes_on(4 * CALLERS)
    assert {reply.status for reply in load.replies} == {200}
    await until_numbered(running, load.served)


def _plain(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


async def test_a_server_that_hangs_keeps_nobody_who_closes_what_is_idle(
    server: OwnPostgres, url: str
) -> None:
    """A supervisor kills whoever waits half a minute for each connection to say goodbye."""
    database = open_database(url)
    async with database.reading(), database.reading():
        pass
    with server.frozen():
        async with asyncio.timeout(20.0):
            await database.close()
