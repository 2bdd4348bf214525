"""A stopped worker loses its work to another one, and then resumes as if nothing had happened.

It is a real process, stopped by SIGSTOP at a given step and woken by SIGCONT: everything it then
tries to write or send is refused, each line has one outcome and one end, and is paid once.
"""

import asyncio
import os
import shutil
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import ColumnElement, func, select

from gateway.audit.proving.verify import verify_directory
from gateway.configuration.reading import load_settings
from gateway.errors import LeaseOver
from gateway.oversight.homes import BY_LABEL
from gateway.parcels import PARCEL_PREFIX
from gateway.providers.parcels.openai import OpenAIParcels
from gateway.providers.parcels.scripted import ParcelFaults
from gateway.store.engine import Database, open_database
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.money.spending import Period, SpendingReader
from gateway.store.schema.audit import audit_records
from gateway.store.schema.parcels import parcels
from gateway.types import AuditRecord
from tests.conformance.test_batches import make
from tests.faults.test_gone_workers_batches import HASTY, Killed, check_whole, running
from tests.faults.test_killed_while_parked import Books, by_another_worker
from tests.faults.test_kills import MAIN, configured, issued, until_ready
from tests.faults.test_native_batches import (
    MORE,
    NATIVE,
    TOKENS,
    asking,
    live_calls,
    records_in,
    speaking,
)
from tests.free_ports import free_port
from tests.running_gateway import RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(240)]

