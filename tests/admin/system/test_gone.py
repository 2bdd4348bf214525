"""A lost worker's name is retired in the pages: asked for by one, agreed to by another."""

import asyncio
import html
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from admin.access import STEP_UP_S
from gateway.audit.projecting.export import segment_rows
from gateway.audit.projecting.projector import Projector
from gateway.audit.proving.verify import verify_directory
from gateway.audit.reckoning import GONE
from gateway.clock import StoppedClock, SystemClock
from gateway.store.evidence.retiring import Retiring
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.schema.batches import batch_lines, batches
from tests.admin import seeding
from tests.admin.listener import ON_BOTH, Browser, Listener, browsing
from tests.admin.system.lost import FIRST_LINE, RESERVED_MICROUSD, LostWorker, person
from tests.gateway.audit.samples import record, running
from tests.gateway.store.rows import filled


pytestmark = [pytest.mark.anyio, pytest.mark.either]
ON_POSTGRES = pytest.mark.parametrize("listener_url", ["postgresql"], indirect=True)
"""Where what is open can be ended: SQLite has no copy of what lay on a lost disk."""
AT = "/system/gone"
ONE = f"{AT}/w2"
INBOX = "/o/acme/approvals"
WHY = "its machine burnt down"


@pytest.fixture
async def listener(tmp_path: Path, listener_url: str) -> AsyncIterator[Listener]:
    """At the machine's own time, which commands have too."""
    listener = Listener(tmp_path, listener_url)
    listener.clock = StoppedClock(SystemClock().utc_us())
    async with listener:
        yield listener


@pytest.fixture
async def lost(listener: Listener) -> LostWorker:
    """Three requests of it are open, and its disk is lost."""
    await seeding.issue(listener, "first")
    lost = LostWorker(listener)
    await lost.leave(1, 2, 3)
    return lost


@pytest.fixture
async def petra(listener: Listener) -> AsyncIterator[Browser]:
    async with person(listener, "petra", "platform_admin") as browser:
        yield browser


@pytest.fixture
async def anton(listener: Listener) -> AsyncIterator[Browser]:
    async with person(listener, "anton", "approver") as browser:
        yield browser


