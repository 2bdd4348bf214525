"""Answers under way in a database: one end each, whoever comes first, on two workers."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from sqlalchemy import delete, func, insert, select, update

from gateway.background.runs import LEASE_US, Events, Run
from gateway.clock import StoppedClock
from gateway.continuing.kept_answers import KeptAnswer
from gateway.projects import Project
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.background_runs import DatabaseRuns, background_events, background_runs
from gateway.store.engine import Database, open_database
from gateway.store.kept_answers import DatabaseAnswers, kept_answers
from gateway.store.schema.custody import audit_holds


pytestmark = pytest.mark.anyio

PROJECT = Project("acme", "research", "assistant")
OTHER = Project("acme", "research", "other")
FOR_EVER_US = 10**18


class World:
    """One database, two workers, and a clock that they share."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = StoppedClock()
        self.master = MasterKey(Secret(secrets.token_bytes(32)))
        self.runs = DatabaseRuns(database, self.master, self.clock)
        self.answers = DatabaseAnswers(database, self.master)

    def answer(self, name: str, response: bytes = b'"queued"') -> KeptAnswer:
        head = (name, PROJECT, "key1", "", "S1")
        return KeptAnswer(*head, self.clock.utc_us(), FOR_EVER_US, b"[]", response)

    def run(self, name: str, worker: str = "w0", life: int = 1) -> Run:
        return Run(PROJECT, name, f"req_{name}", worker, f"{worker}.{life}")

    async def said(self, name: str) -> bytes | None:
        kept = await self.answers.find(PROJECT, name, self.clock.utc_us())
        return None if kept is None else kept.response

    async def count(self, table: Any) -> int:
        async with self.database.reading() as connection:
            query = select(func.count()).select_from(table)
            return int((await connection.execute(query)).scalar_one())


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    database = open_database(database_url)
    yield World(database)
    await database.close()


@pytest.fixture
async def postgres_world(
    database_maker: Callable[[str], tuple[str, Callable[[], None]]],
) -> AsyncIterator[World]:
    url, drop = database_maker("postgresql")
    database = open_database(url)
    yield World(database)
    await database.close()
    drop()


async def test_a_project_has_no_more_under_way_than_it_may(world: World) -> None:
    for name in ("a", "b"):
        assert await world.runs.begin(world.answer(name), world.run(name), 2)
    assert not await world.runs.begin(world.answer("c"), world.run("c"), 2)
    assert await world.said("c") is None
    theirs = structs.replace(world.answer("c"), project=OTHER)
    assert await world.runs.begin(theirs, structs.replace(world.run("c"), project=OTHER), 2)
    assert await world.runs.end(world.answer("a", b'"done"'))
    assert await world.runs.begin(world.answer("c"), world.run("c"), 2)


async def test_only_its_holder_ends_it_while_it_is_alive(world: World) -> None:
    run, done = world.run("a"), world.answer("a", b'"done"')
    assert await world.runs.begin(world.answer("a"), run, 9)
    assert not await world.runs.end(done, holder="w1.1")
    assert not await world.runs.end_lapsed(done, run)
    assert await world.runs.lapsed() == []
    world.clock.advance(LEASE_US / 1e6 + 1)
    assert [each.place for each in await world.runs.lapsed()] == [run.place]
    assert await world.runs.keep(run.holder) == {run.place: world.clock.utc_us() + LEASE_US}
    assert not await world.runs.end_lapsed(done, run), "its holder has come back"
    assert await world.runs.end(done, ["msg_1"], holder=run.holder)
    assert await world.said("a") == b'"done"'
    assert await world.answers.holding(PROJECT, ["msg_1"], world.clock.utc_us()) == ["a"]
    assert not await world.runs.end(world.answer("a", b'"again"'))
    assert await world.said("a") == b'"done"'


async def test_what_a_worker_had_in_an_earlier_life_has_nobody(world: World) -> None:
    for run in (world.run("a"), world.run("b", "w1")):
        assert await world.runs.begin(world.answer(run.answer_id), run, 9)
    await world.runs.leave_earlier_lives("w0", "w0.2")
    assert [run.answer_id for run in await world.runs.lapsed()] == ["a"]
    world.clock.advance(LEASE_US / 1e6)
    assert {run.answer_id for run in await world.runs.lapsed()} == {"a", "b"}
    left = await world.runs.lapsed(left_only=True)
    assert [run.answer_id for run in left] == ["a"], "who said nothing for long may be alive"


