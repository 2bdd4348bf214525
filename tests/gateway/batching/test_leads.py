"""A worker that was away while another took its batch over, or somebody cancelled it, stays out."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from gateway.batches import Batch, Flaw, LineEnd
from gateway.batching.chores import BatchChores
from gateway.configuration.settings import Limits
from gateway.projects import Project
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.files import FileStore, kept_files
from gateway.store.batching.leads import FINISHED, LeadOver
from gateway.store.batching.lines import LineStore
from gateway.store.batching.turns import TEND_US, BatchTurns
from gateway.store.engine import Database
from gateway.store.schema.batches import batch_lines


pytestmark = pytest.mark.anyio
PROJECT = Project("acme", "research", "assistant")
ENDPOINT = "/v1/chat/completions"
DAY_US = 86_400_000_000
LINES = 5
Again = Callable[[], Awaitable[Any]]


class Hands:
    """A clock that stands where it was put."""

    now_us = 1_000_000

    def utc_us(self) -> int:
        return self.now_us

    def monotonic_s(self) -> float:
        return self.now_us / 1e6


class Worker:
    """One of several on a database, each with stores of its own."""

    def __init__(self, name: str, database: Database, master: MasterKey, clock: Hands) -> None:
        self.holder = f"{name}.1"
        self.batches = BatchStore(database, master, clock)
        self.lines = LineStore(database, clock)
        self.files = FileStore(database, master, clock)
        self.turns = BatchTurns(database, clock)
        self.clock = clock
        self.chores = BatchChores(
            *(self.batches, self.lines, self.files, clock), Limits(), keep_us=DAY_US
        )

    async def batch(self) -> Batch:
        writer = await self.files.begin(PROJECT, "key1", "batch")
        for number in range(1, LINES + 1):
            wire = {"custom_id": f"n{number}", "method": "POST", "url": ENDPOINT, "body": {}}
            await writer.write(msgspec.json.encode(wire) + b"\n")
        file = await writer.finish("a.jsonl", DAY_US)
        now_us = self.clock.utc_us()
        batch = Batch(
            *("batch_", "file", PROJECT, "key1", ENDPOINT, "validating"),
            created_us=now_us,
            expires_us=DAY_US,
            keep_until_us=DAY_US,
            input_file_id=file.file_id,
        )
        return await self.batches.make(batch)

    async def lead(self, batch: Batch) -> Batch:
        states = ("validating", *FINISHED)
        assert await self.turns.take(batch.batch_id, self.holder, states)
        led = await self.batches.led(batch.batch_id)
        assert led is not None
        return led

    async def check(self, batch: Batch) -> None:
        await self.chores.check(await self.lead(batch), self.holder)

    async def finish(self, batch: Batch) -> None:
        await self.chores.finish(await self.lead(batch), self.holder)

    async def answered(self, batch: Batch) -> None:
        """All lines have their answers."""
        await self.check(batch)
        key = await self.batches.content_key(batch)
        assert key is not None
        for claim in await self.lines.claim(batch, key, self.holder, LINES):
            end = LineEnd("succeeded", 200, f"r{claim.line.number}", b"{}")
            assert await self.lines.end(claim, key, end)
        assert await self.batches.wind_up(batch.batch_id, "completed")

    async def results(self, batch: Batch) -> list[str]:
        """Of a batch that is over, in their order."""
        found = await self.batches.find(PROJECT, batch.batch_id, "file")
        assert found is not None
        assert (found.state, found.error_file_id) == ("completed", "")
        assert found.counts.succeeded == LINES
        file = await self.files.find(PROJECT, found.output_file_id)
        assert file is not None
        content = b"".join([piece async for piece in self.files.content(file)])
        return [msgspec.json.decode(each)["custom_id"] for each in content.splitlines()]


@pytest.fixture
def workers(database: Database, monkeypatch: pytest.MonkeyPatch) -> tuple[Worker, Worker]:
    monkeypatch.setattr("gateway.batching.chores.GROUP_LINES", 1)
    master, clock = MasterKey(Secret(secrets.token_bytes(32))), Hands()
    return Worker("w0", database, master, clock), Worker("w1", database, master, clock)


def before(owner: object, name: str, work: Again, call: int = 1) -> None:
    """Something happens right before this call of a method."""
    method, calls = getattr(owner, name), []

    async def waits(*given: object, **named: object) -> Any:
        calls.append(name)
        if len(calls) == call:
            await work()
        return await method(*given, **named)

    setattr(owner, name, waits)


async def numbers(database: Database) -> list[int]:
    async with database.reading() as connection:
        query = select(batch_lines.c.number).order_by(batch_lines.c.number)
        return list((await connection.execute(query)).scalars())


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [("lines", "clear", 1), ("lines", "add", 3), ("batches", "begin", 1)],
)
async def test_a_batch_that_another_has_taken_in_is_taken_in_once(
    workers: tuple[Worker, Worker], database: Database, owner: str, name: str, call: int
) -> None:
    away, other = workers
    batch = await away.batch()

    async def take_over() -> None:
        away.clock.now_us += TEND_US
        await other.check(batch)

    before(getattr(away, owner), name, take_over, call)
    with pytest.raises(LeadOver):
        await away.check(batch)
    assert await numbers(database) == [1, 2, 3, 4, 5]
    found = await other.batches.led(batch.batch_id)
    assert found is not None
    assert found.state == "in_progress"


async def test_a_worker_that_was_away_does_not_fail_what_goes_on(
    workers: tuple[Worker, Worker], database: Database
) -> None:
    away, other = workers
    batch = await away.batch()
    led = await away.lead(batch)
    away.clock.now_us += TEND_US
    await other.check(batch)
    with pytest.raises(LeadOver):
        await away.batches.fail(led, [Flaw("file_not_found", "It is gone.")], away.holder)
    assert await numbers(database) == [1, 2, 3, 4, 5]


async def test_nor_does_it_begin_what_another_is_still_taking_in(
    workers: tuple[Worker, Worker], database: Database
) -> None:
    away, other = workers
    batch = await away.batch()
    await away.lead(batch)
    away.clock.now_us += TEND_US
    await other.lead(batch)
    with pytest.raises(LeadOver):
        await away.batches.begin(batch.batch_id, 1, holder=away.holder)
    found = await other.batches.led(batch.batch_id)
    assert found is not None
    assert found.state == "validating"
    assert await numbers(database) == []


async def test_no_line_is_made_of_a_batch_that_was_cancelled_while_it_was_taken_in(
    workers: tuple[Worker, Worker], database: Database
) -> None:
    away, other = workers
    batch = await away.batch()

    async def cancel() -> None:
        assert await other.batches.cancel(batch)
        await other.finish(batch)

    before(away.lines, "add", cancel, 3)
    with pytest.raises(LeadOver):
        await away.check(batch)
    assert await numbers(database) == []
    found = await other.batches.find(PROJECT, batch.batch_id, "file")
    assert found is not None
    assert (found.state, found.counts.canceled, found.counts.total) == ("cancelled", 2, 2)


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        ("lines", "give_up", 1),
        ("batches", "name_files", 1),
        ("files", "begin", 1),
        ("files", "begin", 2),
        ("batches", "end", 1),
    ],
)
async def test_results_that_another_has_written_stay_as_they_are(
    workers: tuple[Worker, Worker], database: Database, owner: str, name: str, call: int
) -> None:
    away, other = workers
    batch = await away.batch()
    await away.answered(batch)

    async def take_over() -> None:
        away.clock.now_us += TEND_US
        await other.finish(batch)

    before(getattr(away, owner), name, take_over, call)
    with pytest.raises(LeadOver):
        await away.finish(batch)
    assert await other.results(batch) == ["n1", "n2", "n3", "n4", "n5"]
    async with database.reading() as connection:
        kept = (await connection.execute(select(kept_files.c.purpose))).scalars().all()
    assert sorted(kept) == ["batch", "batch_output"]


async def test_lines_are_not_forgotten_while_another_writes_their_results(
    workers: tuple[Worker, Worker],
) -> None:
    away, other = workers
    batch = await away.batch()
    await away.answered(batch)
    led = await away.lead(batch)

    async def wake() -> None:
        counts = await away.lines.counts(batch.batch_id)
        with pytest.raises(LeadOver):
            await away.batches.end(led, counts, keeps_lines=False, holder=away.holder)

    away.clock.now_us += TEND_US
    before(other.files, "begin", wake, 2)
    await other.finish(batch)
    assert await other.results(batch) == ["n1", "n2", "n3", "n4", "n5"]
