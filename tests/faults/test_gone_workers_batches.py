"""A killed worker never comes back: another one completes its batches, and its records."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.audit.projecting.projector import Projector
from gateway.audit.proving.verify import verify_directory
from gateway.audit.reckoning import ERASED, GONE
from gateway.cli.audit.gone import gone_end
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.parcels import PARCEL_PREFIX
from gateway.providers.parcels.scripted import ParcelFaults
from gateway.store.engine import open_database
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.evidence.unended import Unended, UnendedReader
from gateway.types import AuditRecord
from tests.conformance.test_batches import ended, make
from tests.faults.test_erased_at_vendors import Desk, asked
from tests.faults.test_kills import configured, issued, serving
from tests.faults.test_native_batches import (
    MORE,
    NATIVE,
    TOKENS,
    all_results,
    asking,
    live_calls,
    records_in,
    speaking,
)
from tests.free_ports import free_port
from tests.running_gateway import BRISK_PROCESS, RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(180)]

HASTY = f"""{BRISK_PROCESS}
import gateway.store.batching.lines, gateway.store.batching.parcel_rows
gateway.pacing.rhythm.BATCH_LEASES_S = 0.3
gateway.store.batching.lines.LEASE_US = 3_000_000
gateway.store.batching.parcel_rows.TEND_US = 3_000_000
"""
"""A data plane whose leases are short: whoever takes over need not wait for half a minute."""


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    async with Upstreams() as upstreams:
        upstreams.openai.answer(TOKENS)
        yield upstreams


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.pacing.rhythm.GONE_WORKERS_S", 0.3)
    monkeypatch.setattr("gateway.store.evidence.gone_workers.GONE_AFTER_S", 1.0)
    monkeypatch.setattr("gateway.pacing.rhythm.LOOSE_ENDS_S", 0.3)
    monkeypatch.setattr("gateway.pacing.rhythm.BATCH_LEASES_S", 0.3)
    monkeypatch.setattr("gateway.batching.parcel_runner.GATHER_S", 3.0)


@asynccontextmanager
async def process(config_file: Path, url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A whole data plane of its own, killed at the end if it still lives."""
    async with serving(config_file, url, HASTY) as process:
        yield process


class Killed:
    """A batch that a worker had begun when it was killed."""

    def __init__(self, config_file: Path, key: str, batch_id: str) -> None:
        self.config_file = config_file
        self.settings: Settings = load_settings(config_file)
        self.key = key
        self.batch_id = batch_id

    async def records(self) -> list[AuditRecord]:
        folder = self.settings.path(self.settings.audit.directory)
        return [each for each in await records_in(folder) if "batch" in each.detail]

    async def ended(self, gateway: RunningGateway) -> tuple[Any, dict[str, Any]]:
        """How the batch ended with another worker, and its results."""
        async with speaking(gateway.url, self.key) as client:
            batch = await ended(client, await client.batches.retrieve(self.batch_id))
            return batch, await all_results(client, batch)

    async def until_all_have_ended(self) -> dict[str, AuditRecord]:
        """Outcomes by request, when each intent has one; and each has no more than one.

        What a vendor was sent twice costs something, and was never let through.
        """
        async with asyncio.timeout(60):
            while True:
                records = await self.records()
                counts = Counter((each.stage, each.request_id) for each in records)
                assert set(counts.values()) == {1}
                begun = {each.request_id for each in records if each.stage == "intent"}
                ends = {each.request_id: each for each in records if each.stage == "outcome"}
                ends = {name: ends[name] for name in ends if not name.startswith(PARCEL_PREFIX)}
                assert set(ends) <= begun
                if set(ends) == begun:
                    return ends
                await asyncio.sleep(0.1)


async def killed(
    folder: Path,
    database_url: str,
    upstreams: Upstreams,
    lines: list[bytes],
    is_time: Callable[[], bool],
    managed: str = NATIVE,
) -> Killed:
    """The worker `w0` begins a batch and is killed when it is time."""
    port = free_port()
    more = MORE.partition("30.0")[2]
    config_file = await configured(
        folder, database_url, upstreams, port, more=more, managed=managed
    )
    key, url = await issued(load_settings(config_file)), f"http://127.0.0.1:{port}"
    async with process(config_file, url) as worker, speaking(url, key) as client:
        batch = await make(client, lines)
        while not is_time():
            await asyncio.sleep(0.02)
        worker.kill()
        await worker.wait()
    return Killed(config_file, key, batch.id)