async def test_what_is_deleted_under_a_hold_is_not_written_any_more(world: World) -> None:
    run = world.run("a")
    assert await world.runs.begin(world.answer("a"), run, 9)
    hold = {column.name: any_value(column) for column in audit_holds.c} | {
        "organisation": "acme",
        "released_by": "",
    }
    async with world.database.writing() as connection:
        await connection.execute(insert(audit_holds), [hold])
    assert await world.runs.note(run, Events(0, 0, 1, b"x\n\n"))
    assert await world.answers.forget(PROJECT, "a")
    assert await world.runs.find(run.place) is None
    assert not await world.runs.start(run), "nothing is sent for it any more"
    world.clock.advance(LEASE_US / 1e6 + 1)
    assert await world.runs.keep(run.holder) == {}
    assert [each.place for each in await world.runs.lapsed()] == [run.place], "its place is freed"
    assert not await world.runs.end(world.answer("a", b'"done"'), holder=run.holder)
    kept = await world.answers.content(PROJECT, "a")
    assert kept is not None
    assert kept[2] == b'"queued"'
    assert await world.runs.forget_events(FOR_EVER_US) == 0
    async with world.database.writing() as connection:
        await connection.execute(update(audit_holds).values(released_by="ann"))
    assert await world.runs.forget_events(FOR_EVER_US) == 1


async def test_what_expires_under_a_hold_is_under_way_no_more_and_goes_after_it(
    world: World,
) -> None:
    run = world.run("a")
    soon_us = world.clock.utc_us() + LEASE_US
    answer = structs.replace(world.answer("a"), expires_us=soon_us)
    assert await world.runs.begin(answer, run, 9)
    await world.runs.drop(run)
    assert await world.runs.find(run.place) == run
    hold = {column.name: any_value(column) for column in audit_holds.c}
    async with world.database.writing() as connection:
        await connection.execute(
            insert(audit_holds), [hold | {"organisation": "acme", "released_by": ""}]
        )
    world.clock.advance(LEASE_US / 1e6 + 1)
    assert await world.said("a") is None
    assert await world.runs.lapsed() == [run]
    await world.runs.drop(run)
    assert await world.runs.lapsed() == [], "it stands in nobody's way"
    assert await world.answers.forget_expired(world.clock.utc_us()) == 0
    async with world.database.writing() as connection:
        await connection.execute(update(audit_holds).values(released_by="ann"))
    assert await world.answers.forget_expired(world.clock.utc_us()) == 1
    assert await world.count(kept_answers) == 0


def any_value(column: Any) -> object:
    if column.nullable:
        return None
    return "x" if column.type.python_type is str else column.type.python_type()


async def test_one_that_was_deleted_goes_with_all_that_hangs_on_it(world: World) -> None:
    run = world.run("a")
    assert await world.runs.begin(world.answer("a"), run, 9)
    assert await world.runs.note(run, Events(0, 0, 1, b"x\n\n"))
    await world.runs.drop(run)
    assert await world.runs.find(run.place) == run, "it is not deleted, so it has not ended"
    assert await world.answers.forget(PROJECT, "a")
    for table in (background_runs, background_events):
        assert await world.count(table) == 0
    assert not await world.runs.note(run, Events(1, 2, 2, b"y\n\n"))
    assert not await world.runs.start(run)


async def test_events_are_read_behind_a_number_and_are_noted_once(world: World) -> None:
    run = world.run("a")
    assert await world.runs.begin(world.answer("a"), run, 9)
    pieces = [Events(n, 2 * n, 2 * n + 1, b"words %d\n\n" % n) for n in range(3)]
    for piece in (*pieces, pieces[-1]):
        assert await world.runs.note(run, piece)
    assert not await world.runs.note(structs.replace(run, holder="w1.1"), pieces[0])
    assert await world.runs.events(run.place, -1) == pieces
    assert await world.runs.events(run.place, 1) == pieces[1:]
    assert await world.runs.events((OTHER, "a"), -1) == []
    assert await world.runs.last_event(run.place) == 5
    assert await world.runs.last_event((OTHER, "a")) == -1
    async with world.database.reading() as connection:
        sealed = (await connection.execute(select(background_events.c.sealed))).scalars().all()
    assert b"words" not in b"".join(map(bytes, sealed))


@pytest.mark.postgres
@pytest.mark.parametrize("deed", ["note", "end"])
async def test_who_makes_an_answer_and_who_deletes_it_never_wait_for_each_other(
    postgres_world: World, deed: str
) -> None:
    """The row of the answer comes before that of its run, by whichever of them one begins."""
    world, database = postgres_world, postgres_world.database
    run = world.run("a")
    assert await world.runs.begin(world.answer("a"), run, 9)
    doing: Any = {
        "note": lambda: world.runs.note(run, Events(0, 0, 1, b"x\n\n")),
        "end": lambda: world.runs.end(world.answer("a", b'"done"'), holder=run.holder),
    }[deed]
    async with database.writing() as connection:
        # As a beat does: all that follows waits, and in this order.
        await connection.execute(update(background_runs).values(state="queued"))
        made = asyncio.create_task(doing())
        await _until_waiting(database, 1)
        gone = asyncio.create_task(world.answers.forget(PROJECT, "a"))
        await _until_waiting(database, 2)
    assert all(await asyncio.gather(made, gone))
    assert await world.count(kept_answers) == 0


