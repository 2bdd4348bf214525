"""Custody: two people for holds and reveals, a record before each step, an end to each leave."""

import asyncio
from pathlib import Path

import pytest

from gateway.audit.memory import MemoryAuditLog
from gateway.audit.proving.exported import SignedCheckpoint
from gateway.clock import SECOND_US, StoppedClock
from gateway.errors import AuditUnavailable
from gateway.oversight.deeds import OPERATORS
from gateway.store.custody.orders import Custody, CustodyChanged, CustodyRefused, Reveal
from gateway.store.custody.reveal_reports import reveals_between
from gateway.store.engine import Database, open_database
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.types import AuditRecord, Receipt


pytestmark = pytest.mark.anyio


class Office:
    """Custody with its log and clock at hand."""

    def __init__(self, custody: Custody, log: MemoryAuditLog, clock: StoppedClock) -> None:
        self.custody, self.log, self.clock = custody, log, clock

    async def asked(self, minutes: int = 30) -> Reveal:
        return await self.custody.ask_reveal(
            "ann", "acme", "req_1", reason="a complaint", ticket="T-1", minutes=minutes
        )

    @property
    def actions(self) -> list[tuple[str, str]]:
        return [(record.actor, record.action) for record in self.log.records]


@pytest.fixture
async def office(database: Database) -> Office:
    log, clock = MemoryAuditLog(), StoppedClock()
    await log.start()
    return Office(Custody(database, log, clock), log, clock)


async def test_a_reveal_needs_a_second_person_and_ends(office: Office) -> None:
    custody = office.custody
    reveal = await office.asked()
    with pytest.raises(CustodyRefused, match="not approved"):
        await custody.use_reveal("ann", reveal.id)
    for herself in ("ann", "Ann", " ann "):
        with pytest.raises(CustodyRefused, match="second person"):
            await custody.approve_reveal(herself, reveal.id)
    await custody.approve_reveal("bob", reveal.id)
    with pytest.raises(CustodyRefused, match="approved already"):
        await custody.approve_reveal("cy", reveal.id)
    assert (await custody.use_reveal("ann", reveal.id)).request_id == "req_1"
    office.clock.advance(30 * 60.0)
    with pytest.raises(CustodyRefused, match="expired"):
        await custody.use_reveal("ann", reveal.id)
    office.clock.advance(-3600.0)
    with pytest.raises(CustodyRefused, match="expired"):
        await custody.use_reveal("ann", reveal.id)
    assert office.actions == [
        ("ann", "reveal.asked"),
        ("bob", "reveal.approved"),
        ("ann", "reveal.used"),
    ]
    assert {record.organisation for record in office.log.records} == {OPERATORS}
    assert {record.detail["organisation"] for record in office.log.records} == {"acme"}


async def test_a_clock_that_is_set_back_keeps_no_reveal_open(office: Office) -> None:
    custody, clock = office.custody, office.clock
    reveal = await office.asked()
    await custody.approve_reveal("bob", reveal.id)
    clock.advance(29 * 60.0)
    clock.jump(-28 * 60.0)
    assert (await custody.use_reveal("ann", reveal.id)).id == reveal.id
    clock.advance(60.0)
    with pytest.raises(CustodyRefused, match="expired"):
        await custody.use_reveal("ann", reveal.id)
    with pytest.raises(CustodyRefused, match="over already"):
        await custody.end_reveal("ann", reveal.id)


@pytest.mark.parametrize(
    ("signed_after_s", "is_over"),
    [
        ((60, 1799, 1800), True),
        ((1799, 1800), True),
        ((0, 1800), True),
        ((60, 1799), False),
        # A clock was far ahead before: what was signed since then is after that, and says nothing.
        ((-1, 1800, 3600), False),
        ((), False),
    ],
)
async def test_who_starts_after_the_clock_was_set_back_opens_no_reveal_whose_end_was_signed(
    office: Office, database: Database, signed_after_s: tuple[int, ...], *, is_over: bool
) -> None:
    reveal = await office.asked()
    reveal = await office.custody.approve_reveal("bob", reveal.id)
    moments = [reveal.approved_us + each * SECOND_US for each in signed_after_s]
    trees = DatabaseAuditTrees(database)
    await trees.keep([SignedCheckpoint("acme", at, 7, b"", "") for at in moments])
    await trees.keep([SignedCheckpoint("globex", at, 7, b"", "") for at in (moments or [1])])
    office.clock.jump(60.0)
    started = Custody(database, office.log, office.clock)
    if is_over:
        with pytest.raises(CustodyRefused, match="expired"):
            await started.use_reveal("ann", reveal.id)
    else:
        assert (await started.use_reveal("ann", reveal.id)).id == reveal.id


