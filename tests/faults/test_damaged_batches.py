"""Batch rows that can no longer be decrypted: each is lost alone, and nobody waits for it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from sqlalchemy import update

from gateway.batches import UNREADABLE
from gateway.store.batching.files import kept_file_parts
from gateway.store.engine import open_database
from gateway.store.schema.batches import batch_lines, batches
from tests.conformance.test_batches import ended, make, results
from tests.conformance.test_message_batches import ask
from tests.conformance.test_message_batches import ended as messages_ended
from tests.conformance.test_message_batches import results as message_results
from tests.faults.test_batches import marked, speaking
from tests.running_gateway import RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
ONE_BY_ONE = """
[batches]
concurrent_lines = 1
"""
DAMAGE = b"not what was sealed"


async def damage(url: str, batch_id: str, number: int, **values: bytes) -> None:
    columns = batch_lines.c
    is_it = (columns.batch_id == batch_id) & (columns.number == number)
    await change(url, update(batch_lines).where(is_it).values(values))


async def change(url: str, statement: Any) -> None:
    database = open_database(url)
    async with database.writing() as connection:
        assert (await connection.execute(statement)).rowcount == 1
    await database.close()


async def calls(upstreams: Upstreams, count: int) -> None:
    while len(upstreams.engine.calls) < count:
        await asyncio.sleep(0.01)


async def test_a_damaged_line_fails_alone_and_the_others_of_its_batch_go_on(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    first, last = asyncio.Event(), asyncio.Event()
    own_upstreams.engine.answer_once(Answer(hold=first), Answer(), Answer(hold=last))
    async with (
        RunningGateway(tmp_path, database_url, own_upstreams, more=ONE_BY_ONE) as gateway,
        speaking(gateway.url, await gateway.issue_key()) as client,
    ):
        batch = await make(client, marked(5))
        await calls(own_upstreams, 1)
        await damage(database_url, batch.id, 2, sealed_body=DAMAGE)
        await damage(database_url, batch.id, 3, sealed_id=b"")
        first.set()
        await calls(own_upstreams, 3)
        await damage(database_url, batch.id, 1, sealed_end=DAMAGE)
        last.set()
        batch = await ended(client, batch)
        found = await results(client, batch.output_file_id)
        errors = await results(client, batch.error_file_id)
        records = await gateway.records()

    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.model_dump() == {"total": 5, "completed": 2, "failed": 3}
    assert (list(found), list(errors)) == (["q-3", "q-4"], ["q-0", "q-1", ""])
    assert errors["q-0"]["error"] == {"code": "internal_error", "message": UNREADABLE}
    for name in ("q-1", ""):
        response = errors[name]["response"]
        assert response["status_code"] == 500
        assert response["body"]["error"]["message"] == UNREADABLE
        (record,) = [each for each in records if each.request_id == response["request_id"]]
        assert (record.stage, record.error, record.cost_microusd) == (
            "outcome",
            "internal_error",
            0,
        )
    assert len(own_upstreams.engine.calls) == 3


@pytest.mark.either
async def test_a_batch_whose_row_is_damaged_keeps_no_other_one_waiting(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    async with RunningGateway(tmp_path, database_url, own_upstreams, more=ONE_BY_ONE) as gateway:
        key = await gateway.issue_key()
        hold = asyncio.Event()
        own_upstreams.engine.answer_once(Answer(hold=hold))
        async with speaking(gateway.url, key) as client:
            whole = await make(client, marked(1))
            await calls(own_upstreams, 1)
            lost = await make(client, marked(1))
            while (await client.batches.retrieve(lost.id)).status != "in_progress":
                await asyncio.sleep(0.01)
            is_lost = update(batches).where(batches.c.id == lost.id)
            await change(database_url, is_lost.values(sealed_told=DAMAGE))
            others = [await make(client, marked(1)) for _ in range(2)]
            hold.set()
            for batch in (whole, *others):
                assert (await ended(client, batch)).status == "completed"
    assert len(own_upstreams.engine.calls) == 3


@pytest.mark.either
async def test_a_batch_of_a_damaged_file_fails_and_says_so(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    async with (
        RunningGateway(tmp_path, database_url, own_upstreams) as gateway,
        speaking(gateway.url, await gateway.issue_key()) as client,
    ):
        content = b"\n".join(marked(2))
        file = await client.files.create(file=("lines.jsonl", content), purpose="batch")
        await change(database_url, update(kept_file_parts).values(sealed=DAMAGE))
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        batch = await ended(client, batch)
    assert (batch.status, own_upstreams.engine.calls) == ("failed", [])
    assert batch.errors is not None
    assert [each.code for each in batch.errors.data or ()] == ["file_damaged"]


async def test_a_message_whose_answer_is_damaged_is_an_error_among_the_results(
    gateway: RunningGateway, shared_key: str
) -> None:
    async with AsyncAnthropic(base_url=gateway.url, api_key=shared_key, max_retries=0) as client:
        batch = await client.messages.batches.create(requests=[ask("lost"), ask("kept")])
        batch = await messages_ended(client, batch)
        await damage(str(gateway.settings.database.url), batch.id, 1, sealed_end=DAMAGE)
        found = await message_results(client, batch)
    assert found["kept"].result.type == "succeeded"
    lost = found["lost"].result
    assert lost.type == "errored"
    assert (lost.error.error.type, lost.error.error.message) == ("api_error", UNREADABLE)
