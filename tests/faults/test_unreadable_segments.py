"""A killed worker starts again with an unreadable segment: it serves, and catches up later.

Money set aside counts as spent meanwhile and afterwards, once; the outcome comes when the segment
can be read.
"""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import select

from gateway.audit.reckoning import CRASHED, ERASED
from gateway.audit.segments import segment_path
from gateway.configuration.reading import load_settings
from gateway.oversight.workers import standing
from gateway.store.engine import open_database
from gateway.store.schema.audit import audit_records
from gateway.store.workers import WorkerTable
from gateway.types import AuditRecord
from tests.conformance.test_batches import make
from tests.faults.envelopes import PATHS, ask
from tests.faults.test_erased_at_vendors import Desk, asked, handed_over, until_looked_at
from tests.faults.test_erased_at_vendors import running as batching
from tests.faults.test_killed_while_parked import ACCOUNTS, Books
from tests.faults.test_kills import configured, issued, serving
from tests.faults.test_native_batches import records_in
from tests.free_ports import free_port
from tests.gateway.audit.samples import running
from tests.gateway.audit.test_reckoning import away
from tests.running_gateway import BRISK_PROCESS, CLAUDE_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(240)]
LOOKS_OFTEN = f"""{BRISK_PROCESS}
gateway.pacing.rhythm.OPEN_INTENTS_S = 0.2
import gateway.store.evidence.cut_off as cut_off
cut_off.AGAIN_S = cut_off.AGAIN_MAX_S = 0.2
"""


async def killed_in_the_middle(config: Path, url: str, key: str, upstreams: Upstreams) -> None:
    """While an upstream has a request, whose intent the database knows."""
    upstreams.anthropic.answer(Answer(hold=asyncio.Event()))
    body = ask("openai", model=CLAUDE_TARGET)
    headers = {"authorization": f"Bearer {key}"}
    async with serving(config, url, LOOKS_OFTEN) as process, aiohttp.ClientSession() as http:
        asked = asyncio.create_task(http.post(url + PATHS["openai"], json=body, headers=headers))
        while not upstreams.anthropic.calls or not await is_known(config):
            await asyncio.sleep(0.02)
        process.kill()
        await process.wait()
        with pytest.raises(aiohttp.ClientError):
            await asked


async def is_known(config: Path) -> bool:
    """Whether the database has numbered an intent."""
    database = open_database(load_settings(config).database_url, pooled=False)
    try:
        columns = audit_records.c
        query = select(columns.sequence).where(columns.stage == "intent").limit(1)
        async with database.reading() as connection:
            return (await connection.execute(query)).first() is not None
    finally:
        await database.close()


async def problems(books: Books) -> tuple[str, ...]:
    (report,) = await WorkerTable(books.database).all()
    assert (standing(report, report.seen_us) == "refusing") == bool(report.problems)
    return report.problems


async def outcomes(folder: Path) -> list[AuditRecord]:
    return [each for each in await records_in(folder) if each.stage == "outcome"]


async def test_a_cut_off_request_gets_its_outcome_when_it_can_be_read_and_is_paid_once(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    config = await configured(tmp_path, database_url, own_upstreams, port)
    settings = load_settings(config)
    books, folder = Books(settings), settings.path(settings.audit.directory)
    await books.limit()
    await killed_in_the_middle(config, url, await issued(settings), own_upstreams)
    leased = {name: row.leased_microusd for name, row in (await books.budgets()).items()}
    async with running(folder):
        pass  # One more segment: the end of the log can be told without the first.
    with away(segment_path(folder / "w0", 1)):
        async with serving(config, url, LOOKS_OFTEN):
            while not await problems(books):
                await asyncio.sleep(0.05)
            assert "worker w0 cut off is not all known" in (await problems(books))[0]
            spent = {name: row.spent_microusd for name, row in (await books.budgets()).items()}
    assert spent == leased
    assert min(spent[name] for name in ACCOUNTS) > 0
    assert await outcomes(folder) == []
    async with serving(config, url, LOOKS_OFTEN):
        while not (ended := await outcomes(folder)):
            await asyncio.sleep(0.05)
        (intent,) = [each for each in await records_in(folder) if each.stage == "intent"]
        assert [(each.request_id, each.error) for each in ended] == [(intent.request_id, CRASHED)]
        assert ended[0].cost_microusd == intent.reserved_microusd > 0
        while await problems(books):
            await asyncio.sleep(0.05)
        now = {name: row.spent_microusd for name, row in (await books.budgets()).items()}
    assert now == spent
    await books.database.close()


async def test_an_erased_line_whose_intent_cannot_be_read_is_ended_when_it_can(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.pacing.rhythm.LOOSE_ENDS_S", 3600.0)
    with handed_over(own_upstreams, "openai") as there:
        async with batching(tmp_path, database_url, own_upstreams) as (gateway, client):
            await make(client, asked("openai", "ann", "bob"))
            await until_looked_at(there)
        folder = gateway.audit_folder
        async with batching(tmp_path, database_url, own_upstreams) as (gateway, _):
            await Desk(gateway).erase("ann")
            with away(segment_path(folder / "w0", 1)), pytest.raises(IsADirectoryError):
                await look_at_loose_ends(gateway)
            while ERASED not in {each.error for each in await outcomes(folder)}:
                await look_at_loose_ends(gateway)


async def look_at_loose_ends(gateway: RunningGateway) -> None:
    """Three times: what is loose at two looks is ended."""
    duties: tuple[Any, ...] = gateway.plane._upkeep._duties
    (duty,) = [each for each in duties if each.name == "loose ends"]
    for _ in range(3):
        await gateway.does(duty.perform())