async def test_the_report_says_who_why_and_how_often(office: Office) -> None:
    reveal = await office.asked()
    await office.custody.approve_reveal("bob", reveal.id)
    for _ in range(3):
        await office.custody.use_reveal("ann", reveal.id)
    (line,) = await office.custody.reveals(0)
    assert (line.asked_by, line.approved_by, line.used) == ("ann", "bob", 3)
    assert (line.reason, line.ticket) == ("a complaint", "T-1")
    assert await office.custody.reveals(office.clock.utc_us() + 1) == []


@pytest.mark.parametrize(
    ("reason", "ticket", "minutes"),
    [(" ", "T-1", 5), ("why", "", 5), ("why", "T", 0), ("w", "T", 61)],
)
async def test_a_reveal_says_why_and_for_how_long(
    office: Office, reason: str, ticket: str, minutes: int
) -> None:
    with pytest.raises(CustodyRefused):
        await office.custody.ask_reveal(
            "ann", "acme", "", reason=reason, ticket=ticket, minutes=minutes
        )
    assert office.actions == []


@pytest.mark.parametrize("blank", [" ", "\t\n", "\u00a0"])
async def test_a_reveal_of_a_request_with_a_blank_for_an_id_is_none_of_all_content(
    office: Office, blank: str
) -> None:
    with pytest.raises(CustodyRefused, match="which request"):
        await office.custody.ask_reveal("ann", "acme", blank, reason="r", ticket="T-1", minutes=5)
    found = await office.custody.ask_reveal(
        "ann", "acme", f"{blank}req_1{blank}", reason="r", ticket="T-1", minutes=5
    )
    assert found.request_id == "req_1"


async def test_a_hold_forbids_erasure_until_two_people_release_it(office: Office) -> None:
    custody = office.custody
    hold = await custody.set_hold("ann", "acme", "s1", "a lawsuit")
    await custody.require_no_hold("acme", "s2")
    await custody.require_no_hold("globex", None)
    for subject in ("s1", None):
        with pytest.raises(CustodyRefused, match="a lawsuit"):
            await custody.require_no_hold("acme", subject)
    assert not await custody.release_hold("ann", hold.id)
    for herself in ("ann", "Ann", " ann "):
        with pytest.raises(CustodyRefused, match="second person"):
            await custody.release_hold(herself, hold.id)
    with pytest.raises(CustodyRefused, match="a lawsuit"):
        await custody.require_no_hold("acme", "s1")
    assert await custody.release_hold("bob", hold.id)
    await custody.require_no_hold("acme", None)
    with pytest.raises(CustodyRefused, match="released already"):
        await custody.release_hold("cy", hold.id)
    assert [action for _, action in office.actions] == [
        "hold.set",
        "hold.release_asked",
        "hold.released",
    ]


async def test_a_hold_on_an_organisation_covers_each_of_its_users(office: Office) -> None:
    await office.custody.set_hold("ann", "acme", "", "a lawsuit")
    with pytest.raises(CustodyRefused, match="a lawsuit"):
        await office.custody.require_no_hold("acme", "anybody")
    assert [hold.organisation for hold in await office.custody.holds()] == ["acme"]


