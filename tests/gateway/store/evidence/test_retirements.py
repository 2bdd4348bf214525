"""A worker's name is retired by two people, of what was shown to the first; nobody does both."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.projecting.projection import RETIRED
from gateway.audit.projecting.projector import Projector
from gateway.audit.second import SECOND_SUFFIX
from gateway.clock import StoppedClock, SystemClock
from gateway.errors import ChangedMeanwhile, Forbidden, GatewrightError, RequestInvalid
from gateway.store.evidence import retirements
from gateway.store.evidence.retirements import Retirement, Retirements, Shown
from gateway.store.evidence.retiring import ENDING_US, Retiring
from gateway.store.schema.audit import audit_positions, gone_workers
from tests.gateway.audit.samples import record, running
from tests.gateway.store.evidence.test_gone_workers import told
from tests.gateway.store.evidence.test_retiring import HOUR_S, Lost, lost


__all__ = ["lost"]
pytestmark = pytest.mark.anyio
WHY = "its machine burnt down"


class Two:
    """Ann asks, Ben agrees."""

    def __init__(self, lost: Lost) -> None:
        self._lost = lost
        self.cases = Retirements(lost.database, SystemClock())

    async def asked(self, who: str = "ann") -> Retirement:
        standing = await self._lost.retiring.standing("w2")
        place = (standing.position, standing.second, standing.heard_us)
        return await self.cases.ask("w2", Shown(*place, requests=3), who, WHY)

    async def state(self, case: Retirement) -> str:
        found = await self.cases.retirement(case.id)
        assert found is not None
        return found.state

    async def is_retired(self) -> bool:
        return (await self._lost.sink.positions())["w2"] == RETIRED


@pytest.fixture
def two(lost: Lost) -> Two:
    return Two(lost)


async def test_one_asks_and_another_agrees_and_the_name_is_retired_with_both_on_it(
    lost: Lost, two: Two
) -> None:
    case = await two.asked()
    assert not await two.is_retired()
    with pytest.raises(RequestInvalid, match="asked for this already"):
        await two.asked("cora")
    done = await two.cases.approve(case.id, "ben", "the insurance said so")
    assert (done.state, done.decided_by, done.shown.requests) == ("approved", "ben", 3)
    assert await two.is_retired()
    async with lost.database.reading() as connection:
        (row,) = (await connection.execute(select(gone_workers))).all()
    assert (row.retired_by, row.reason) == ("ben", WHY)
    with pytest.raises(RequestInvalid, match="is approved"):
        await two.cases.approve(case.id, "cora", "too")
    assert (await lost.end()).requests == 3


@pytest.mark.parametrize("who", ["ann", "Ann ", "os:ann"])
async def test_who_asked_does_not_agree_under_any_spelling_of_their_name(
    two: Two, who: str
) -> None:
    case = await two.asked()
    with pytest.raises(Forbidden):
        await two.cases.approve(case.id, who, "mine")
    with pytest.raises(Forbidden):
        await two.cases.end(case.id, who, "mine", "declined")
    assert (await two.state(case), await two.is_retired()) == ("waiting", False)
    with pytest.raises(Forbidden):
        await two.cases.end(case.id, "ben", "", "withdrawn")
    await two.cases.end(case.id, who, "", "withdrawn")
    assert await two.state(case) == "withdrawn"
    assert (await two.asked("ben")).state == "waiting", "it can be asked for again"


async def test_it_is_not_retired_once_it_was_heard_of_again(lost: Lost, two: Two) -> None:
    case = await two.asked()
    await told(lost.database, "w2", 60.0)
    with pytest.raises(ChangedMeanwhile, match="heard of less than"):
        await two.cases.approve(case.id, "ben", "yes")
    assert (await two.state(case), await two.is_retired()) == ("waiting", False)
    await told(lost.database, "w2", HOUR_S)
    await two.cases.approve(case.id, "ben", "yes")
    assert await two.is_retired()


async def test_nor_once_more_of_what_it_wrote_is_known_than_was_shown(lost: Lost, two: Two) -> None:
    case = await two.asked()
    async with running(lost.there, "w2") as log:
        await log.append(record(8))
    await lost.project(lost.there)
    with pytest.raises(ChangedMeanwhile, match="ask anew"):
        await two.cases.approve(case.id, "ben", "yes")
    assert not await two.is_retired()
    await two.cases.end(case.id, "ben", "look again", "declined")
    again = await two.asked()
    await two.cases.approve(again.id, "ben", "yes")
    assert await two.is_retired()


async def test_what_waits_is_overtaken_when_the_command_line_retires_the_name(
    lost: Lost, two: Two
) -> None:
    case = await two.asked()
    await lost.retire()
    assert await two.state(case) == "overtaken"
    assert await two.cases.waiting_of("w2") is None
    with pytest.raises(RequestInvalid, match="is overtaken"):
        await two.cases.approve(case.id, "ben", "yes")
    with pytest.raises(RequestInvalid, match="retired already"):
        await two.asked()


async def test_of_two_who_decide_in_the_same_moment_one_does(two: Two) -> None:
    case = await two.asked()
    found = await asyncio.gather(
        two.cases.approve(case.id, "ben", "yes"),
        two.cases.end(case.id, "cora", "no", "declined"),
        two.cases.approve(case.id, "dan", "yes"),
        return_exceptions=True,
    )
    done = [each for each in found if isinstance(each, Retirement)]
    failed = [each for each in found if not isinstance(each, Retirement)]
    assert len(done) == 1
    assert all(isinstance(each, GatewrightError) for each in failed), failed
    assert await two.state(case) == done[0].state
    assert await two.is_retired() is (done[0].state == "approved")


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_of_two_who_both_saw_it_wait_one_decides(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, both, look = await two.asked(), asyncio.Barrier(2), retirements._waiting

    async def at_once(connection: AsyncConnection, retirement_id: str) -> Retirement:
        found = await look(connection, retirement_id)
        await both.wait()
        return found

    monkeypatch.setattr(retirements, "_waiting", at_once)
    found = await asyncio.gather(
        *(two.cases.end(case.id, who, "no", "declined") for who in ("ben", "cora")),
        return_exceptions=True,
    )
    assert sorted(type(each).__name__ for each in found) == ["RequestInvalid", "Retirement"]


async def test_nor_once_its_second_device_is_known_further(lost: Lost, two: Two) -> None:
    case = await two.asked()
    further = {"worker": "w2" + SECOND_SUFFIX, "segment": 1, "offset_bytes": 9}
    async with lost.database.writing() as connection:
        await connection.execute(audit_positions.insert(), further)
    with pytest.raises(ChangedMeanwhile, match="ask anew"):
        await two.cases.approve(case.id, "ben", "yes")
    assert not await two.is_retired()


async def test_outcomes_of_a_retired_worker_are_written_by_one_log_at_a_time(
    tmp_path: Path, lost: Lost
) -> None:
    clock = StoppedClock(SystemClock().utc_us())
    retiring = Retiring(lost.database, lost.sink, clock)
    assert not await retiring.begin_ending("w2", "w1-admin"), "it is not known to be gone"
    await lost.retire()
    assert await retiring.begin_ending("w2", "w1-admin")
    assert not await retiring.begin_ending("w2", "w1-operators")
    await retiring.finish_ending("w2", "w1-operators")
    assert await retiring.begin_ending("w2", "w1-admin"), "the one of this name came back"
    clock.advance(ENDING_US / 1e6 + 1)
    assert await retiring.begin_ending("w2", "w1-operators"), "the other one never did"
    await retiring.finish_ending("w2", "w1-operators")
    assert await retiring.begin_ending("w2", "w1-admin")
    clock.jump(-2 * ENDING_US / 1e6)
    assert await retiring.begin_ending("w2", "w1-operators"), "its beginning is to come"


async def test_a_disk_that_comes_back_after_it_is_not_heard(lost: Lost, two: Two) -> None:
    case = await two.asked()
    await two.cases.approve(case.id, "ben", "yes")
    assert await Projector(lost.there, lost.sink).catch_up() == 0
