"""Lines of batches: whose they are to end, and when they may be sent."""

import secrets
import sqlite3
from typing import Any

import pytest
from msgspec import structs
from sqlalchemy import event, update

from gateway.batches import Line, LineEnd
from gateway.batching.waiting_lines import Waiting, WaitingLines
from gateway.secrets.content_keys import ContentKey
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.batching.lines import LEASE_US, Claim
from gateway.store.engine import Database, open_database
from gateway.store.schema.batches import batch_lines
from tests.gateway.batching.test_leads import Hands, Worker


pytestmark = [pytest.mark.anyio, pytest.mark.either]
END = LineEnd("succeeded", 200, "req_1", b"{}")


class Scene:
    """A batch of which two lines are claimed."""

    def __init__(self, worker: Worker, key: ContentKey, claims: list[Claim]) -> None:
        self.worker, self.key = worker, key
        self.lines, self.clock = worker.lines, worker.clock
        self.first, self.second = claims
        self.batch = self.first.batch

    async def claim(self, holder: str) -> list[Claim]:
        return await self.lines.claim(self.batch, self.key, holder, 9)

    async def states(self) -> list[str]:
        return list((await self.lines.states(self.batch.batch_id, [1, 2])).values())


@pytest.fixture
async def scene(database: Database) -> Scene:
    worker = Worker("w0", database, MasterKey(Secret(secrets.token_bytes(32))), Hands())
    batch = await worker.batch()
    await worker.check(batch)
    key = await worker.batches.content_key(batch)
    assert key is not None
    return Scene(worker, key, await worker.lines.claim(batch, key, "w0.1", 2))


async def test_only_the_newest_claim_of_whoever_has_it_ends_a_line(scene: Scene) -> None:
    scene.clock.now_us += LEASE_US
    assert await scene.lines.free_lapsed() == 2
    newest = {claim.line.number: claim for claim in await scene.claim("w0.1")}
    mine = newest[scene.first.line.number]
    for stale in (scene.first, structs.replace(mine, holder="w1.1")):
        assert not await scene.lines.end(stale, scene.key, END)
        assert not await scene.lines.put_back(stale, 0)
    assert await scene.states() == ["running", "running"]
    assert await scene.lines.end(mine, scene.key, END)
    assert not await scene.lines.end(mine, scene.key, END)


async def test_a_batch_that_rests_is_not_claimed_before_its_time_and_counts_its_rests(
    scene: Scene,
) -> None:
    until_us = scene.clock.utc_us() + 5
    for claim in (scene.first, scene.second):
        assert await scene.lines.put_back(claim, 0, rests_until_us=until_us)
    # The second found it resting already.
    assert await scene.lines.stalls(scene.batch.batch_id) == 1
    assert await scene.claim("w0.1") == []
    scene.clock.now_us += 5
    again, *_ = await scene.claim("w0.1")
    assert await scene.lines.put_back(again, 0, rests_until_us=until_us + 9)
    assert await scene.lines.stalls(scene.batch.batch_id) == 2


async def test_what_is_claimed_is_nobody_elses_before_its_lease_is_over(scene: Scene) -> None:
    scene.clock.now_us += LEASE_US - 1
    assert await scene.lines.free_lapsed() == 0
    scene.clock.now_us += 1
    assert await scene.lines.free_lapsed() == 2


async def test_a_line_that_ends_lets_its_own_batch_go_on_and_no_other(scene: Scene) -> None:
    other = await scene.worker.batch()
    await scene.worker.check(other)
    key = await scene.worker.batches.content_key(other)
    assert key is not None
    (foreign,) = await scene.lines.claim(other, key, "w0.1", 1)
    until_us = scene.clock.utc_us() + 5
    for claim in (scene.first, foreign):
        assert await scene.lines.put_back(claim, 0, rests_until_us=until_us)
    assert await scene.lines.end(scene.second, scene.key, END)
    stalls = [await scene.lines.stalls(each.batch_id) for each in (scene.batch, other)]
    assert stalls == [0, 1]
    assert await scene.claim("w0.1") != []
    assert await scene.lines.claim(other, key, "w0.1", 9) == []


async def test_a_line_that_waits_again_or_was_claimed_since_is_lost(scene: Scene) -> None:
    claims = {claim.line.number: claim.claims for claim in (scene.first, scene.second)}
    assert await scene.lines.lost(scene.batch.batch_id, claims) == set()
    await scene.lines.put_back(scene.first, 0)
    assert await scene.lines.lost(scene.batch.batch_id, claims) == {scene.first.line.number}
    await scene.claim("w1.1")
    assert await scene.lines.lost(scene.batch.batch_id, claims) == {scene.first.line.number}


