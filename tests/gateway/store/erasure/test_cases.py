"""An erasure takes two people, also where they come in the same moment."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.audit.memory import MemoryAuditLog
from gateway.clock import DAY_US, StoppedClock
from gateway.store.custody.orders import Custody, CustodyRefused
from gateway.store.engine import open_database
from gateway.store.erasure.attempts import Attempt, DatedKey, keys_of, most_of
from gateway.store.erasure.cases import CLAIM_US, ErasureCase, ErasureCases
from gateway.store.erasure.folder_reports import FolderReport, row_of
from gateway.store.erasure.kept_holdings import Holdings


pytestmark = pytest.mark.anyio


class Desk:
    """Cases of one database, and what was recorded of them."""

    def __init__(self, cases: ErasureCases, log: MemoryAuditLog, clock: StoppedClock) -> None:
        self.cases, self.log, self.clock = cases, log, clock

    async def asked(self, by: str = "cora") -> ErasureCase:
        case = await self.cases.open("cora", "acme", "", "gdpr", "T-1")
        await self.cases.ask(by, case, {"keys": "7"})
        return await self.cases.found(case.id)


@pytest.fixture
async def desk(database_url: str) -> AsyncIterator[Desk]:
    database, clock, log = open_database(database_url), StoppedClock(), MemoryAuditLog()
    await log.start()
    yield Desk(ErasureCases(database, Custody(database, log, clock), clock), log, clock)
    await database.close()


@pytest.mark.parametrize("same", ["cora", "Cora", " cora "])
async def test_nobody_decides_about_what_they_asked_for(desk: Desk, same: str) -> None:
    case = await desk.asked()
    with pytest.raises(CustodyRefused, match="somebody else than who asked"):
        await desk.cases.decline(same, case, "no")
    assert (await desk.cases.asked("acme", 0, 9)).rows == (case,)
    assert (await desk.cases.asked("umbrella", 0, 9)).rows == ()


async def test_what_is_declined_stays_open_says_why_and_can_be_asked_for_again(desk: Desk) -> None:
    case = await desk.asked()
    with pytest.raises(CustodyRefused, match="say why"):
        await desk.cases.decline("dan", case, " ")
    await desk.cases.decline("dan", case, "it names somebody else")
    left = await desk.cases.found(case.id)
    assert (left.state, left.asked_by, left.declined_by, left.comment) == (
        *("open", "", "dan", "it names somebody else"),
    )
    with pytest.raises(CustodyRefused, match="nobody asks"):
        await desk.cases.decline("dan", left, "again")
    await desk.cases.ask("eve", left, {})
    assert [each.asked_by for each in (await desk.cases.asked("acme", 0, 9)).rows] == ["eve"]
    actions = [each.action for each in desk.log.records]
    assert actions == ["erasure.opened", "erasure.asked", "erasure.declined", "erasure.asked"]


async def test_only_who_asked_takes_it_back_and_nobody_asks_twice(desk: Desk) -> None:
    case = await desk.asked()
    with pytest.raises(CustodyRefused, match="asked for it already"):
        await desk.cases.ask("dan", case, {})
    with pytest.raises(CustodyRefused, match="taken back by who asked"):
        await desk.cases.recall("dan", case)
    await desk.cases.recall("cora", case)
    assert (await desk.cases.asked("acme", 0, 9)).rows == ()
    left = await desk.cases.found(case.id)
    assert left.state == "open"
    for actor in ("cora", "dan"):
        with pytest.raises(CustodyRefused, match="nobody asks"):
            await desk.cases.recall(actor, left)
    actions = [each.action for each in desk.log.records]
    assert actions == ["erasure.opened", "erasure.asked", "erasure.recalled"], "once"


async def test_of_those_who_come_in_the_same_moment_one_is_obeyed(desk: Desk) -> None:
    case = await desk.asked()
    done = await asyncio.gather(
        desk.cases.claim(case),
        desk.cases.claim(case),
        desk.cases.decline("dan", case, "no"),
        desk.cases.recall("cora", case),
        return_exceptions=True,
    )
    refused = [each for each in done if isinstance(each, CustodyRefused)]
    assert len(refused) == 3, done
    left = await desk.cases.found(case.id)
    assert bool(left.claimed_us) is (left.asked_by == "cora"), "claimed or ended, and never both"


async def test_what_is_being_carried_out_is_nobody_elses_until_it_failed_or_crashed(
    desk: Desk,
) -> None:
    case = await desk.asked()
    first_us = await desk.cases.claim(case)
    for deed in (
        desk.cases.claim(case),
        desk.cases.decline("dan", case, "no"),
        desk.cases.withdraw("cora", case),
    ):
        with pytest.raises(CustodyRefused, match="being carried out"):
            await deed
    await desk.cases.release(case, first_us)
    second_us = await desk.cases.claim(case)
    desk.clock.advance(CLAIM_US / 1e6)
    third_us = await desk.cases.claim(case)
    assert third_us > second_us, "whoever claimed it before is taken to have crashed"
    assert (await desk.cases.found(case.id)).is_claimed(desk.clock.utc_us())
    desk.clock.jump(-DAY_US / 1e6)
    assert not (await desk.cases.found(case.id)).is_claimed(desk.clock.utc_us())
    third_us = await desk.cases.claim(case)
    await desk.cases.release(case, second_us)
    assert (await desk.cases.found(case.id)).claimed_us == third_us, "it is not theirs any more"
    report = FolderReport(case.id, "0" * 16, ("w0",), "w0", (), done_us=1)
    closed = await desk.cases.close(
        case, third_us, row_of(report), closed_by="dan", keys=7, comment="agreed"
    )
    assert (closed.state, closed.closed_by, closed.claimed_us) == ("done", "dan", 0)
    with pytest.raises(CustodyRefused):
        await desk.cases.claim(case)


async def test_who_was_taken_for_crashed_notes_nothing_and_so_destroys_nothing(desk: Desk) -> None:
    case, key = await desk.asked(), DatedKey("k1", 7)
    first_us = await desk.cases.claim(case)
    first = Attempt("dan", first_us, (key,), Holdings(lines=2))
    await desk.cases.attempts.note(case.id, first)
    desk.clock.advance(CLAIM_US / 1e6)
    second_us = await desk.cases.claim(case)
    late = Attempt("dan", first_us, (DatedKey("k2", 7),), Holdings())
    with pytest.raises(CustodyRefused, match="somebody else carries it out by now"):
        await desk.cases.attempts.note(case.id, late)
    second = Attempt("eve", second_us, (key, DatedKey("k3", 8)), Holdings(lines=1))
    await desk.cases.attempts.note(case.id, second)
    assert (noted := await desk.cases.attempts.of(case.id)) == [first, second]
    assert [each.key for each in keys_of(noted)] == ["k1", "k3"]
    assert most_of(noted).lines == 2
    assert await desk.cases.attempts.of("another") == []


@pytest.mark.parametrize(
    ("case_of", "organisation", "held", "is_forbidden"),
    [
        *(("", "acme", "", True), ("", "acme", "ann", True), ("ann", "acme", "", True)),
        *(("ann", "acme", "ann", True), ("ann", "acme", "bob", False)),
        *(("ann", "umbrella", "ann", False), ("", "umbrella", "", False)),
    ],
)
async def test_a_hold_that_is_set_while_an_erasure_reads_is_one(
    desk: Desk, case_of: str, organisation: str, held: str, *, is_forbidden: bool
) -> None:
    """It was looked for before hours of reading, and content that was held since was destroyed."""
    opened = await desk.cases.open("cora", "acme", case_of, "gdpr", "T-1")
    await desk.cases.ask("cora", opened, {})
    case = await desk.cases.found(opened.id)
    claimed_us = await desk.cases.claim(case)
    hold = await desk.cases._custody.set_hold("leo", organisation, held, "a lawsuit")
    attempt = Attempt("dan", claimed_us, (DatedKey("k", 1),), Holdings())
    if not is_forbidden:
        await desk.cases.attempts.note(case.id, attempt)
        return
    with pytest.raises(CustodyRefused, match=f"hold {hold.id} forbids it: a lawsuit"):
        await desk.cases.attempts.note(case.id, attempt)
    assert await desk.cases.attempts.of(case.id) == []
    await desk.cases._custody.release_hold("leo", hold.id)
    with pytest.raises(CustodyRefused, match="forbids it"):
        await desk.cases.attempts.note(case.id, attempt)
    assert await desk.cases._custody.release_hold("dan", hold.id)
    await desk.cases.attempts.note(case.id, attempt)


async def test_what_was_begun_while_it_is_being_withdrawn_is_not_withdrawn(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun, and given up half done, between the look and the change."""
    case = await desk.asked()
    record = desk.cases._custody.record

    async def meanwhile(*given: str, **named: str) -> None:
        await record(*given, **named)
        claimed_us = await desk.cases.claim(case)
        attempt = Attempt("dan", claimed_us, (DatedKey("k", 1),), Holdings())
        await desk.cases.attempts.note(case.id, attempt)
        await desk.cases.release(case, claimed_us)

    monkeypatch.setattr(desk.cases._custody, "record", meanwhile)
    with pytest.raises(CustodyRefused):
        await desk.cases.withdraw("cora", case)
    assert (await desk.cases.found(case.id)).state == "open"
