"""After a revocation: on how many workers the key is dead, since when, and who is not counted."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import structs

from admin.keys.propagation import propagation
from gateway.oversight.workers import Applied, WorkerReport
from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.listener import Browser, Listener


pytestmark = pytest.mark.anyio
REVOKED_US = 1_800_000_000_000_000
NOW_US = REVOKED_US + 5_000_000
AT = 9


def worker(name: str, *applied: tuple[int, int], **changes: object) -> WorkerReport:
    """Who serves by revisions since so many microseconds after the revocation."""
    report = WorkerReport(
        name,
        NOW_US,
        started_us=REVOKED_US - 60_000_000,
        revision=applied[-1][0],
        applied=tuple(Applied(number, REVOKED_US + after_us) for number, after_us in applied),
    )
    return structs.replace(report, **changes)


def reach(*reports: WorkerReport, revision: int | None = AT) -> Any:
    return propagation(reports, revision, REVOKED_US, NOW_US)


def test_the_slowest_worker_says_how_long_it_took() -> None:
    found = reach(
        worker("w0", (8, -9_000_000), (9, 120_000)),
        worker("w1", (8, -9_000_000), (11, 640_000)),
    )

    assert (found.dead, found.workers, found.took_s) == (2, 2, 0.64)
    assert found.is_settled


def test_a_worker_that_serves_by_an_older_revision_is_waited_for() -> None:
    found = reach(worker("w0", (9, 100_000)), worker("w1", (8, -9_000_000)))

    assert (found.dead, found.waiting, found.took_s) == (1, ("w1",), 0.1)
    assert not found.is_settled


def test_a_worker_that_fell_silent_before_it_said_so_is_not_counted_as_dead() -> None:
    silent = worker("w1", (8, -90_000_000), seen_us=NOW_US - 70_000_000)
    found = reach(worker("w0", (9, 100_000)), silent)

    assert (found.dead, found.workers, found.lost, found.lost_s) == (1, 2, ("w1",), 70.0)
    assert found.is_settled
    assert found.is_refused_by_lost


def test_a_worker_that_said_so_before_it_fell_silent_counts() -> None:
    gone = worker("w0", (8, -9_000_000), (9, 100_000), seen_us=NOW_US - 60_000_000)

    assert (reach(gone).dead, reach(gone).lost) == (1, ())


def test_a_worker_that_was_started_later_never_knew_the_key_and_says_nothing_of_the_time() -> None:
    late = worker("w1", (9, 3_000_000), started_us=REVOKED_US + 2_900_000)
    both = reach(worker("w0", (8, -9_000_000), (9, 200_000)), late)

    assert (both.dead, both.took_s) == (2, 0.2)
    assert (reach(late).dead, reach(late).took_s) == (1, None)


def test_a_clock_that_is_behind_makes_no_negative_time() -> None:
    assert reach(worker("w0", (8, -9_000_000), (9, -400))).took_s == 0.0


def test_without_reports_or_without_a_revision_nothing_is_claimed() -> None:
    assert (reach().workers, reach().dead, reach().is_settled) == (0, 0, False)
    unknown = reach(worker("w0", (9, 0)), revision=None)
    assert (unknown.is_known, unknown.dead) == (False, 0)


async def revoked(listener: Listener, browser: Browser) -> tuple[str, int]:
    """The address of a key that was just revoked, and at which revision."""
    key = await seeding.issue(listener, "assistant")
    await browser.sign_in()
    answer, _ = await browser.send("POST", f"/o/acme/keys/{key}/revoke", {})
    assert answer.status == 303
    _, text = await browser.send("GET", f"/api/organisations/acme/keys/{key}")
    at = msgspec.json.decode(text)["key"]["revoked_revision"]
    return answer.headers["location"], at


async def test_the_page_counts_workers_and_names_who_cannot_be_counted(
    listener: Listener, browser: Browser
) -> None:
    path, at = await revoked(listener, browser)
    now_us = listener.clock.utc_us()
    took = seeding.worker(
        listener, "w0", revision=at, applied=(Applied(0, 1), Applied(at, now_us + 600_000))
    )
    old = seeding.worker(listener, "w1", revision=at - 1)
    lost = seeding.worker(listener, "w2", revision=at - 1, seen_us=now_us - 30_000_000)
    await seeding.report(listener, took, old, lost)
    _, page = await browser.send("GET", path)

    assert "Refused on 1 of 3 workers in 600 ms. w1 has not confirmed it yet." in page
    assert "w2 stopped reporting 30 s ago and cannot be counted" in page
    assert 'hx-trigger="every 1s"' in page

    await seeding.report(listener, structs.replace(took, worker="w1"))
    _, page = await browser.send("GET", path)
    assert "Refused on 2 of 3 workers in 600 ms." in page
    assert 'hx-trigger="every 1s"' not in page, "nothing new is to be expected"


async def test_an_open_page_counts_on_until_the_key_is_dead_everywhere(listener: Listener) -> None:
    await seeding.person(listener, "ann", "platform_admin")
    key = await seeding.issue(listener, "assistant")
    old = seeding.worker(listener, "w0", revision=0)
    await seeding.report(listener, old)
    async with window(listener) as seen:
        await seen.sign_in("ann", seeding.PASSWORD)
        await seen.open(f"/o/acme/keys/{key}/revoke")
        await seen.page.click("button:has-text('Revoke')")
        await seen.page.wait_for_selector("#reach")
        assert "Refused on 0 of 1 worker" in await seen.page.inner_text("#reach")
        now_us = listener.clock.utc_us()
        applied = (Applied(0, 1), Applied(99, now_us + 250_000))
        await seeding.report(listener, structs.replace(old, revision=99, applied=applied))
        async with asyncio.timeout(20):
            while "in 250 ms" not in await seen.page.inner_text("#reach"):
                await asyncio.sleep(0.1)
        assert await seen.page.get_attribute("#reach", "hx-get") is None
        assert seen.problems == []