STOPS = """
import asyncio, os, pathlib, signal
from gateway import errors
from gateway.audit import second
from gateway.batching import lines, parcel_journeys, parcel_runner, pipeline, runner
from gateway.oversight import deeds
from gateway.providers.parcels import anthropic as anthropic_parcels
from gateway.providers.parcels import openai as openai_parcels
from gateway.providers.parcels import post as parcel_post
from gateway.store.batching import parcels, parked_lines
from gateway.store.evidence import sink
from gateway.store.money import late_bookings
parcel_journeys.SUBMIT_S = {submit_s!r}
point, step, told, go = {point!r}, {step!r}, pathlib.Path({told!r}), pathlib.Path({go!r})
has_stopped = []

def stopping(owner, name):
    call = getattr(owner, name)
    async def stops(*given, **named):
        if any(getattr(each, "stage", "outcome") != "outcome" for each in given):
            return await call(*given, **named)  # Of what goes into the log it is how lines end.
        is_first = not has_stopped
        has_stopped.append(name)
        # Woken only to let go of a lock, it goes no step further; nor does another line of its.
        while not go.exists():
            if is_first:
                os.kill(os.getpid(), signal.SIGSTOP)
            await asyncio.sleep(0.01)
        return await call(*given, **named)
    setattr(owner, name, stops)

def telling(owner, name):
    call = getattr(owner, name)
    async def tells(*given, **named):
        try:
            return await call(*given, **named)
        finally:
            if has_stopped:
                told.touch()
    setattr(owner, name, tells)

def failing(owner, name, error, is_before):
    call, failed = getattr(owner, name), []
    async def fails(*given, **named):
        done = None if is_before and not failed else await call(*given, **named)
        if has_stopped and not failed:
            failed.append(name)
            raise error
        return done if not is_before or failed else await call(*given, **named)
    setattr(owner, name, fails)

def silencing(owner, name):
    call = getattr(owner, name)
    async def tells_later(self, batch, *given, **named):
        while any(each.record.stage == "outcome" for each in batch) and not go.exists():
            await asyncio.sleep(0.01)
        return await call(self, batch, *given, **named)
    setattr(owner, name, tells_later)

def found(path):
    module, owner, name = path.split(":")
    return getattr(globals()[module], owner), name

stopping(*found(point))
telling(*found(step))
for each, error, is_before in {fails!r}:
    failing(*found(each), getattr(errors, error)("It is away."), is_before)
if {is_silent!r}:
    silencing(sink.DatabaseAuditSink, "store")
"""
"""A data plane that stops itself at a step, and tells when what it was about is over."""
WITHIN = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
"""
"""Sessions that are in a transaction: who is stopped there may hold what others need."""
LEADS = "parcel_runner:ParcelRunner:_lead"
SENDS = "runner:BatchRunner:_send"
WAKES = 40
"""So often one is woken for a moment: long enough for a line that could slip by to be paid."""
Fault = tuple[str, str, bool]
"""A step, the error with which it fails once after the stop, and whether nothing was done then."""
AWAY: Sequence[Fault] = (
    ("parcels:ParcelStore:found_late", "NotReady", True),
    ("late_bookings:LateBookings:book", "NotReady", False),
    ("parcels:ParcelStore:follow_stray", "NotReady", False),
    ("deeds:Deeds:record", "AuditUnavailable", True),
)


class Stopped:
    """A worker that has stopped itself."""

    def __init__(self, process: asyncio.subprocess.Process, told: Path, go: Path, url: str) -> None:
        self._process = process
        self._told = told
        self._go = go
        self._database_url = url

    async def until_stopped(self, wakes: int = 0) -> None:
        """And holds no lock of a database whose locks are its own; woken so often before."""
        async with asyncio.timeout(60):
            while True:
                while not self._is_stopped():
                    assert self._process.returncode is None
                    await asyncio.sleep(0.02)
                if wakes <= 0 and await self._leaves_the_database_alone():
                    return
                wakes -= 1
                self._process.send_signal(signal.SIGCONT)

    async def wake(self) -> None:
        """Until what it was about is over for it."""
        self._go.touch()
        self._process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(60):
            while not self._told.exists():
                assert self._process.returncode is None
                await asyncio.sleep(0.02)

    async def leave(self) -> None:
        """In good order, and with all that it has to say in the database."""
        self._process.terminate()
        assert await asyncio.wait_for(self._process.wait(), 60) in {0, -signal.SIGTERM}

    def _is_stopped(self) -> bool:
        status = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8")
        return status.rpartition(")")[2].split()[0] == "T"

    async def _leaves_the_database_alone(self) -> bool:
        if not self._database_url.startswith("sqlite"):
            connection = await asyncpg.connect(self._database_url.replace("+asyncpg", ""))
            try:
                return not await connection.fetchval(WITHIN)
            finally:
                await connection.close()
        path = self._database_url.partition("///")[2]
        with closing(sqlite3.connect(path, timeout=0.2)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            connection.rollback()
        return True


@asynccontextmanager
async def stopping(
    config_file: Path,
    url: str,
    told: Path,
    point: str,
    step: str,
    submit_s: float = 300.0,
    fails: Sequence[Fault] = (),
    is_silent: bool = False,
) -> AsyncIterator[Stopped]:
    """With `is_silent`, no outcome of its log reaches the database before it is woken."""
    go = told.with_name("go")
    what = {"point": point, "step": step, "told": str(told), "go": str(go)}
    how = {"submit_s": submit_s, "fails": tuple(fails), "is_silent": is_silent}
    code = HASTY + STOPS.format(**what, **how) + MAIN
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code, "serve", "--config", str(config_file)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await until_ready(process, url)
        database_url = load_settings(config_file).database_url
        yield Stopped(process, told, go, database_url)
    finally:
        if process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    async with Upstreams() as upstreams:
        upstreams.openai.answer(TOKENS)
        yield upstreams


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.pacing.rhythm.BATCH_LEASES_S", 0.3)
    monkeypatch.setattr("gateway.batching.parcel_runner.GATHER_S", 3.0)


class World:
    """Two workers on one database, of which the first stops itself."""

    def __init__(self, folder: Path, config_file: Path, upstreams: Upstreams, managed: str) -> None:
        self.folder = folder
        self.config_file = config_file
        self.settings = load_settings(config_file)
        self.upstreams = upstreams
        self.managed = managed
        self.books = Books(self.settings)
        self.leased_microusd = self.staked_microusd = 0
        """What the first had of the account when its leases were written off, and for lines."""

    async def taken_over(
        self,
        url: str,
        point: str,
        step: str,
        count: int,
        *,
        written_off: bool = False,
        submit_s: float = 300.0,
        fails: Sequence[Fault] = (),
        early: Callable[[], Awaitable[None]] | None = None,
        late: Callable[[Stopped, RunningGateway], Awaitable[None]] | None = None,
        machine: Path | None = None,
    ) -> tuple[Any, dict[str, Any], Killed]:
        """The first stops at a point, the second ends the batch, then the first goes on.

        It goes on before that where there is something to be waited for `early`; `late` wakes it
        in another way than by just doing so. The second is on a `machine` of its own, which shares
        keys and the database, where that is named: what the first wrote is nowhere for it.
        """
        key = await issued(self.settings)
        await self.books.limit()
        told = self.folder / "told"
        how = (submit_s, fails, machine is not None)
        async with stopping(self.config_file, url, told, point, step, *how) as first:
            async with speaking(url, key) as client:
                batch = await make(client, asking(count))
                await first.until_stopped(WAKES if written_off else 0)
            left = Killed(self.config_file, key, batch.id)
            if written_off:
                budgets = await self.books.budgets()
                self.leased_microusd = budgets["org:acme"].leased_microusd
                _, self.staked_microusd = await self.books.parked()
                await by_another_worker(self.books)
            database_url = self.settings.database_url
            if machine is not None:
                kept = shutil.ignore_patterns("audit")
                shutil.copytree(self.folder / "var", machine / "var", ignore=kept)
            folder = machine or self.folder
            second = running(folder, database_url, self.upstreams, managed=self.managed)
            async with second as gateway:
                if early is not None:
                    await early()
                    await first.wake()
                batch, found = await left.ended(gateway)
                if late is not None:
                    await late(first, gateway)
                elif early is None:
                    await first.wake()
                await first.leave()
        return batch, found, left

    async def spent(self) -> int:
        """Of one account; nothing is leased any more."""
        found = await self.books.budgets()
        assert {row.leased_microusd for row in found.values()} == {0}
        return found["org:acme"].spent_microusd


async def world(
    folder: Path, database_url: str, upstreams: Upstreams, managed: str
) -> tuple[World, str]:
    port = free_port()
    more = MORE.partition("30.0")[2]
    config_file = await configured(
        folder, database_url, upstreams, port, more=more, managed=managed
    )
    return World(folder, config_file, upstreams, managed), f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("point", "written_off"),
    [
        ("parked_lines:ParkedLineStore:begin_ending", False),
        ("parked_lines:ParkedLineStore:begin_ending", True),
        ("lines:LineJourneys:deliver", False),
        ("lines:LineJourneys:deliver", True),
        ("parked_lines:ParkedLineStore:end", False),
    ],
)
async def test_a_parcel_that_was_taken_over_is_ended_once(
    tmp_path: Path, database_url: str, upstreams: Upstreams, point: str, written_off: bool
) -> None:
    two, url = await world(tmp_path, database_url, upstreams, NATIVE)
    batch, found, left = await two.taken_over(url, point, LEADS, 4, written_off=written_off)
    assert (batch.status, len(found)) == ("completed", 4)
    assert (upstreams.openai.batches.made, live_calls(upstreams)) == (1, [])
    ends = await left.until_all_have_ended()
    assert [each.error for each in ends.values()] == [""] * 4
    told = {wire["response"]["request_id"]: wire["gatewright"] for wire in found.values()}
    costs = {name: each.cost_microusd for name, each in ends.items()}
    assert {name: each["cost_microusd"] for name, each in told.items()} == costs
    spent = sum(costs.values())
    if written_off:
        # What it held idle counts as spent, and of its lines what it had just begun to end.
        is_ending = point == "lines:LineJourneys:deliver"
        spent = two.leased_microusd + (0 if is_ending else spent - two.staked_microusd)
    assert await two.spent() == spent > 0
    check_whole(left)


async def check_each_counts_once(two: World, ends: int, count: int) -> None:
    """So many outcomes are in the log, and of each line the first is its price, everywhere."""
    database = open_database(two.settings.database_url, pooled=False)
    reader, sink = SpendingReader(database, BY_LABEL), DatabaseAuditSink(database)
    try:
        async with asyncio.timeout(60):
            while len(await ended_again(database)) < ends - count:
                await asyncio.sleep(0.1)
        rows = [row async for row in sink.records(AuditQuery(organisation="acme"))]
        assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))
        (total,) = await reader.totals(Period(0, 2**62, "acme"), ["organisation"])
        assert total.requests == count
        assert await two.spent() == total.cost_microusd > 0
        assert {
            each.ledger_microusd - each.audit_microusd for each in await reader.differences()
        } == {0}
        assert len(await ended_again(database)) == ends - count
    finally:
        await database.close()


async def ended_again(database: Database) -> Sequence[str]:
    query = select(audit_records.c.request_id).where(audit_records.c.stage == "again")
    async with database.reading() as connection:
        return (await connection.execute(query)).scalars().all()


async def test_an_outcome_that_is_written_after_anothers_is_on_record_and_counts_nowhere(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    """Stopped behind its last look at its lease: nothing outside the database can refuse that."""
    point = "second:TwoDeviceLog:append"
    two, url = await world(tmp_path, database_url, upstreams, NATIVE)
    batch, found, left = await two.taken_over(url, point, LEADS, 3)
    assert (batch.status, len(found)) == ("completed", 3)
    assert (upstreams.openai.batches.made, live_calls(upstreams)) == (1, [])
    outcomes = [each for each in await left.records() if each.stage == "outcome"]
    assert set(Counter(each.request_id for each in outcomes).values()) <= {1, 2}
    assert (again := len(outcomes) - 3) > 0
    await check_each_counts_once(two, len(outcomes), 3)
    report = verify_directory(left.settings.path(left.settings.audit.directory))
    assert (report.bad, report.open_intents) == ((), 0)
    assert any(note.startswith(f"{again} outcomes are of requests that") for note in report.notes)


@pytest.mark.postgres
async def test_an_outcome_that_nobody_could_read_in_time_counts_nowhere_either(
    tmp_path: Path, postgres_server: Any, upstreams: Upstreams
) -> None:
    """On another machine, stopped before the database had what it wrote."""
    url_of = postgres_server.create_migrated()
    point = "parked_lines:ParkedLineStore:end"
    (tmp_path / "one").mkdir()
    two, url = await world(tmp_path / "one", url_of, upstreams, NATIVE)
    batch, found, _ = await two.taken_over(url, point, LEADS, 3, machine=tmp_path / "two")
    assert (batch.status, len(found)) == ("completed", 3)
    await check_each_counts_once(two, 6, 3)


async def test_a_parcel_that_was_taken_over_goes_to_its_vendor_once(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    vendor, point = upstreams.openai.batches, "parcels:ParcelStore:begin_sending"
    two, url = await world(tmp_path, database_url, upstreams, NATIVE)
    batch, found, left = await two.taken_over(url, point, LEADS, 3)
    assert (batch.status, len(found)) == ("completed", 3)
    assert (vendor.made, live_calls(upstreams)) == (1, [])
    ends = await left.until_all_have_ended()
    assert await two.spent() == sum(each.cost_microusd for each in ends.values()) > 0
    check_whole(left)


async def test_a_parcel_that_leaves_after_its_lines_went_again_is_cancelled_and_accounted(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    """Stopped between its last look at its time and the vendor's call: no vendor can refuse that.

    It is cancelled and deleted there, on record, and costs what was set aside; also where the
    database and the log are away for a moment just then.
    """
    vendor, point = upstreams.openai.batches, "openai_parcels:OpenAIParcels:submit"
    two, url = await world(tmp_path, database_url, upstreams, NATIVE)

    async def followed(first: Stopped, gateway: RunningGateway) -> None:
        vendor.faults = ParcelFaults(is_slow=True)
        await first.wake()
        async with asyncio.timeout(60):
            while vendor.cancelled != ["batch_v2"] or vendor.files:
                await asyncio.sleep(0.05)
            while await rows_of_parcels(gateway.settings.database_url):
                await asyncio.sleep(0.05)

    options: dict[str, Any] = {"submit_s": 3.0, "late": followed, "fails": AWAY}
    batch, found, left = await two.taken_over(url, point, LEADS, 3, **options)
    assert (batch.status, len(found)) == ("completed", 3)
    assert (vendor.made, live_calls(upstreams)) == (2, [])
    ends = await left.until_all_have_ended()
    intents = [each for each in await left.records() if each.stage == "intent"]
    again_microusd = sum(each.reserved_microusd for each in intents)
    (deed,) = await sent_twice(two)
    said = {name: deed.detail[name] for name in ("batch", "vendor_batch", "lines", "cost_microusd")}
    assert said == {
        "batch": batch.id,
        "vendor_batch": "batch_v2",
        "lines": "3",
        "cost_microusd": str(again_microusd),
    }
    assert (deed.detail["organisation"], deed.actor) == ("acme", "gateway")
    twice = [each for each in await left.records() if each.request_id.startswith(PARCEL_PREFIX)]
    assert sum(each.cost_microusd for each in twice) == again_microusd
    assert {(each.detail["batch"], each.detail["native_batch"]) for each in twice} == {
        (batch.id, "batch_v2")
    }
    assert await two.spent() == sum(each.cost_microusd for each in ends.values()) + again_microusd
    check_whole(left)


async def test_a_parcel_that_leaves_while_another_worker_looks_for_it_is_the_one_that_counts(
    tmp_path: Path, database_url: str, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its vendor's list shows it late: what it answered says that it has it."""

    async def shows_nothing(*_: object) -> None:
        return None

    monkeypatch.setattr("gateway.batching.parcel_journeys.LOOKS_MIN", 10**6)
    monkeypatch.setattr(OpenAIParcels, "find", shows_nothing)
    vendor, point = upstreams.openai.batches, "openai_parcels:OpenAIParcels:submit"
    two, url = await world(tmp_path, database_url, upstreams, NATIVE)

    async def until_looked_for() -> None:
        async with asyncio.timeout(60):
            while not await rows_of_parcels(two.settings.database_url, parcels.c.tries > 0):
                await asyncio.sleep(0.02)

    options: dict[str, Any] = {"submit_s": 3.0, "early": until_looked_for}
    batch, found, left = await two.taken_over(url, point, LEADS, 3, **options)
    assert (batch.status, len(found)) == ("completed", 3)
    assert (vendor.made, live_calls(upstreams)) == (1, [])
    ends = await left.until_all_have_ended()
    assert await sent_twice(two) == []
    assert await two.spent() == sum(each.cost_microusd for each in ends.values()) > 0
    check_whole(left)