async def test_an_end_that_does_not_open_is_told_as_damage_and_hides_no_other(
    scene: Scene, database: Database
) -> None:
    for claim in (scene.first, scene.second):
        assert await scene.lines.end(claim, scene.key, END)
    is_first = batch_lines.c.number == scene.first.line.number
    async with database.writing() as connection:
        damaged = update(batch_lines).where(is_first).values(sealed_end=b"damaged")
        await connection.execute(damaged)
    (group,) = [group async for group in scene.lines.ended(scene.batch, scene.key)]
    assert [(each.state, each.end, each.is_damaged) for each in group[:2]] == [
        ("errored", None, True),
        ("succeeded", END, False),
    ]


async def test_the_oldest_is_the_one_that_still_waits_to_be_sent(scene: Scene) -> None:
    """Lines of an older batch that are all under way keep nobody waiting."""
    made_us, waiting = scene.clock.utc_us(), WaitingLines(scene.lines, scene.clock)
    assert await waiting.look() == Waiting(3, 2, made_us)
    await scene.claim("w0.1")
    assert await waiting.look() == Waiting(0, 5, 0)
    scene.clock.now_us += 7
    other = await scene.worker.batch()
    await scene.worker.check(other)
    assert await waiting.look() == Waiting(5, 5, made_us + 7)


async def test_a_long_batch_is_counted_as_rarely_as_that_takes_and_others_at_each_look(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.batching.waiting_lines.COUNTED_PER_S", 1)
    clock, counted = scene.clock, list[str]()
    waiting, count = WaitingLines(scene.lines, clock), scene.lines.count_waiting

    async def counting(batch_id: str) -> int:
        counted.append(batch_id)
        return await count(batch_id)

    monkeypatch.setattr(scene.lines, "count_waiting", counting)
    assert (await waiting.look()).waiting == 3
    (claim,) = await scene.lines.claim(scene.batch, scene.key, "w0.1", 1)
    clock.now_us += 2_000_000
    assert await waiting.look() == Waiting(3, 3, 1_000_000)
    clock.now_us += 1_000_000
    assert await waiting.look() == Waiting(2, 3, 1_000_000)
    await scene.claim("w0.1")
    assert (await waiting.look()).waiting == 0, "one that nothing waits in is not counted at all"
    assert await scene.lines.put_back(claim, 0)
    assert (await waiting.look()).waiting == 1
    assert counted == [scene.batch.batch_id] * 3


@pytest.mark.parametrize(
    ("long", "groups"), [(set(), [2, 2, 1]), ({3}, [2, 1, 2]), ({1, 2, 5}, [1, 1, 2, 1])]
)
async def test_long_answers_are_read_by_themselves_and_short_ones_together(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, long: set[int], groups: list[int]
) -> None:
    monkeypatch.setattr("gateway.store.batching.lines.READ_AT_ONCE", 2)
    monkeypatch.setattr("gateway.store.batching.lines.READ_BYTES", 1000)
    for claim in (scene.first, scene.second, *await scene.claim("w0.1")):
        body = b"x" * (1001 if claim.line.number in long else 1)
        assert await scene.lines.end(claim, scene.key, structs.replace(END, body=body))
    found = [group async for group in scene.lines.ended(scene.batch, scene.key)]
    assert [len(group) for group in found] == groups
    assert [each.number for group in found for each in group] == [1, 2, 3, 4, 5]


async def steps_of_a_claim(database: Database, lines: int) -> int:
    """What SQLite does to choose five of so many lines that wait."""
    asked = list[tuple[str, Any]]()

    def hear(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        if statement.startswith("SELECT batch_lines"):
            asked.append((statement, parameters))

    worker = Worker("w0", database, MasterKey(Secret(secrets.token_bytes(32))), Hands())
    batch = await worker.batch()
    led = await worker.lead(batch)
    key = await worker.batches.content_key(batch)
    assert key is not None
    some = [Line(number, f"n{number}", b"{}") for number in range(1, lines + 1)]
    await worker.lines.add(led.batch_id, key, some, worker.holder)
    await worker.batches.begin(led.batch_id, 0, holder=worker.holder)
    event.listen(database.engine.sync_engine, "before_cursor_execute", hear)
    claims = await worker.lines.claim(led, key, worker.holder, 5)
    event.remove(database.engine.sync_engine, "before_cursor_execute", hear)
    assert [claim.line.number for claim in claims] == [1, 2, 3, 4, 5]
    await worker.lines.free(worker.holder)
    ((statement, parameters),) = asked
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    with sqlite3.connect(str(database.engine.url.database)) as connection:
        connection.set_progress_handler(count, 1)
        assert len(connection.execute(statement, parameters).fetchall()) == len(claims)
    connection.close()
    return steps


async def test_a_claim_does_not_look_through_all_lines_that_wait(sqlite_url: str) -> None:
    """Each took longer the more there were: a batch cost the square of its length."""
    database = open_database(sqlite_url)
    assert await steps_of_a_claim(database, 2000) <= 2 * await steps_of_a_claim(database, 20)
    await database.close()