@asynccontextmanager
async def running(
    folder: Path, database_url: str, upstreams: Upstreams, worker: str = "w1", managed: str = NATIVE
) -> AsyncIterator[RunningGateway]:
    async with RunningGateway(
        folder, database_url, upstreams, more=MORE, managed=managed, worker=worker
    ) as gateway:
        yield gateway


async def test_lines_that_were_being_sent_are_sent_again_and_what_was_cut_off_has_an_outcome(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    hold = asyncio.Event()
    upstreams.openai.answer_once(*[TOKENS] * 4)
    upstreams.openai.answer(structs.replace(TOKENS, hold=hold))
    left = await killed(
        *(tmp_path, database_url, upstreams, asking(16), lambda: len(live_calls(upstreams)) >= 12),
        managed="",
    )
    hold.set()
    upstreams.openai.answer(TOKENS)
    begun = {each.request_id for each in await left.records() if each.stage == "intent"}
    async with running(tmp_path, database_url, upstreams, managed="") as gateway:
        batch, found = await left.ended(gateway)
        ends = await left.until_all_have_ended()
    assert (batch.status, len(found)) == ("completed", 16)
    assert {wire["response"]["status_code"] for wire in found.values()} == {200}
    gone = {name for name, each in ends.items() if each.error == GONE}
    assert len(gone) >= 8
    assert gone < begun
    intents = {each.request_id: each for each in await left.records() if each.stage == "intent"}
    for name in gone:
        assert (ends[name].status, ends[name].detail["outcome"]) == ("incomplete", "unknown")
        assert ends[name].cost_microusd == intents[name].reserved_microusd > 0
        assert ends[name].detail["line"] == intents[name].detail["line"]
    # Every line was answered once, by an upstream call with an outcome of its own.
    answered = {wire["response"]["request_id"] for wire in found.values()}
    assert len(answered) == 16
    assert not answered & gone
    # It comes back in spite of all, and finds nothing left to end.
    async with running(tmp_path, database_url, upstreams, "w0", managed="") as gateway:
        async with asyncio.timeout(60):
            while gateway.plane._audit.open.lines():
                await asyncio.sleep(0.05)
    assert await left.until_all_have_ended() == ends
    check_whole(left)


async def test_what_is_at_a_vendor_is_followed_by_the_other_and_has_one_outcome(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    vendor = upstreams.openai.batches
    vendor.faults = ParcelFaults(is_slow=True)
    left = await killed(tmp_path, database_url, upstreams, asking(6), lambda: vendor.looks > 0)
    begun = {each.request_id for each in await left.records() if each.stage == "intent"}
    async with running(tmp_path, database_url, upstreams) as gateway:
        looks = vendor.looks
        async with asyncio.timeout(60):
            while vendor.looks < looks + 3:  # While it waits, nothing of it is ended.
                await asyncio.sleep(0.05)
        assert [each.stage for each in await left.records()] == ["intent"] * 6
        vendor.faults = ParcelFaults()
        batch, found = await left.ended(gateway)
        ends = await left.until_all_have_ended()
    assert (batch.status, len(found)) == ("completed", 6)
    assert (vendor.made, live_calls(upstreams)) == (1, [])
    assert set(ends) == begun
    assert {(each.status, each.error) for each in ends.values()} == {("ok", "")}
    told = {wire["gatewright"]["cost_microusd"] for wire in found.values()}
    assert told == {each.cost_microusd for each in ends.values()}
    check_whole(left)


@pytest.mark.long
async def test_a_line_that_was_erased_meanwhile_is_ended_by_the_other_too(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    vendor = upstreams.openai.batches
    vendor.faults = ParcelFaults(is_slow=True)
    lines = asked("openai", "ann", "bob")
    left = await killed(tmp_path, database_url, upstreams, lines, lambda: vendor.looks > 0)
    async with running(tmp_path, database_url, upstreams) as gateway:
        await Desk(gateway).erase("ann")
        vendor.faults = ParcelFaults()
        batch, _ = await left.ended(gateway)
        ends = await left.until_all_have_ended()
    assert batch.status == "completed"
    (erased,) = [each for each in ends.values() if each.error == ERASED]
    assert (erased.status, erased.detail["line"]) == ("cancelled", "1")
    check_whole(left)


def check_whole(left: Killed) -> None:
    report = verify_directory(left.settings.path(left.settings.audit.directory))
    assert (report.bad, report.open_intents) == ((), 0)


@pytest.mark.long
@pytest.mark.postgres
async def test_where_its_disk_is_lost_an_operator_ends_what_the_database_knows(
    tmp_path: Path, postgres_server: Any, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.create_migrated()
    for module in ("retiring", "unended"):
        monkeypatch.setattr(f"gateway.store.evidence.{module}.GONE_AFTER_S", 0.0)
    monkeypatch.setattr("gateway.cli.audit.gone.SETTLE_S", 1.0)
    hold = asyncio.Event()
    upstreams.openai.answer(structs.replace(TOKENS, hold=hold))
    left = await killed(
        *(tmp_path, url, upstreams, asking(4), lambda: len(live_calls(upstreams)) >= 4), managed=""
    )
    hold.set()
    upstreams.openai.answer(TOKENS)
    directory = left.settings.path(left.settings.audit.directory)
    database = open_database(url)
    sink = DatabaseAuditSink(database)
    await Projector(directory, sink).catch_up()
    begun = {each.request_id for each in await left.records()}
    (directory / "w0").rename(tmp_path / "lost")
    async with running(tmp_path, url, upstreams, managed="") as gateway:
        batch, found = await left.ended(gateway)
        (said,) = await until_counted(UnendedReader(database, SystemClock()))
        order = [
            "w0",
            "--reason",
            "its disk is lost",
            "--yes",
            "--config",
            str(gateway.config_file),
        ]
        await asyncio.to_thread(gone_end.main, order, standalone_mode=False)
    assert (batch.status, len(found)) == ("completed", 4)
    assert (said.worker, said.requests) == ("w0", 4)
    rows = [row.projected.record async for row in sink.records(AuditQuery(stage="outcome"))]
    assert Counter(each.request_id for each in rows).most_common(1)[0][1] == 1
    gone = [each for each in rows if each.error == GONE]
    assert {each.request_id for each in gone} == begun
    assert all(each.cost_microusd > 0 and each.detail["worker"] == "w0" for each in gone)
    # Its disk comes back: nobody hears it, and nobody starts under its name.
    (tmp_path / "lost").rename(directory / "w0")
    assert await Projector(directory, sink).catch_up() == 0
    with pytest.raises(AssertionError, match="instead of getting ready"):
        async with process(left.config_file, "http://127.0.0.1:1"):
            pass
    await database.close()
    postgres_server.drop(url)


async def until_counted(reader: UnendedReader) -> list[Unended]:
    """What is said on the page of workers, when the batch of the lines is over."""
    async with asyncio.timeout(60):
        while not (found := await reader.kept()):
            await asyncio.sleep(0.1)
    return found


async def test_what_was_cut_off_is_not_called_erased_when_its_batch_is_over(
    tmp_path: Path, database_url: str, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is over has no lines any more, as if they had been erased."""
    hold = asyncio.Event()
    upstreams.openai.answer(structs.replace(TOKENS, hold=hold))
    monkeypatch.setattr("gateway.pacing.rhythm.GONE_WORKERS_S", 3600.0)
    left = await killed(
        *(tmp_path, database_url, upstreams, asking(3), lambda: len(live_calls(upstreams)) >= 3),
        managed="",
    )
    hold.set()
    upstreams.openai.answer(TOKENS)
    async with running(tmp_path, database_url, upstreams, managed="") as gateway:
        await left.ended(gateway)
        gone = gateway.plane._integration._gone
        assert gone is not None
        for _ in range(2):
            await gateway.does(gone.tend())
    ends = await left.until_all_have_ended()
    assert sorted(each.error for each in ends.values()) == ["", "", "", GONE, GONE, GONE]