async def test_a_parcel_that_was_found_read_and_deleted_meanwhile_was_sent_once(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    """Stopped between its vendor's answer and writing that down, for as long as all of it took."""
    vendor, point = upstreams.openai.batches, "parcels:ParcelStore:note"
    two, url = await world(tmp_path, database_url, upstreams, NATIVE)

    async def late(first: Stopped, gateway: RunningGateway) -> None:
        async with asyncio.timeout(60):
            while await rows_of_parcels(gateway.settings.database_url):
                await asyncio.sleep(0.05)
        await first.wake()

    options: dict[str, Any] = {"submit_s": 3.0, "late": late}
    batch, found, left = await two.taken_over(url, point, LEADS, 3, **options)
    assert (batch.status, len(found)) == ("completed", 3)
    assert (vendor.made, vendor.cancelled, vendor.files) == (1, [], {})
    ends = await left.until_all_have_ended()
    assert await sent_twice(two) == []
    assert await rows_of_parcels(two.settings.database_url) == 0
    assert await two.spent() == sum(each.cost_microusd for each in ends.values()) > 0
    check_whole(left)


async def sent_twice(two: World) -> list[AuditRecord]:
    folder = two.settings.path(two.settings.audit.directory)
    return [each for each in await records_in(folder) if each.action == "batch.sent_twice"]


async def rows_of_parcels(database_url: str, *which: ColumnElement[bool]) -> int:
    database = open_database(database_url, pooled=False)
    try:
        async with database.reading() as connection:
            query = select(func.count()).select_from(parcels).where(*which)
            return int((await connection.execute(query)).scalar_one())
    finally:
        await database.close()


async def test_a_line_that_was_taken_over_before_it_was_sent_is_sent_once(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    two, url = await world(tmp_path, database_url, upstreams, "")
    point = "pipeline:BatchPipeline:complete"
    batch, found, left = await two.taken_over(url, point, SENDS, 1)
    assert (batch.status, len(found)) == ("completed", 1)
    assert len(live_calls(upstreams)) == 1
    ends = await left.until_all_have_ended()
    by_code = {each.error: each for each in ends.values()}
    assert set(by_code) == {"", LeaseOver.code}
    assert by_code[LeaseOver.code].cost_microusd == 0
    (wire,) = found.values()
    assert wire["response"]["request_id"] == by_code[""].request_id
    assert await two.spent() == by_code[""].cost_microusd > 0
    check_whole(left)


async def test_a_line_that_was_taken_over_while_it_was_sent_ends_once(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    """Its vendor had it twice, and charges for both: the call that was given up says so."""
    upstreams.openai.answer_once(TOKENS)
    two, url = await world(tmp_path, database_url, upstreams, "")
    point = "runner:BatchRunner:_end"
    batch, found, left = await two.taken_over(url, point, SENDS, 1)
    assert (batch.status, len(found)) == ("completed", 1)
    assert len(live_calls(upstreams)) == 2
    ends = await left.until_all_have_ended()
    assert [each.status for each in ends.values()] == ["ok", "ok"]
    (wire,) = found.values()
    assert wire["response"]["request_id"] in ends
    assert await two.spent() == sum(each.cost_microusd for each in ends.values()) > 0
    assert len(await records_in(two.settings.path(two.settings.audit.directory))) >= 4
    check_whole(left)
