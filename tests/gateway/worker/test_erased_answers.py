"""No answer outlives the erasure of all that its organisation said, whatever clocks say."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import event, insert, update

from gateway.caching.response_cache import KeptReply
from gateway.caching.sealed_replies import ReplySeal
from gateway.clock import SECOND_US
from gateway.dispatch.dispatcher import Answered
from gateway.secrets.envelope import KEY_BYTES, MasterKey
from gateway.secrets.secret import Secret
from gateway.store.engine import Database
from gateway.store.erasure.erased_wholly import ErasedWholly
from gateway.store.schema.custody import erasure_cases
from gateway.worker.following import ErasedAnswers
from tests.gateway.caching.test_whose_answers import APART_S, USUAL, Installation, Shared
from tests.gateway.store.erasure.test_waiting_cases import plan


pytestmark = [pytest.mark.anyio, pytest.mark.either]
MASTER = MasterKey(Secret(bytes(KEY_BYTES)))
NOBODY: dict[str, Any] = dict.fromkeys(("law", "ticket", "opened_by", "closed_by"), "x")
NOBODY |= {"opened_us": 1, "due_us": 1, "keys": 1, "state": "done"}


class Sealed(Shared):
    """As the place has them: with a wall clock's time, and no other."""

    def __init__(self, there: Installation) -> None:
        super().__init__()
        self._seal, self._lying = ReplySeal(MASTER, there.clock), dict[bytes, bytes]()

    async def find(self, organisation: str, key: bytes) -> KeptReply | None:
        sealed = self._lying.get(key)
        return None if sealed is None else self._seal.open(organisation, key, sealed)

    def keep(self, organisation: str, key: bytes, reply: KeptReply, keeps_s: int) -> None:
        self._lying[key] = self._seal.seal(organisation, key, reply)


class There(Installation):
    """Two workers that hear of erasures from the database."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        place = Sealed(self)
        for worker, cache in zip(self.workers, self.caches, strict=True):
            worker._shared = cache.shared = place
        self._database, self._number = database, 0
        self.hearing = [ErasedAnswers(database, cache, self.clock) for cache in self.caches]

    async def close(
        self, organisation: str = "acme", subject: str = "", apart_s: int = 0, **also: int
    ) -> str:
        """By somebody whose clock differs by so much; its id."""
        self._number += 1
        at_us = self.clock.utc_us() + apart_s * SECOND_US
        values: dict[str, Any] = {"id": f"c{self._number}", "organisation": organisation}
        values |= {"subject": subject}
        values |= {"closed_us": at_us, "closed_revision": self._number, "certificate": "{}"}
        async with self._database.writing() as connection:
            await connection.execute(insert(erasure_cases).values(NOBODY | values | also))
        return str(values["id"])

    async def heard(self) -> None:
        for each in self.hearing:
            await each.obey()

    async def told(self, worker: int = 0) -> str:
        _, told = await self.ask(worker, USUAL)
        return told["x-gatewright-cache"]


@pytest.fixture
async def there(database: Database) -> There:
    there = There(database)
    await there.heard()
    return there


@pytest.mark.parametrize("apart_s", [-30, 0, 30])
async def test_what_was_kept_when_it_is_heard_of_is_gone_whatever_the_other_clock_says(
    there: There, apart_s: int
) -> None:
    assert await there.told() == "miss"
    there.clock.advance(10)
    await there.close(apart_s=apart_s)
    await there.heard()
    assert [await there.told(0), await there.told(1)] == ["miss", "miss"]


async def test_what_was_asked_before_and_answered_before_it_was_heard_of_is_gone(
    there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = there.upstream.complete

    async def slow(*given: Any) -> Answered:
        await there.close()
        there.clock.advance(1)
        return await usual(*given)

    with monkeypatch.context() as changed:
        changed.setattr(there.upstream, "complete", slow)
        assert await there.told() == "miss"
    assert await there.told() == "hit", "nobody here has heard of it"
    there.clock.advance(1)
    await there.heard()
    assert [await there.told(0), await there.told(1)] == ["miss", "miss"]


@pytest.mark.parametrize("back_s", [0, 3_600])
async def test_what_workers_share_is_given_to_none_whose_clock_was_set_back(
    there: There, back_s: int
) -> None:
    assert await there.told(0) == "miss"
    there.clock.advance(10)
    await there.close()
    await there.heard()
    there.clock.jump(-back_s)
    there.clock.advance(1)
    assert await there.told(1) == "miss"


async def test_what_another_worker_shared_is_not_given_where_its_clock_is_ahead(
    there: There,
) -> None:
    there.clock.jump(APART_S - 2)
    assert await there.told(0) == "miss"
    there.clock.jump(2 - APART_S)
    there.clock.advance(1)
    await there.close()
    await there.heard()
    there.clock.advance(1)
    assert await there.told(1) == "miss"


async def test_what_was_asked_since_is_given_again_also_behind_a_start(there: There) -> None:
    assert await there.told() == "miss"
    await there.close()
    await there.heard()
    there.clock.advance(APART_S)
    assert [await there.told() for _ in range(2)] == ["miss", "hit"]
    await there.close("rival")
    await there.close(subject="ann's digest")
    await there.heard()
    assert await there.told() == "hit", "of others nothing is heard here"
    again = ErasedAnswers(there._database, there.caches[1], there.clock)
    await again.obey()
    assert await there.told(1) == "hit"


@asynccontextmanager
async def heard(database: Database) -> AsyncIterator[list[tuple[str, Any]]]:
    engine, asked = database.engine.sync_engine, list[tuple[str, Any]]()

    def hear(_: Any, __: Any, statement: str, values: Any, *___: Any) -> None:
        if "erasure_cases" in statement:
            asked.append((statement, values))

    event.listen(engine, "before_cursor_execute", hear)
    yield asked
    event.remove(engine, "before_cursor_execute", hear)


async def test_very_many_finished_cases_are_read_once(there: There, database: Database) -> None:
    """With every change that a worker followed SQLite read all of them."""
    erased = ErasedWholly(database)
    for _ in range(3):
        await there.close()
    assert await erased.times_us() == {"acme": there.clock.utc_us()}
    async with heard(database) as asked:
        await erased.times_us()
    plans = [await plan(database, *each) for each in asked]
    assert all("ix_erasure_cases_closed" in each for each in plans), plans

    later = update(erasure_cases).where(erasure_cases.c.id == "c1").values(organisation="rival")
    async with database.writing() as connection:
        await connection.execute(later)
    assert set(await erased.times_us()) == {"acme"}, "it is not looked at again"


async def test_an_older_programs_case_and_one_of_a_database_that_was_put_back_are_seen(
    there: There, database: Database
) -> None:
    erased = ErasedWholly(database)
    await there.close(closed_revision=90)
    await erased.times_us()
    await there.close("older", closed_revision=0)
    assert set(await erased.times_us()) == {"acme", "older"}
    async with database.writing() as connection:
        await connection.execute(update(erasure_cases).values(closed_revision=1))
    await there.close("rival", closed_revision=2)
    assert set(await erased.times_us()) == {"acme", "older", "rival"}
