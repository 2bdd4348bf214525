"""Rows of batches and files that can no longer be decrypted: the rest is shown, and ends."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from anthropic import AsyncAnthropic
from openai.types import Batch
from sqlalchemy import select, update
from structlog.testing import capture_logs
from structlog.typing import EventDict

from gateway.pacing.rhythm import BATCHES_S
from gateway.store.batching.files import kept_files
from gateway.store.engine import open_database
from gateway.store.schema.batches import batches
from tests.conformance.test_batches import ended, make, results
from tests.conformance.test_message_batches import ask
from tests.conformance.test_message_batches import ended as messages_ended
from tests.conformance.test_message_batches import results as message_results
from tests.faults.test_batches import marked, speaking
from tests.faults.test_damaged_batches import DAMAGE, ONE_BY_ONE, calls, change
from tests.running_gateway import RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture
def log() -> Iterator[list[EventDict]]:
    """What the process says meanwhile."""
    with capture_logs() as lines:
        yield lines


async def damage(url: str, batch_id: str, **values: bytes) -> None:
    await change(url, update(batches).where(batches.c.id == batch_id).values(values))


def codes(batch: Batch) -> list[str | None]:
    return [] if batch.errors is None else [each.code for each in batch.errors.data or ()]


@pytest.mark.either
@pytest.mark.parametrize("column", ["sealed_told", "wrapped_key", "sealed_flaws"])
async def test_a_damaged_batch_is_listed_as_such_among_the_others(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams, column: str
) -> None:
    async with (
        RunningGateway(tmp_path, database_url, own_upstreams) as gateway,
        speaking(gateway.url, await gateway.issue_key()) as client,
    ):
        made = [await ended(client, await make(client, marked(1))) for _ in range(3)]
        await damage(database_url, made[1].id, **{column: DAMAGE})
        found = [each async for each in client.batches.list()]
        alone = await client.batches.retrieve(made[1].id)
        kept = await results(client, alone.output_file_id)
    assert [each.id for each in found] == [each.id for each in reversed(made)]
    assert [codes(each) for each in found] == [[], ["batch_damaged"], []]
    assert (codes(alone), alone.status, alone.metadata) == (["batch_damaged"], "completed", None)
    assert list(kept) == ["q-0"]


async def test_a_damaged_batch_of_messages_is_listed_and_its_results_are_read(
    gateway: RunningGateway, shared_key: str
) -> None:
    url = str(gateway.settings.database.url)
    async with AsyncAnthropic(base_url=gateway.url, api_key=shared_key, max_retries=0) as client:
        made = await messages_ended(
            client, await client.messages.batches.create(requests=[ask("a")])
        )
        await damage(url, made.id, sealed_told=DAMAGE)
        assert made.id in [each.id async for each in client.messages.batches.list()]
        found = await message_results(client, await client.messages.batches.retrieve(made.id))
        assert found["a"].result.type == "succeeded"
        await client.messages.batches.delete(made.id)


@pytest.mark.either
async def test_a_batch_that_lost_what_its_maker_said_ends_with_what_it_has(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    """Its lines would go on without the headers that meant something to them."""
    hold = asyncio.Event()
    async with (
        RunningGateway(tmp_path, database_url, own_upstreams, more=ONE_BY_ONE) as gateway,
        speaking(gateway.url, await gateway.issue_key()) as client,
    ):
        own_upstreams.engine.answer_once(Answer(hold=hold))
        whole = await make(client, marked(1))
        await calls(own_upstreams, 1)
        lost = await make(client, marked(2))
        while (await client.batches.retrieve(lost.id)).status != "in_progress":
            await asyncio.sleep(0.01)
        await damage(database_url, lost.id, sealed_told=DAMAGE)
        hold.set()
        lost = await ended(client, lost)
        assert (await ended(client, whole)).status == "completed"
        errors = await results(client, lost.error_file_id)
    assert (lost.status, codes(lost), lost.output_file_id) == ("completed", ["batch_damaged"], None)
    assert {name: each["error"]["code"] for name, each in errors.items()} == {
        "q-0": "batch_damaged",
        "q-1": "batch_damaged",
    }
    assert "key" not in errors["q-0"]["error"]["message"]
    assert len(own_upstreams.engine.calls) == 1


@pytest.mark.either
async def test_a_batch_whose_key_is_lost_waits_until_somebody_cancels_it(
    tmp_path: Path,
    database_url: str,
    own_upstreams: Upstreams,
    log: list[EventDict],
) -> None:
    """It may be the master key that is the wrong one: nothing is given up by itself."""
    hold = asyncio.Event()
    async with (
        RunningGateway(tmp_path, database_url, own_upstreams, more=ONE_BY_ONE) as gateway,
        speaking(gateway.url, await gateway.issue_key()) as client,
    ):
        own_upstreams.engine.answer_once(Answer(hold=hold))
        whole = await make(client, marked(1))
        await calls(own_upstreams, 1)
        lost = await make(client, marked(1))
        while (await client.batches.retrieve(lost.id)).status != "in_progress":
            await asyncio.sleep(0.01)
        await damage(database_url, lost.id, wrapped_key=DAMAGE)
        hold.set()
        assert (await ended(client, whole)).status == "completed"
        waiting = await client.batches.retrieve(lost.id)
        assert (waiting.status, codes(waiting)) == ("in_progress", ["batch_damaged"])
        await asyncio.sleep(4 * BATCHES_S)
        lost = await ended(client, await client.batches.cancel(lost.id))
        assert lost.status == "cancelled"
    assert len(own_upstreams.engine.calls) == 1
    said = [(line["batch"], line["error_class"]) for line in log if line["event"] == "batch:failed"]
    assert said == [(lost.id, "BatchUnreadable")], "once, and not each time that it is looked at"


@pytest.mark.either
async def test_a_batch_whose_key_is_lost_can_be_cancelled_after_its_window_too(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    hold = asyncio.Event()
    async with (
        RunningGateway(tmp_path, database_url, own_upstreams, more=ONE_BY_ONE) as gateway,
        speaking(gateway.url, await gateway.issue_key()) as client,
    ):
        own_upstreams.engine.answer_once(Answer(hold=hold))
        await make(client, marked(1))
        await calls(own_upstreams, 1)
        lost = await make(client, marked(1))
        while (await client.batches.retrieve(lost.id)).status != "in_progress":
            await asyncio.sleep(0.01)
        is_lost = update(batches).where(batches.c.id == lost.id)
        await change(database_url, is_lost.values(wrapped_key=DAMAGE, expires_us=1))
        while (await client.batches.retrieve(lost.id)).status != "finalizing":
            await asyncio.sleep(0.01)
        hold.set()
        lost = await ended(client, await client.batches.cancel(lost.id))
        assert lost.status == "cancelled"


@pytest.mark.either
async def test_a_damaged_file_is_listed_as_such_among_the_others(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    async with (
        RunningGateway(tmp_path, database_url, own_upstreams) as gateway,
        speaking(gateway.url, await gateway.issue_key()) as client,
    ):
        made = [
            await client.files.create(file=(f"{name}.jsonl", marked(1)[0]), purpose="batch")
            for name in "abc"
        ]
        for file, column in ((made[0], "wrapped_key"), (made[1], "sealed_name")):
            is_it = update(kept_files).where(kept_files.c.id == file.id)
            await change(database_url, is_it.values({column: DAMAGE}))
        found = {each.id: each async for each in client.files.list()}
        assert {name: each.filename for name, each in found.items()} == {
            made[0].id: "",
            made[1].id: "",
            made[2].id: "c.jsonl",
        }
        assert [found[each.id].status for each in made] == ["error", "error", "processed"]
        assert (await client.files.content(made[1].id)).content == marked(1)[0]
        await client.files.delete(made[0].id)
    database = open_database(database_url)
    async with database.reading() as connection:
        left = set((await connection.execute(select(kept_files.c.id))).scalars())
    await database.close()
    assert left == {made[1].id, made[2].id}
