"""Whose turn a batch is: who leads it, for how long, and how it stands for whoever looks."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import select

from gateway.clock import StoppedClock
from gateway.store.batching.turns import TEND_US, BatchTurns, Standing
from gateway.store.engine import Database, open_database
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.tables import organisations, projects, virtual_keys, workspaces
from tests.gateway.store.rows import filled


pytestmark = pytest.mark.anyio
MINE, ANOTHERS = "w0.1", "w1.1"
CHECKED = ("validating",)
TEND_S = TEND_US / 1e6


class Scene:
    def __init__(self, database: Database) -> None:
        self.database, self.clock = database, StoppedClock()
        self.turns = BatchTurns(database, self.clock)

    async def made(self, name: str, state: str = "validating", **values: object) -> None:
        async with self.database.writing() as connection:
            await connection.execute(filled(batches, id=name, state=state, **values))

    async def lines(self, name: str, *states: str) -> None:
        async with self.database.writing() as connection:
            for number, state in enumerate(states, 1):
                row = {"batch_id": name, "number": number, "state": state}
                await connection.execute(filled(batch_lines, **row))

    async def key(self, name: str, **values: Any) -> None:
        never = {"revoked_us": None, "expires_us": None}
        async with self.database.writing() as connection:
            for table in (organisations, workspaces, projects):
                await connection.execute(filled(table))
            await connection.execute(filled(virtual_keys, id=name, **(never | values)))

    async def tenders(self) -> dict[str, tuple[str, int]]:
        columns = batches.c
        query = select(columns.id, columns.tender, columns.tended_until_us)
        async with self.database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return {row.id: (row.tender, row.tended_until_us) for row in rows}

    async def standing(self, name: str) -> Standing:
        return next(each for each in await self.turns.active() if each.batch_id == name)


@pytest.fixture
async def scene(database_url: str) -> AsyncIterator[Scene]:
    database = open_database(database_url)
    yield Scene(database)
    await database.close()


async def test_a_batch_is_led_by_one_until_that_one_says_no_more(scene: Scene) -> None:
    await scene.made("a")
    assert await scene.turns.take("a", MINE, CHECKED)
    assert not await scene.turns.take("a", ANOTHERS, CHECKED)
    scene.clock.advance(TEND_S - 1)
    assert await scene.turns.take("a", MINE, CHECKED)
    scene.clock.advance(TEND_S - 1)
    assert not await scene.turns.take("a", ANOTHERS, CHECKED)
    scene.clock.advance(1)
    assert await scene.turns.take("a", ANOTHERS, CHECKED)
    assert not await scene.turns.take("a", MINE, CHECKED)


async def test_a_batch_that_went_on_meanwhile_is_not_taken(scene: Scene) -> None:
    await scene.made("a", "in_progress")
    assert not await scene.turns.take("a", MINE, CHECKED)
    assert (await scene.tenders())["a"] == ("", 0)


async def test_a_worker_keeps_what_it_leads_and_nothing_else(scene: Scene) -> None:
    until_us = scene.clock.utc_us() + 7
    for name, tender, state in [
        *(("mine", MINE, "finalizing"), ("other", ANOTHERS, "validating")),
        *(("nobody", "", "in_progress"), ("over", MINE, "completed")),
    ]:
        await scene.made(name, state, tender=tender, tended_until_us=until_us)
    before = await scene.tenders()
    await scene.turns.keep_tending(MINE)
    kept = (MINE, scene.clock.utc_us() + TEND_US)
    assert await scene.tenders() == before | {"mine": kept}
    await scene.turns.keep_tending(MINE, is_leaving=True)
    assert await scene.tenders() == before | {"mine": (MINE, 0)}
    assert await scene.turns.take("mine", ANOTHERS, ("finalizing",))


async def test_what_an_earlier_process_led_is_free_at_once(scene: Scene) -> None:
    until_us = scene.clock.utc_us() + TEND_US
    tenders = {"earlier": "w0.0", "mine": MINE, "other": ANOTHERS, "like": "w01.1"}
    for name, tender in tenders.items():
        await scene.made(name, tender=tender, tended_until_us=until_us)
    await scene.turns.leave_earlier_lives("w0", MINE)
    left = {name: (tender, until_us) for name, tender in tenders.items()}
    assert await scene.tenders() == left | {"earlier": ("", 0)}


@pytest.mark.parametrize(
    ("states", "waits", "runs"),
    [
        *(((), False, False), (("waiting",), True, False), (("running",), False, True)),
        *((("parked",), False, True), (("succeeded", "errored"), False, False)),
        (("waiting", "parked"), True, True),
    ],
)
async def test_a_batch_stands_as_its_lines_do(
    scene: Scene, states: tuple[str, ...], *, waits: bool, runs: bool
) -> None:
    await scene.made("a", "in_progress")
    await scene.made("b", "in_progress")
    await scene.lines("a", *states)
    await scene.lines("b", "waiting", "running", "parked")
    found = await scene.standing("a")
    assert (found.has_waiting, found.has_running) == (waits, runs)


async def test_a_batch_stands_under_its_own_name_kind_state_and_end(scene: Scene) -> None:
    await scene.key("k1")
    await scene.made("a", "finalizing", kind="messages", expires_us=70, key_id="k1")
    await scene.made("b", "in_progress", kind="file", expires_us=80, key_id="k1")
    await scene.lines("b", "waiting")
    assert await scene.turns.active() == [
        Standing("a", "messages", "finalizing", 70, False, False, False),
        Standing("b", "file", "in_progress", 80, True, False, False),
    ]


@pytest.mark.parametrize(
    ("key", "is_over"),
    [({}, False), ({"revoked_us": 5}, True), ({"expires_us": 0}, True), ({"expires_us": 1}, False)],
)
async def test_a_key_is_over_when_it_was_revoked_or_its_time_has_come(
    scene: Scene, key: dict[str, int], *, is_over: bool
) -> None:
    if "expires_us" in key:
        key = {"expires_us": scene.clock.utc_us() + key["expires_us"]}
    await scene.key("k1", **key)
    await scene.made("a", "in_progress", key_id="k1")
    assert (await scene.standing("a")).key_is_over == is_over


async def test_a_key_that_is_gone_is_over(scene: Scene) -> None:
    await scene.made("a", "in_progress", key_id="k1")
    assert (await scene.standing("a")).key_is_over


async def test_those_that_waited_longest_come_first_and_those_that_are_over_not_at_all(
    scene: Scene,
) -> None:
    for name, served_us in [("a", 9), ("b", 3), ("c", 3), ("d", 0)]:
        await scene.made(name, "in_progress", served_us=served_us)
    for state in ("completed", "failed", "expired", "cancelled", "receiving"):
        await scene.made(state, state)
    assert [each.batch_id for each in await scene.turns.active()] == ["d", "b", "c", "a"]