async def test_what_cannot_be_recorded_does_not_happen(office: Office) -> None:
    hold = await office.custody.set_hold("ann", "acme", "", "a lawsuit")
    reveal = await office.asked()
    office.log.failing = True
    with pytest.raises(AuditUnavailable):
        await office.custody.set_hold("ann", "globex", "", "another")
    with pytest.raises(AuditUnavailable):
        await office.custody.release_hold("ann", hold.id)
    with pytest.raises(AuditUnavailable):
        await office.custody.approve_reveal("bob", reveal.id)
    office.log.failing = False
    assert await office.custody.holds() == [hold]
    with pytest.raises(CustodyRefused, match="not approved"):
        await office.custody.use_reveal("ann", reveal.id)


async def test_unknown_ids_are_refused(office: Office, tmp_path: Path) -> None:
    with pytest.raises(CustodyRefused, match="no such hold"):
        await office.custody.release_hold("ann", "nothing")
    with pytest.raises(CustodyRefused, match="no such reveal"):
        await office.custody.use_reveal("ann", str(tmp_path))


class TwoAtOnce(MemoryAuditLog):
    """Lets nobody act before two have begun: both saw what was there before either changed it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.both = asyncio.Event()

    async def append(self, record: AuditRecord, content: bytes | None = None) -> Receipt:
        if record.action in DECIDING and record.status == "ok":
            self.begun += 1
            if self.begun == 2:
                self.both.set()
            await self.both.wait()
        return await super().append(record, content)


DECIDING = ("reveal.approved", "hold.released", "hold.release_asked", "reveal.declined")


@pytest.mark.parametrize("deed", ["approve", "decline", "ask", "release"])
async def test_of_two_who_decide_at_the_same_moment_one_does(database_url: str, deed: str) -> None:
    database, log = open_database(database_url), TwoAtOnce()
    await log.start()
    custody = Custody(database, log, StoppedClock())
    reveal = await custody.ask_reveal("ann", "acme", "", reason="r", ticket="T-1", minutes=5)
    hold = await custody.set_hold("ann", "acme", "", "a court")
    if deed == "release":
        log.both.set()
        await custody.release_hold("ann", hold.id)
        log.both.clear()
        log.begun = 0
    before = len(log.records)

    async def act(name: str) -> str:
        try:
            if deed == "approve":
                await custody.approve_reveal(name, reveal.id)
            elif deed == "decline":
                await custody.end_reveal(name, reveal.id, "no")
            else:
                await custody.release_hold(name, hold.id)
        except CustodyRefused:
            return ""
        return name

    async with asyncio.timeout(30):
        done = [name for name in await asyncio.gather(act("bob"), act("cy")) if name]
    (kept,) = await custody.holds("acme") if deed == "ask" else [hold]
    answered = await custody.reveal("acme", reveal.id)
    released = await custody.hold("acme", hold.id)
    await database.close()

    assert len(done) == 1
    assert answered is not None
    assert released is not None
    found = (answered.approved_by, answered.ended_by, kept.release_by, released.released_by)
    assert found[("approve", "decline", "ask", "release").index(deed)] == done[0]
    said = [(each.actor, each.status) for each in log.records[before:]]
    loser = {"bob": "cy", "cy": "bob"}[done[0]]
    assert sorted(said) == sorted([("bob", "ok"), ("cy", "ok"), (loser, "failed")])


async def test_a_reveal_is_for_who_asked_and_closed_for_good_once_it_was_declined_or_ended(
    office: Office,
) -> None:
    custody = office.custody
    declined, ended = await office.asked(), await office.asked()
    for silence in ("", " \n", "x" * 1_001):
        with pytest.raises(CustodyRefused, match=r"say why|at most"):
            await custody.end_reveal("bob", declined.id, silence)
    await custody.end_reveal("bob", declined.id, " no such ticket ")
    await custody.approve_reveal("bob", ended.id)
    for somebody_else in ("bob", "Ann"):
        with pytest.raises(CustodyRefused, match="who asked"):
            await custody.use_reveal(somebody_else, ended.id)
    await custody.use_reveal("ann", ended.id)
    await custody.end_reveal("cy", ended.id)

    for reveal in (declined, ended):
        with pytest.raises(CustodyRefused, match="declined or ended"):
            await custody.use_reveal("ann", reveal.id)
        with pytest.raises(CustodyRefused, match="declined or ended"):
            await custody.approve_reveal("cy", reveal.id)
        with pytest.raises(CustodyRefused, match="over already"):
            await custody.end_reveal("cy", reveal.id)
    done = [action for _, action in office.actions if action != "reveal.asked"]
    assert done == ["reveal.declined", "reveal.approved", "reveal.used", "reveal.ended"]
    assert not any(each.is_waiting for each in await custody.reveals(0))
    said = {each.id: each.ended_comment for each in await custody.reveals(0)}
    assert said == {declined.id: "no such ticket", ended.id: ""}


async def test_a_release_that_was_declined_has_to_be_asked_for_anew_by_one_of_two(
    office: Office,
) -> None:
    custody = office.custody
    hold, other = [await custody.set_hold("ann", "acme", name, "why") for name in ("s1", "s2")]
    with pytest.raises(CustodyRefused, match="nobody asks"):
        await custody.keep_hold("bob", hold.id)
    await custody.release_hold("ann", hold.id)
    with pytest.raises(CustodyRefused, match="say why"):
        await custody.keep_hold("bob", hold.id, " ")
    await custody.keep_hold("bob", hold.id, "the case goes on")
    assert not await custody.release_hold("bob", hold.id), "the first step again"
    assert await custody.release_hold("ann", hold.id)
    with pytest.raises(CustodyRefused, match="nobody asks"):
        await custody.keep_hold("bob", hold.id)
    assert await custody.holds("acme") == [other]


async def test_a_span_has_what_was_asked_for_or_approved_in_it_in_one_organisation(
    office: Office, database: Database
) -> None:
    first = await office.asked()
    begun_us = office.clock.utc_us()
    office.clock.advance(100.0)
    second = await office.asked()
    await office.custody.ask_reveal("ann", "globex", "", reason="w", ticket="T", minutes=5)
    office.clock.advance(100.0)
    await office.custody.approve_reveal("bob", first.id)

    async def seen(since_s: int, until_s: int) -> list[str]:
        span = (begun_us + since_s * 1_000_000, begun_us + until_s * 1_000_000)
        return [each.id for each in await reveals_between(database, "acme", *span)]

    assert await seen(0, 201) == [first.id, second.id]
    assert await seen(0, 100) == [first.id]
    assert await seen(100, 200) == [second.id]
    assert await seen(200, 201) == [first.id]
    assert await seen(201, 900) == await seen(1, 100) == []


async def test_of_two_who_only_want_to_ask_for_a_release_the_second_releases_nothing(
    office: Office,
) -> None:
    custody = office.custody
    hold = await custody.set_hold("ann", "acme", "digest", "a lawsuit")
    assert not await custody.release_hold("ann", hold.id, seen="")
    for seen, said in (("", "ann asked for its release meanwhile"), ("cy", "ann asked")):
        with pytest.raises(CustodyChanged, match=said):
            await custody.release_hold("bob", hold.id, seen=seen)
    assert [each.release_by for each in await custody.holds("acme")] == ["ann"]
    await custody.keep_hold("ann", hold.id)
    with pytest.raises(CustodyChanged, match="nobody asks for its release any more"):
        await custody.release_hold("bob", hold.id, seen="ann")
    assert not await custody.release_hold("ann", hold.id, seen="")
    assert await custody.release_hold("bob", hold.id, seen="ann")
    assert await custody.holds("acme") == []
    told = [(each.action, dict(each.detail)) for each in office.log.records]
    about = {"organisation": "acme", "hold": hold.id}
    assert told == [
        ("hold.set", about | {"reason": "a lawsuit"}),
        ("hold.release_asked", about),
        ("hold.release_declined", about),
        ("hold.release_asked", about),
        ("hold.released", about),
    ]


async def test_each_organisation_sees_reveals_of_its_own_since_a_moment(office: Office) -> None:
    custody, now_us = office.custody, office.clock.utc_us()
    mine = await office.asked()
    assert [each.id for each in await custody.reveals(now_us, "acme")] == [mine.id]
    assert await custody.reveals(now_us, "umbra") == []
    assert await custody.reveals(now_us + 1, "acme") == []
