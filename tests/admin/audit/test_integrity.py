"""The integrity of a log: what is signed, the full check and what it finds, the badge."""

import asyncio
import re
from typing import Any

import msgspec
import pytest
from sqlalchemy import delete, select, update

from admin.audit import checking
from admin.audit.checking import with_newest
from admin.audit.integrity import signed_alike
from gateway.audit.projecting.projector import ProjectionBroken
from gateway.audit.proving.exported import SignedCheckpoint
from gateway.audit.proving.merkle import HASH_BYTES
from gateway.audit.proving.verify import verify_directory
from gateway.audit.segments import segment_path
from gateway.audit.writer import SegmentedAuditLog
from gateway.errors import NotReady
from gateway.oversight.deeds import Deeds
from gateway.oversight.workers import WorkerReport
from gateway.secrets.credentials import master_key
from gateway.store.evidence.awaited import AwaitedTable, await_records
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.schema.audit import audit_records, audit_sequences, audit_tiles
from gateway.store.workers import WorkerTable
from tests.admin.chromium import window
from tests.admin.listener import Browser
from tests.admin.traffic.world import Asked, World
from tests.gateway.audit.samples import LIMITS


pytestmark = pytest.mark.anyio
PAGE = "/o/acme/integrity"


async def told(browser: Browser) -> dict[str, Any]:
    _, body = await browser.send("GET", "/api/organisations/acme/integrity")
    found: dict[str, Any] = msgspec.json.decode(body)
    return found


async def checked(browser: Browser) -> dict[str, Any]:
    """Run a check and wait for its end."""
    answer, _ = await browser.send("POST", f"{PAGE}/check", {})
    assert answer.status == 303
    while (found := await told(browser))["running"] is not None:
        await asyncio.sleep(0.02)
    assert found["problem"] == ""
    last: dict[str, Any] = found["last"]
    return last


async def test_the_page_shows_what_was_signed_and_by_which_key(
    world: World, browser: Browser
) -> None:
    _, page = await browser.send("GET", PAGE)
    assert "Nothing is signed yet" in page
    assert "log not signed yet" in page
    await world.sign()
    _, page = await browser.send("GET", PAGE)
    key = re.search(r"--key &#34;([^&]+)&#34;|--key \"([^\"]+)\"", page)
    assert key is not None
    assert "12 records were signed" in page
    assert re.search(r"log signed \d+ s ago", page)
    world.listener.clock.advance(600)
    _, page = await browser.send("GET", PAGE)
    assert "log last signed 10 min ago" in page
    answer, text = await browser.send("GET", f"{PAGE}/verify.py")
    assert "attachment" in answer.headers["content-disposition"]
    assert text.startswith('"""Verifies an evidence pack')


async def test_requests_that_a_gone_worker_left_are_said_to_have_no_outcome(
    world: World, browser: Browser
) -> None:
    answer = "have no outcome"
    clock = world.listener.clock
    async with world.listener.database() as database:
        last = select(audit_records.c.worker, audit_records.c.utc_us).where(
            audit_records.c.organisation == "acme", audit_records.c.stage == "outcome"
        )
        async with database.reading() as connection:
            worker, utc_us = (await connection.execute(last)).all()[-1]
        await WorkerTable(database).put(WorkerReport(worker=worker, seen_us=utc_us))
        _, page = await browser.send("GET", PAGE)
        assert answer not in page
        gone = delete(audit_records).where(audit_records.c.stage == "outcome")
        async with database.writing() as connection:
            await connection.execute(gone)
        clock.advance(6 * 3600.0)
        await browser.sign_in()
    _, page = await browser.send("GET", PAGE)
    assert answer in page
    (found,) = (await told(browser))["unended"]
    assert found["worker"] == worker
    assert found["requests"] >= 1
    assert f"requests of worker {worker}, gone for 6 h" in page


async def test_a_whole_log_is_found_whole_and_that_is_recorded(
    world: World, browser: Browser
) -> None:
    await world.sign()
    found = await checked(browser)
    assert (found["records"], found["reason"]) == (12, "")
    await world.write()
    _, deeds = await browser.send("GET", "/o/acme/audit?q=action:integrity.*")
    assert "integrity.check_began" in deeds
    assert "integrity.checked" in deeds


