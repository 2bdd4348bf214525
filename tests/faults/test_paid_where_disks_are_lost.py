"""A worker's disk is lost while erased lines of its batches are at a vendor: each is paid once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.audit.projecting.projector import Projector
from gateway.audit.reckoning import ERASED
from gateway.cli.audit.gone import gone_end
from gateway.configuration.reading import load_settings
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.types import AuditRecord
from tests.conformance.test_batches import ended, make
from tests.faults.test_erased_at_vendors import Desk, asked
from tests.faults.test_gone_workers_batches import running
from tests.faults.test_killed_while_parked import ACCOUNTS, Books, by_another_worker
from tests.faults.test_kills import configured, issued
from tests.faults.test_native_batches import MORE, NATIVE, TOKENS, speaking
from tests.faults.test_stopped_workers import LEADS, stopping
from tests.free_ports import free_port
from tests.running_gateway import Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240), pytest.mark.postgres]
POINTS = {
    "while it was at its vendor": "parcel_journeys:ParcelJourneys:_collect",
    "while it was about to end": "lines:LineJourneys:deliver",
}


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    async with Upstreams() as upstreams:
        upstreams.openai.answer(TOKENS)
        yield upstreams


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.pacing.rhythm.BATCH_LEASES_S", 0.3)
    monkeypatch.setattr("gateway.batching.parcel_runner.GATHER_S", 3.0)
    monkeypatch.setattr("gateway.cli.audit.gone.SETTLE_S", 1.0)
    for module in ("retiring", "unended"):
        monkeypatch.setattr(f"gateway.store.evidence.{module}.GONE_AFTER_S", 0.0)


async def outcomes_of_lines(books: Books) -> list[AuditRecord]:
    """Each of another request."""
    sink = DatabaseAuditSink(books.database)
    rows = [row.projected.record async for row in sink.records(AuditQuery(stage="outcome"))]
    found = [each for each in rows if "batch" in each.detail]
    assert len(found) == len({each.request_id for each in found})
    return found


def order(config_file: Path) -> list[str]:
    """The command that says that the disk of the first is lost."""
    told = ["--reason", "its disk is lost", "--yes", "--config", str(config_file)]
    return ["w0", *told]


@pytest.mark.parametrize("when", POINTS)
async def test_an_erased_line_of_a_lost_disk_is_paid_once(
    tmp_path: Path, postgres_server: Any, upstreams: Upstreams, when: str
) -> None:
    database_url = postgres_server.create_migrated()
    port = free_port()
    more = MORE.partition("30.0")[2]
    config = await configured(tmp_path, database_url, upstreams, port, more=more, managed=NATIVE)
    settings = load_settings(config)
    key, url, books = await issued(settings), f"http://127.0.0.1:{port}", Books(settings)
    await books.limit()
    async with stopping(config, url, tmp_path / "told", POINTS[when], LEADS) as first:
        async with speaking(url, key) as client:
            batch = await make(client, asked("openai", "ann", "bob"))
            await first.until_stopped()
        # Its books when it is killed, which is right here: on a busy machine it may have
        # given some of its leases back, or booked the line that was not stopped.
        left = await books.budgets()
        _, staked = await books.parked()
    directory = settings.path(settings.audit.directory)
    await Projector(directory, DatabaseAuditSink(books.database)).catch_up()
    desk: Any = SimpleNamespace(settings=settings)
    await Desk(desk).erase("ann")
    (directory / "w0").rename(tmp_path / "lost")
    await by_another_worker(books)
    second = running(tmp_path, database_url, upstreams, managed=NATIVE)
    async with second as gateway, speaking(gateway.url, key) as client:
        await ended(client, await client.batches.retrieve(batch.id))
        for _ in range(2):  # Once more: what is on record and booked stays as it is.
            command = order(gateway.config_file)
            await asyncio.to_thread(gone_end.main, command, standalone_mode=False)
    outcomes = await outcomes_of_lines(books)
    (erased,) = [each for each in outcomes if each.error == ERASED]
    assert erased.cost_microusd > 0
    # What is noted as about to end was counted as spent with its lease; anything else went back.
    is_ending = when == "while it was about to end"
    back = 0 if is_ending else staked - sum(each.cost_microusd for each in outcomes)
    found = await books.budgets()
    for name in ACCOUNTS:
        counted = left[name].spent_microusd + left[name].leased_microusd
        assert found[name].spent_microusd == counted - back
    await books.database.close()
    postgres_server.drop(database_url)