def text_of(page: str) -> str:
    """What a page says, without its markup."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


async def said(browser: Browser, path: str = ONE) -> str:
    answer, page = await browser.send("GET", path)
    assert answer.status == 200, page
    return text_of(page)


async def told(browser: Browser, path: str = f"/api{ONE}") -> Any:
    answer, text = await browser.send("GET", path)
    assert answer.status == 200, text
    return msgspec.json.decode(text)


async def ask(browser: Browser, worker: str = "w2", reason: str = WHY) -> tuple[int, str]:
    answer, page = await browser.send("POST", f"{AT}/{worker}/ask", {"reason": reason})
    return answer.status, text_of(page)


async def waiting(browser: Browser) -> str:
    """The id of what waits; where nothing does, of what did."""
    cases = await told(browser, "/api/system/retirements")
    return str(max(cases, key=lambda each: each["state"] == "waiting")["id"])


async def decide(
    browser: Browser, deed: str = "approve", reason: str = "the insurance said so"
) -> tuple[int, str]:
    """About what waits."""
    path = f"/system/retirements/{await waiting(browser)}/{deed}"
    answer, page = await browser.send("POST", path, {"reason": reason})
    return answer.status, text_of(page)


async def command(listener: Listener, *words: str) -> subprocess.CompletedProcess[str]:
    """As an operator types it."""
    order = [
        sys.executable,
        "-m",
        "gateway",
        "audit",
        *words,
        "--config",
        str(listener.config_file),
    ]
    return await asyncio.to_thread(
        subprocess.run, order, capture_output=True, text=True, check=False
    )


async def actions(listener: Listener) -> list[tuple[str, str, str]]:
    """What was done to workers, by whom, and how it went; in a log that is whole."""
    folder = listener.settings.path(listener.settings.audit.directory)
    assert verify_directory(folder).bad == ()
    records = [row.projected.record async for row in segment_rows(folder)]
    return [
        (each.actor, each.action, each.status)
        for each in records
        if each.action.startswith("worker.")
    ]


@ON_BOTH
async def test_what_a_lost_worker_left_is_listed_as_the_command_line_says_it(
    listener: Listener, lost: LostWorker, petra: Browser
) -> None:
    page = await said(petra, AT)
    assert "3 requests have no outcome, left by 1 of 1 gone worker" in page
    assert "w2 1 hour 3 " in page
    (line,) = (await told(petra, "/api/system/gone"))["gone"]
    listed = await command(listener, "gone", "list")
    (by_command,) = map(msgspec.json.decode, listed.stdout.splitlines())
    named = ("worker", "requests", "since_us")
    assert [line["silent"][name] for name in named] == [by_command[name] for name in named]

    page = await said(petra)
    is_shared = listener.settings.database_url.startswith("postgresql")
    assert "Not heard of for 1 hour; what it left has no outcome." in page
    assert ("3 requests end as worker_gone" in page) is is_shared
    assert ("3 requests stay open: the database knows only where they lie" in page) is not is_shared
    looked = await command(listener, "gone", "end", "w2", "--reason", "?")
    left = (await told(petra))["left"]
    assert left == msgspec.json.decode(looked.stdout.splitlines()[0])
    assert left["requests" if is_shared else "unreadable"] == 3
    assert "petra" not in looked.stderr
    assert (await ask(petra))[0] == 303
    looked = await command(listener, "gone", "end", "w2", "--reason", "?")
    assert "petra asked for this in the admin listener" in looked.stderr
    assert looked.stderr.rstrip().endswith(WHY)


@ON_POSTGRES
async def test_one_asks_another_agrees_and_each_request_has_an_outcome_on_record(
    listener: Listener, lost: LostWorker, petra: Browser, anton: Browser
) -> None:
    assert "Nothing happens until another person approves it: anton may" in await said(petra)
    assert (await ask(petra))[0] == 303
    assert await lost.outcomes() == []
    page = await said(petra)
    assert "petra asked on" in page
    assert "You requested this, so another person must decide." in page
    assert (await decide(petra))[0] == 403
    async with person(listener, "vera", "viewer") as vera:
        assert "None of your roles may approve this" in await said(vera)
        assert (await decide(vera))[0] == 403
        assert (await decide(vera, "withdraw"))[0] == 403
    page = await said(anton)
    assert "3 requests end as worker_gone , at the cost that was set aside" in page
    assert (await decide(anton, reason=" "))[0] == 400
    assert (await decide(anton))[0] == 303

    found = await lost.outcomes()
    assert {each.request_id for each in found} == {"req_1", "req_2", "req_3"}
    assert {each.error for each in found} == {GONE}
    assert {each.detail["worker"] for each in found} == {"w2"}
    assert {each.cost_microusd for each in found} == {RESERVED_MICROUSD}
    page = await said(petra)
    assert "Retired by anton on" in page
    assert "agreed to by anton, and retired: the insurance said so" in page
    assert "w2" in await said(petra, AT)
    assert (await told(petra, "/api/system/gone"))["gone"] == []
    assert (await ask(petra))[0] == 400, "it is retired"
    assert (await decide(anton))[0] == 400, "it is decided"
    assert await actions(listener) == [
        *(("petra", "worker.retirement_asked", "ok"), ("anton", "worker.retired", "ok")),
        ("anton", "worker.requests_ended", "ok"),
    ]
    for order in ("verify", "fsck"):
        done = await command(listener, order)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "open:" not in done.stdout


async def test_on_sqlite_the_name_is_retired_and_what_only_the_disk_knew_is_said_to_stay_open(
    listener: Listener, lost: LostWorker, petra: Browser, anton: Browser
) -> None:
    await ask(petra)
    assert (await decide(anton))[0] == 303
    assert await lost.outcomes() == []
    left = (await told(petra))["left"]
    assert (left["requests"], left["unreadable"]) == (0, 3)
    assert (await told(petra))["retired_by"] == "anton"


async def test_it_waits_in_the_inbox_under_needs_you_and_in_the_bar_and_is_decided_there(
    listener: Listener, lost: LostWorker, petra: Browser, anton: Browser
) -> None:
    assert "Nothing to approve" in await said(anton, INBOX)
    await ask(petra)
    page = await said(anton, INBOX)
    assert "Retire the worker w2 for good requested by petra" in page
    assert WHY in page
    assert "no worker starts under it again" in page
    assert "1 to approve" in page
    assert "petra requests to retire the worker w2 and close" in await said(anton, "/")
    own = await said(petra, INBOX)
    assert "You requested this, so another person must decide." in own
    assert "1 to approve" not in own
    assert "petra requests to retire" not in await said(petra, "/")

    form = {"id": await waiting(anton), "action": "reject", "reason": ""}
    assert (await anton.send("POST", f"{INBOX}/workers", form))[0].status == 400
    form["reason"] = "ask the data centre first"
    async with browsing(listener) as browser:
        await seeding.person(listener, "olga", "approver", "acme")
        await browser.sign_in_as("olga", seeding.PASSWORD)
        assert "Retire the worker" not in await said(browser, INBOX)
        assert (await browser.send("POST", f"{INBOX}/workers", form))[0].status == 403
    assert (await anton.send("POST", f"{INBOX}/workers", form))[0].status == 303
    assert "declined by anton: ask the data centre first" in await said(petra)
    await ask(petra)
    form |= {"id": await waiting(anton), "action": "approve"}
    assert (await anton.send("POST", f"{INBOX}/workers", form))[0].status == 303
    assert (await told(anton))["retired_by"] == "anton"
    assert [each[1] for each in await actions(listener)] == [
        *("worker.retirement_asked", "worker.retirement_declined", "worker.retirement_asked"),
        *("worker.retired", "worker.requests_ended"),
    ]


async def test_who_may_both_ask_and_agree_does_not_agree_to_their_own(
    listener: Listener, lost: LostWorker
) -> None:
    async with person(listener, "cora", "compliance") as cora:
        assert "Nobody else can yet" in await said(cora)
        await ask(cora)
        page = await said(cora)
        assert "You requested this, so another person must decide." in page
        assert "gatewright users grant NAME approver" in page
        assert (await decide(cora))[0] == 403
        assert (await decide(cora, "decline"))[0] == 403
        assert (await decide(cora, "withdraw"))[0] == 303
        assert "withdrawn by cora" in await said(cora)
        assert (await told(cora))["retired_us"] == 0
        await ask(cora)
        async with person(listener, "dan", "compliance") as dan:
            assert (await decide(dan, "withdraw"))[0] == 403, "it is not theirs"
            assert (await decide(dan))[0] == 303


async def test_it_is_refused_while_the_worker_lives_whether_one_asks_or_agrees(
    listener: Listener, lost: LostWorker, petra: Browser, anton: Browser
) -> None:
    await lost.speak(60.0)
    status, page = await ask(petra)
    assert (status, "heard of less than a quarter of an hour ago" in page) == (400, True)
    assert "Ask to retire it" not in page
    await lost.speak()
    directory = listener.settings.path(listener.settings.audit.directory)
    async with running(directory, "w2"):
        status, page = await ask(petra)
        assert (status, "it holds the lock of its segments" in page) == (409, True)
    (directory / "w2").rename(listener.folder / "elsewhere")
    assert (await ask(petra))[0] == 303
    async with running(directory, "w2"):
        assert (await decide(anton))[0] == 409
    (directory / "w2").rename(listener.folder / "also elsewhere")
    await lost.speak(60.0)
    assert (await decide(anton))[0] == 400
    assert "cannot be retired" in await said(anton)
    assert (await told(anton))["retired_us"] == 0
    assert (await told(anton, "/api/system/retirements"))[0]["state"] == "waiting"


async def test_logs_that_serve_nobody_and_names_that_nobody_knows_are_not_retired(
    listener: Listener, lost: LostWorker, petra: Browser
) -> None:
    directory = listener.settings.path(listener.settings.audit.directory)
    async with listener.database() as database, running(directory, "w7-operators") as log:
        await log.append(record(9, "admin"))
        await Projector(directory, DatabaseAuditSink(database, directory)).catch_up()
    for worker, status, why in (
        (f"{listener.settings.audit.worker}-admin", 409, "the log of the admin listener itself"),
        ("w7-operators", 400, "it never said that it serves"),
        ("w9", 404, ""),
        ("w2_db", 404, ""),
        ("..%2F..%2Fetc", 404, ""),
    ):
        answered, page = await ask(petra, worker)
        assert (answered, why in page) == (status, True), worker
        looked, _ = await petra.send("GET", f"{AT}/{worker}")
        assert looked.status == (404 if status == 404 else 200)
    assert (await petra.send("GET", f"{AT}?worker=w2"))[0].headers["location"] == ONE
    assert await told(petra, "/api/system/retirements") == []


@ON_POSTGRES
async def test_a_line_that_can_be_ended_only_since_it_was_asked_for_is_more_than_was_shown(
    listener: Listener, petra: Browser, anton: Browser
) -> None:
    lost = LostWorker(listener)
    async with listener.database() as database, database.writing() as connection:
        await connection.execute(filled(batches, id="b", state="in_progress"))
        await connection.execute(
            filled(batch_lines, batch_id="b", number=FIRST_LINE, state="parked")
        )
    await lost.leave(1, FIRST_LINE)
    assert (await ask(petra))[0] == 303
    page = await said(anton)
    assert "1 request end" in page
    assert "1 line of a batch is under way with another worker or at a vendor" in page
    async with listener.database() as database, database.writing() as connection:
        await connection.execute(update(batch_lines).values(state="succeeded"))
    status, page = await decide(anton)
    assert (status, "petra asked for it: 2 instead of 1." in page) == (409, True)
    assert await lost.outcomes() == []
    assert (await told(anton))["retired_us"] == 0


@ON_POSTGRES
async def test_it_is_refused_where_more_would_be_ended_than_was_shown_until_asked_anew(
    listener: Listener, petra: Browser, anton: Browser
) -> None:
    lost = LostWorker(listener)
    await lost.begin(1, 2, 3)
    await lost.speak()
    await ask(petra)
    await lost.leave(4)
    page = await said(anton)
    assert "More would be ended by now than was shown when petra asked for it: 4 instead" in page
    status, page = await decide(anton)
    assert (status, "Look at it and ask anew" in page) == (409, True)
    assert await lost.outcomes() == []
    assert (await told(anton))["retired_us"] == 0
    assert (await decide(anton, "decline", "there is more"))[0] == 303
    await ask(petra)
    assert (await decide(anton))[0] == 303
    assert len(await lost.outcomes()) == 4


async def test_asking_and_agreeing_want_a_fresh_proof_and_the_json_does_the_same(
    listener: Listener, lost: LostWorker, petra: Browser, anton: Browser
) -> None:
    listener.clock.advance(STEP_UP_S + 1)
    answer, page = await petra.send("POST", f"{ONE}/ask", {"reason": "burnt down in May"})
    assert (answer.status, "burnt down in May" in page) == (403, True)
    assert (await told(petra))["waiting"] is None
    await petra.sign_in_as("petra", seeding.PASSWORD)
    body = msgspec.json.encode({"reason": WHY}).decode()
    answer, text = await petra.send("POST", f"/api{ONE}/ask", body=body)
    assert answer.status == 201, text
    case = msgspec.json.decode(text)
    assert (case["asked_by"], case["state"]) == ("petra", "waiting")
    yes = msgspec.json.encode({"comment": "yes"}).decode()
    at = f"/api/system/retirements/{case['id']}"
    assert (await anton.send("POST", f"{at}/approve", body=yes))[0].status == 403
    await anton.sign_in_as("anton", seeding.PASSWORD)
    assert (await anton.send("POST", f"{at}/withdraw"))[0].status == 403
    assert (await petra.send("POST", f"{at}/withdraw"))[0].status == 200
    assert (await anton.send("POST", f"{at}/decline", body=yes))[0].status == 400
    _, text = await petra.send("POST", f"/api{ONE}/ask", body=body)
    at = f"/api/system/retirements/{msgspec.json.decode(text)['id']}"
    answer, text = await anton.send("POST", f"{at}/approve", body=yes)
    assert (answer.status, set(msgspec.json.decode(text))) == (
        *(200, {"requests", "lines", "waiting", "unreadable", "since_us"}),
    )
    answer, text = await petra.send("POST", f"/api{ONE}/finish")
    assert answer.status == 200, text


@ON_POSTGRES
async def test_what_a_crash_left_of_a_retired_worker_is_ended_once_from_its_page(
    listener: Listener, lost: LostWorker, petra: Browser
) -> None:
    answer, page = await petra.send("POST", f"{ONE}/finish")
    assert (answer.status, "is not retired" in page) == (400, True)
    async with listener.database() as database:
        retiring = Retiring(database, DatabaseAuditSink(database), listener.clock)
        await retiring.retire("w2", await retiring.standing("w2"), "os:root", WHY)
        page = await said(petra)
        assert "Retired by os:root" in page
        assert "3 requests can be ended now" in page
        assert await retiring.begin_ending("w2", "w0-operators")
        answer, page = await petra.send("POST", f"{ONE}/finish")
        assert (answer.status, "somebody else is ending" in page.casefold()) == (400, True)
        assert await lost.outcomes() == []
        await retiring.finish_ending("w2", "w0-operators")
    done = await asyncio.gather(*(petra.send("POST", f"{ONE}/finish") for _ in range(2)))
    assert [answer.status for answer, _ in done] == [303, 303]
    assert len(await lost.outcomes()) == 3
    assert "can be ended now" not in await said(petra)
    done_by = {(actor, action) for actor, action, _ in await actions(listener)}
    assert done_by == {
        *(("petra", "worker.ending_resumed"), ("petra", "worker.requests_ended")),
    }
