"""The pages of workers: what each said, how far they agree, and what nobody said for a while."""

import asyncio
import re
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from gateway.store.revisions import current
from gateway.store.schema.audit import gone_workers
from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.listener import Browser, Listener
from tests.gateway.store.rows import filled


pytestmark = pytest.mark.anyio


async def revision(listener: Listener) -> int:
    async with listener.database() as database:
        return await current(database)


async def told(browser: Browser, path: str = "/api/system/workers") -> Any:
    answer, text = await browser.send("GET", path)
    assert answer.status == 200, text
    return msgspec.json.decode(text)


async def test_without_a_worker_the_page_says_how_to_start_one(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    _, page = await browser.send("GET", "/system")

    assert "gatewright serve" in page
    assert (await told(browser))["verdict"]["kind"] == "idle"


async def test_workers_stand_side_by_side_with_what_differs(
    listener: Listener, browser: Browser
) -> None:
    await listener.issue_key("one")
    at = await revision(listener)
    odd = seeding.worker(listener, "w2", revision=at - 1, settings_digest="77" * 16)
    well = (seeding.worker(listener, name, revision=at) for name in ("w0", "w1"))
    await seeding.report(listener, *well, odd)
    await browser.sign_in()
    found = await told(browser)
    _, page = await browser.send("GET", "/system")

    assert (found["revision"], found["verdict"]["kind"]) == (at, "warn")
    lines = {line["report"]["worker"]: line for line in found["lines"]}
    assert lines["w2"]["differs"] == ["settings"]
    assert (lines["w0"]["differs"], lines["w2"]["revisions_behind"]) == ([], 1)
    assert lines["w0"]["stale_s"] == pytest.approx(1.4)
    assert "w2 still serves by an older revision" in page
    assert "77777777" in page


async def test_a_worker_with_other_prices_is_found_among_some_that_do_not_say_theirs(
    listener: Listener, browser: Browser
) -> None:
    at = await revision(listener)
    well = (seeding.worker(listener, name, revision=at) for name in ("w0", "w1"))
    odd = seeding.worker(listener, "w2", revision=at, prices_digest="77" * 16)
    silent = (
        seeding.worker(listener, name, revision=at, prices_digest="") for name in ("w3", "w4", "w5")
    )
    await seeding.report(listener, *well, odd, *silent)
    await browser.sign_in()
    found = await told(browser)
    _, page = await browser.send("GET", "/system")
    _, alone = await browser.send("GET", "/system/workers/w2")

    lines = {line["report"]["worker"]: line["differs"] for line in found["lines"]}
    assert [worker for worker, differs in lines.items() if differs] == ["w2"]
    assert lines["w2"] == ["prices"]
    (reason,) = found["verdict"]["reasons"]
    assert reason == "Workers have different prices: w0 and w1 c3c3c3c3; w2 77777777."
    assert ">Prices</th>" in page
    assert "77777777" in alone


async def test_during_an_upgrade_the_page_says_which_schema_each_worker_runs(
    listener: Listener, browser: Browser
) -> None:
    at = await revision(listener)
    before = seeding.worker(listener, "w2", revision=at, schema="0042")
    well = (seeding.worker(listener, name, revision=at) for name in ("w0", "w1"))
    await seeding.report(listener, *well, before)
    await browser.sign_in()
    async with listener.database() as database, database.writing() as connection:
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    found = await told(browser)
    _, page = await browser.send("GET", "/system")

    assert [line["differs"] for line in found["lines"]] == [[], [], ["schema"]]
    assert "w2 0042." in found["verdict"]["reasons"][0]
    assert re.search(r"schema 0042\s*<span[^>]*>.*differs", page)
    assert "newer than this program" in page


async def test_a_worker_that_falls_silent_is_lost_and_the_page_says_since_when(
    listener: Listener, browser: Browser
) -> None:
    at = await revision(listener)
    await seeding.report(listener, seeding.worker(listener, "w0", revision=at))
    await browser.sign_in()
    assert (await told(browser))["verdict"]["kind"] == "good"
    listener.clock.advance(40.0)
    found = await told(browser)
    _, page = await browser.send("GET", "/system/workers/w0")

    assert found["verdict"]["reasons"] == ["w0 counts as lost: it was last heard of 41 s ago."]
    assert "Lost: it was last heard of 41.2 s ago" in page
    _, page = await browser.send("GET", "/system")
    assert re.search(r'Stale at most</span><span class="value">–</span>', page)


async def test_what_a_gone_worker_left_open_is_said_with_how_to_end_it(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    now_us = listener.clock.utc_us()
    heard_us, since_us = now_us - 7 * 3_600_000_000, now_us - 8 * 3_600_000_000
    async with listener.database() as database, database.writing() as connection:
        row = filled(gone_workers, worker="w7", heard_us=heard_us, requests=3, since_us=since_us)
        await connection.execute(row)
        await connection.execute(filled(gone_workers, worker="w8", retired_us=now_us))
    (found,) = (await told(browser))["left"]
    _, page = await browser.send("GET", "/system")

    assert (found["worker"], found["requests"], found["since_us"]) == ("w7", 3, since_us)
    assert "Worker w7, gone for 7 h" in page
    assert "left 3 requests without an outcome" in page
    assert "gatewright audit gone end w7" in page
    assert "w8" not in page


REGION = "document.querySelector('#state [role=status]')"
READ_OUT = f"""() => {{ window.told = 0;
  const region = {REGION};
  region.isTheSame = true;
  new MutationObserver(() => {{ window.told += 1; }}).observe(
    region, {{ childList: true, characterData: true, subtree: true }}); }}"""


async def test_what_a_gone_worker_left_is_read_out_again_only_where_it_is_something_else(
    listener: Listener,
) -> None:
    await seeding.person(listener, "root", "platform_admin")
    heard_us = listener.clock.utc_us() - 7 * 60_000_000
    async with listener.database() as database, database.writing() as connection:
        row = {"worker": "w7", "heard_us": heard_us, "requests": 3, "since_us": heard_us}
        await connection.execute(filled(gone_workers, **row))
    async with window(listener) as seen:
        await seen.sign_in("root", seeding.PASSWORD)
        await seen.open("/system")
        await seen.page.evaluate(READ_OUT)
        listener.clock.advance(120.0)
        await seen.page.wait_for_selector("#state .notice:has-text('gone for 9 min')")
        assert await seen.page.evaluate("window.told") == 0
        assert await seen.page.evaluate(f"{REGION}.isTheSame") is True
        assert await seen.page.locator("#state .notice[role]").count() == 0
        async with listener.database() as database, database.writing() as connection:
            await connection.execute(update(gone_workers).values(requests=4))
        await seen.page.wait_for_selector("#state .notice:has-text('left 4 requests')")
        assert await seen.page.evaluate("window.told") == 1
        assert await seen.page.evaluate(f"{REGION}.isTheSame") is True
        assert "w7 left 4 requests" in await seen.page.evaluate(f"{REGION}.textContent")
        assert seen.problems == []


async def test_one_worker_tells_its_engines_breakers_and_metrics(
    listener: Listener, browser: Browser
) -> None:
    at = await revision(listener)
    said = seeding.worker(listener, "w0", revision=at, breakers={"claude": "open"})
    await seeding.report(listener, said)
    await browser.sign_in()
    _, page = await browser.send("GET", "/system/workers/w0")
    one = await told(browser, "/api/system/workers/w0")
    absent, _ = await browser.send("GET", "/api/system/workers/w9")

    assert one["report"]["members"][0]["generated_tokens_per_s"] == 812.4
    assert "310 of 1,024" in page
    assert "gatewright_requests_total" in page
    assert absent.status == 404


async def test_workers_are_for_who_may_read_the_system_everywhere(
    listener: Listener, browser: Browser
) -> None:
    await listener.issue_key("one")
    await seeding.person(listener, "olga", "viewer", "acme")
    await seeding.person(listener, "otto", "viewer")
    await browser.sign_in_as("olga", seeding.PASSWORD)
    refused, _ = await browser.send("GET", "/system")
    _, overview = await browser.send("GET", "/")
    await browser.sign_in_as("otto", seeding.PASSWORD)
    shown, _ = await browser.send("GET", "/system")

    assert (refused.status, shown.status) == (403, 200)
    assert "/system" not in overview


async def test_a_lost_database_is_said_in_place_of_the_page(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    async with listener.database() as database, database.writing() as connection:
        await connection.exec_driver_sql("DROP TABLE workers")
    answer, page = await browser.send("GET", "/system")

    assert answer.status == 503
    assert "Traceback" not in page


async def test_an_open_page_follows_what_workers_say(listener: Listener) -> None:
    at = await revision(listener)
    await seeding.person(listener, "otto", "viewer")
    await seeding.report(listener, seeding.worker(listener, "w0", revision=at))
    async with window(listener) as seen:
        await seen.sign_in("otto", seeding.PASSWORD)
        await seen.open("/system")
        assert "The one worker, w0" in await seen.page.inner_text("#state")
        await seeding.report(listener, seeding.worker(listener, "w1", revision=at))
        async with asyncio.timeout(20):
            while "All 2 workers" not in await seen.page.inner_text("#state"):
                await asyncio.sleep(0.1)
        assert seen.problems == []