async def test_a_check_that_has_no_end_is_said_of_its_own_log_only(
    world: World, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.listener.issue_key("theirs", "umbrella")

    async def broken(*_: object) -> None:
        raise NotReady("the database went away", retry_after_s=1.0)

    with monkeypatch.context() as patched:
        patched.setattr(checking, "check_log", broken)
        answer, _ = await browser.send("POST", f"{PAGE}/check", {})
        assert answer.status == 303
        while (found := await told(browser))["running"] is not None:
            await asyncio.sleep(0.02)
    assert found["problem"] == checking.UNFINISHED
    _, page = await browser.send("GET", PAGE)
    assert checking.UNFINISHED in page
    _, page = await browser.send("GET", "/o/umbrella/integrity")
    assert checking.UNFINISHED not in page
    await checked(browser)


async def test_a_log_that_was_tampered_with_is_named_on_every_page(
    world: World, browser: Browser
) -> None:
    await world.write(*(Asked(number, ago_s=number) for number in range(100, 230)))
    await world.sign()
    async with world.listener.database() as database, database.writing() as connection:
        where = audit_tiles.c.organisation == "acme"
        await connection.execute(update(audit_tiles).where(where).values(hashes=bytes(32 * 256)))
    found = await checked(browser)
    assert "not the record that was numbered" in found["reason"]
    _, page = await browser.send("GET", "/o/acme/traffic")
    assert "log not whole" in page
    _, page = await browser.send("GET", PAGE)
    assert "The log is not whole" in page


async def test_a_log_whose_tree_is_damaged_is_said_to_be_and_nobody_elses(
    world: World, browser: Browser
) -> None:
    await world.sign()
    cut = update(audit_sequences).values(open_tiles=audit_sequences.c.open_tiles + b"?")
    where = audit_sequences.c.organisation == "acme"
    async with world.listener.database() as database, database.writing() as connection:
        await connection.execute(cut.where(where))
    _, page = await browser.send("GET", PAGE)
    said = "The log is not whole: the open tiles of the tree of acme are not those of its size."
    assert said in page
    assert (await told(browser))["damage"] in said
    _, page = await browser.send("GET", "/o/umbrella/integrity")
    assert "The log is not whole" not in page
    found = await checked(browser)
    assert found["reason"].startswith("acme, record 12: the open tiles")
    with pytest.raises(ProjectionBroken, match="open tiles of the tree of acme"):
        await world.write(Asked(901))


async def lose(world: World, *numbers: int) -> None:
    """Take records out of the database, which then awaits them, as where their disk burnt."""
    columns = audit_records.c
    async with world.listener.database() as database:
        raw = await DatabaseAuditTrees(database).leaves("acme", 0, max(numbers))
        for number in numbers:
            mine = (columns.organisation == "acme") & (columns.sequence == number)
            async with database.writing() as connection:
                await connection.execute(delete(audit_records).where(mine))
                leaf = raw[HASH_BYTES * (number - 1) : HASH_BYTES * number]
                await await_records(connection, "acme", number - 1, leaf)


async def give_up(world: World, *, declared: int) -> None:
    """What `gatewright audit lost` does; with 0, what somebody does who has only the database."""
    settings, clock = world.listener.settings, world.listener.clock
    keys = master_key(settings)
    async with world.listener.database() as database:
        if declared:
            directory = settings.path(settings.audit.directory)
            log = SegmentedAuditLog(directory, "cli", keys=keys, clock=clock, limits=LIMITS)
            await log.start()
            after = {"reason": "its disk burnt", "workers": "", "records": str(declared)}
            await Deeds(log, clock).record("os:leo", "records.lost", "", before=None, after=after)
            await log.close()
        await AwaitedTable(database).give_up(clock.utc_us())


async def test_what_was_declared_lost_is_counted_apart_and_needs_a_deed(
    world: World, browser: Browser
) -> None:
    async def said() -> str:
        _, page = await browser.send("GET", PAGE)
        return re.sub(r"<[^>]*>", "", page)

    await world.sign()
    await checked(browser)
    assert "declared lost" not in await said()
    await lose(world, 3)
    found = await checked(browser)
    assert (found["lost"], found["reason"]) == (0, "acme, record 3: the record is missing")
    assert "declared lost" not in await said()

    await give_up(world, declared=1)
    found = await checked(browser)
    assert (found["records"], found["lost"], found["reason"]) == (11, 1, "")
    assert re.search(
        r"11 records against \d+ checkpoints?; 1 record was declared lost,", await said()
    )

    await lose(world, 7, 12)
    await give_up(world, declared=2)
    found = await checked(browser)
    assert (found["records"], found["lost"], found["reason"]) == (9, 3, "")
    assert re.search(
        r"9 records against \d+ checkpoints?; 3 records were declared lost", await said()
    )

    await lose(world, 9)
    await give_up(world, declared=0)
    found = await checked(browser)
    assert found["reason"] == "4 records are called lost, and deeds say so of 3"
    page = await said()
    assert "The log is not whole" in page
    assert "were declared lost" not in page


async def test_of_a_month_of_checkpoints_the_page_and_the_check_read_some(
    world: World, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """86,400 a month: never all of them at once, and the newest is always among those read."""

    async def all_of_them(*_: object) -> list[SignedCheckpoint]:
        raise AssertionError

    await world.sign()
    monkeypatch.setattr(DatabaseAuditTrees, "between", all_of_them)
    monkeypatch.setattr("admin.audit.checking.NOTES_MAX", 1)
    for _ in range(3):
        world.listener.clock.advance(60.0)
        await world.sign()
    assert (await checked(browser))["checkpoints_all"] >= 4
    answer, _ = await browser.send("GET", PAGE)
    assert answer.status == 200
    async with world.listener.database() as database:
        latest = await DatabaseAuditTrees(database).latest("acme", 2)
    assert latest[0].signed_us > latest[1].signed_us
    assert with_newest(latest[1:], latest[:1]) == latest[::-1]
    assert with_newest(latest[::-1], latest[:1]) == latest[::-1]
    assert with_newest([], latest[:1]) == latest[:1]


async def test_a_log_that_does_not_grow_takes_one_row_however_often_it_was_signed(
    world: World, browser: Browser
) -> None:
    await world.sign()
    for _ in range(2):
        world.listener.clock.advance(60.0)
        await world.sign()
    _, page = await browser.send("GET", PAGE)
    table = page[page.index('aria-label="Checkpoints"') :]
    assert table.count("signed note</summary>") == 1
    assert "and 2 times before, since" in table
    found = await told(browser)
    assert [each["count"] for each in found["alike"]] == [3]
    assert len(found["newest"]) == 3

    def signed(at_us: int, size: int) -> SignedCheckpoint:
        return SignedCheckpoint("acme", at_us, size, bytes([size]) * HASH_BYTES, "")

    rows = signed_alike([signed(5, 2), signed(4, 2), signed(3, 1)])
    assert [(row.newest.signed_us, row.since_us, row.count) for row in rows] == [
        (5, 4, 2),
        (3, 3, 1),
    ]


async def test_the_check_says_what_it_does_not_look_at(world: World, browser: Browser) -> None:
    """A byte of another's record is none of this log's; whoever has the files finds it."""
    others = World(world.listener, "umbrella")
    await others.open()
    await others.write(Asked(900))
    await world.sign()
    settings, columns = world.listener.settings, audit_records.c
    folder = settings.path(settings.audit.directory)
    place = select(columns.worker, columns.segment, columns.offset_bytes).where(
        columns.organisation == "umbrella"
    )
    async with world.listener.database() as database, database.reading() as connection:
        worker, segment, offset_bytes = (await connection.execute(place)).all()[0]
    path = segment_path(folder / worker, segment)
    written = bytearray(path.read_bytes())
    written[offset_bytes + 60] ^= 1
    path.write_bytes(written)
    assert not verify_directory(folder).ok

    assert (await checked(browser))["reason"] == ""
    _, page = await browser.send("GET", PAGE)
    assert "Every record of acme read" in page
    assert "It does not check the rest of the files of these records" in page
    assert "<code>gatewright audit verify</code> checks them" in page


async def test_the_rooms_stand_at_every_width_without_a_fault(world: World) -> None:
    await world.sign()
    async with window(world.listener) as seen:
        await seen.sign_in_with_token(world.listener.token)
        for path in ("/o/acme/audit", "/o/acme/audit/-operators/2", PAGE):
            async for theme, width in seen.views():
                await seen.open(path)
                assert await seen.violations() == [], (path, theme, width)
                wide = await seen.page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, (path, theme, width)
        assert seen.problems == []


async def test_a_browser_verifies_a_record_and_sees_when_it_is_another(world: World) -> None:
    await world.sign()
    async with window(world.listener) as seen:
        await seen.sign_in_with_token(world.listener.token)
        page = seen.page

        async def steps() -> list[str]:
            await page.press("[data-verifies]", "Enter")
            await page.wait_for_selector("[data-verifies]:not([aria-disabled])")
            await page.wait_for_selector(".steps li:nth-child(4)")
            held = "document.activeElement.hasAttribute('data-verifies')"
            assert await page.evaluate(held), "whoever works with keys stays where they are"
            marks = await page.query_selector_all(".steps li span:first-child")
            return [await mark.inner_text() for mark in marks]

        await seen.open("/o/acme/audit/acme/5")
        assert await steps() == ["✓"] * 5
        raw = "document.querySelector('pre.raw')"
        await page.evaluate(f"{raw}.textContent = {raw}.textContent.replace('acme', 'acne')")
        assert await steps() == ["✗", "✗", "✗", "✓"]
        await page.evaluate("() => { crypto.subtle.importKey = async () => { throw new Error() } }")
        assert (await steps())[-1] == "–"
        assert "knows no Ed25519" in await page.inner_text(".steps")
        assert seen.problems == []