@pytest.mark.postgres
@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize("first", ["a", "b"])
async def test_a_beat_and_who_deletes_several_never_wait_for_each_other(
    postgres_world: World, order: str, first: str
) -> None:
    """Whichever of them the other one reaches first, and in whatever order they lie there."""
    world, database = postgres_world, postgres_world.database
    runs = [world.run(name) for name in order]
    for run in runs:
        assert await world.runs.begin(world.answer(run.answer_id), run, 9)
    assert await world.runs.start(runs[0])
    until = await world.runs.keep(runs[0].holder)
    world.clock.advance(1)
    async with database.writing() as connection:
        its = background_runs.c.id == first
        await connection.execute(update(background_runs).where(its).values(state="queued"))
        gone = asyncio.create_task(world.answers.forget_beyond(PROJECT, 1))
        await _until_waiting(database, 1)
        kept = await world.runs.keep(runs[0].holder)
        assert kept[PROJECT, first] == until[PROJECT, first], "nothing is said that is not so"
    assert await gone == 2
    assert await world.runs.keep(runs[0].holder) == {}


async def _until_waiting(database: Database, count: int) -> None:
    waiting = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    while (await database.peek(waiting))[0][0] < count:
        await asyncio.sleep(0.01)


Step = tuple[str, str, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["make", "start", "beat", "end", "cancel", "delete", "die", "pass", "sweep"]
        ),
        st.sampled_from(["a", "b"]),
        st.integers(0, 1),
    ),
    max_size=25,
)


class Model:
    """What two workers and their callers do, and how each answer stands after it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._said: dict[str, bytes] = {}
        self._holders: dict[str, str] = {}
        self._lapses: dict[str, float] = {}
        self._lives = [1, 1]
        self._now_s = 0.0

    def holder(self, worker: int) -> str:
        return f"w{worker}.{self._lives[worker]}"

    async def step(self, step: Step) -> None:
        kind, name, worker = step
        act: Callable[[str, int], Any] = getattr(self, f"_{kind}")
        await act(name, worker)
        for each in ("a", "b"):
            assert await self._world.said(each) == self._said.get(each), step
            run = await self._world.runs.find((PROJECT, each))
            assert (run.holder if run else None) == self._holders.get(each), step

    async def _make(self, name: str, worker: int) -> None:
        if name in self._said:
            return
        run = self._world.run(name, f"w{worker}", self._lives[worker])
        assert await self._world.runs.begin(self._world.answer(name), run, 9)
        self._said[name], self._holders[name] = b'"queued"', run.holder
        self._lapses[name] = self._now_s + LEASE_US / 1e6

    async def _start(self, name: str, worker: int) -> None:
        run = self._world.run(name, f"w{worker}", self._lives[worker])
        is_mine = self._holders.get(name) == run.holder
        assert await self._world.runs.start(run) == is_mine
        if is_mine:
            self._lapses[name] = self._now_s + LEASE_US / 1e6

    async def _beat(self, _: str, worker: int) -> None:
        mine = {each for each, of in self._holders.items() if of == self.holder(worker)}
        kept = await self._world.runs.keep(self.holder(worker))
        assert {answer for _, answer in kept} == mine
        self._lapses |= dict.fromkeys(mine, self._now_s + LEASE_US / 1e6)

    async def _end(self, name: str, worker: int) -> None:
        is_mine = self._holders.get(name) == self.holder(worker)
        done = self._world.answer(name, b'"completed"')
        assert await self._world.runs.end(done, holder=self.holder(worker)) == is_mine
        if is_mine:
            self._over(name, b'"completed"')

    async def _cancel(self, name: str, _: int) -> None:
        is_there = name in self._holders
        assert await self._world.runs.end(self._world.answer(name, b'"cancelled"')) == is_there
        if is_there:
            self._over(name, b'"cancelled"')

    async def _delete(self, name: str, _: int) -> None:
        assert await self._world.answers.forget(PROJECT, name) == (name in self._said)
        self._said.pop(name, None)
        self._holders.pop(name, None)

    async def _die(self, _: str, worker: int) -> None:
        """And it starts anew at once."""
        self._lives[worker] += 1
        await self._world.runs.leave_earlier_lives(f"w{worker}", self.holder(worker))
        left = [each for each, of in self._holders.items() if of.startswith(f"w{worker}.")]
        self._lapses |= dict.fromkeys(left, -1.0)

    async def _pass(self, _: str, __: int) -> None:
        self._now_s += LEASE_US / 2e6
        self._world.clock.advance(LEASE_US / 2e6)

    async def _sweep(self, _: str, __: int) -> None:
        due = {each for each in self._holders if self._lapses[each] <= self._now_s}
        lapsed = await self._world.runs.lapsed()
        assert {run.answer_id for run in lapsed} == due
        for run in lapsed:
            failed = self._world.answer(run.answer_id, b'"failed"')
            assert await self._world.runs.end_lapsed(failed, run)
            self._over(run.answer_id, b'"failed"')

    def _over(self, name: str, response: bytes) -> None:
        self._said[name] = response
        del self._holders[name]


@pytest.mark.long
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
async def test_each_answer_ends_once_whatever_two_workers_and_callers_do(
    world: World, steps: list[Step]
) -> None:
    async with world.database.writing() as connection:
        await connection.execute(delete(kept_answers))
    fresh = World(world.database)
    model = Model(fresh)
    for step in steps:
        await model.step(step)
