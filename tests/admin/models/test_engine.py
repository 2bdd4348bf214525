"""The page of engines: what workers told of them, how old it is, and members that are drained."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs

from gateway.oversight.workers import EngineMemory, MemberReport, MemberState, WorkerReport
from gateway.store.pool_drains import DrainTable
from gateway.store.workers import WorkerTable
from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.listener import Browser, Listener
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio

MORE = """
[providers.left]
kind = "engine"
base_url = "http://127.0.0.1:2"
jurisdiction = "in-house"
[providers.right]
kind = "engine"
base_url = "http://127.0.0.1:3"
jurisdiction = "in-house"
[providers.herd]
kind = "pool"
jurisdiction = "in-house"
members = ["left", "right"]
"""
AT = "/models/engine"
LEFT = MemberReport(
    provider="herd",
    member="left",
    engine="gatewright",
    state="up",
    models=("house",),
    calls=3,
    waiting=4,
    running=16,
    blocks_used=750,
    blocks_total=1_000,
    cache_use_share=0.75,
    prefix_hit_share=0.4,
    read_tokens_per_s=900.0,
    generated_tokens_per_s=120.5,
    token_ms=8.3,
    figures_age_s=1.0,
    memory=EngineMemory(
        weight_bytes=15 << 30,
        kv_bytes=40 << 30,
        kv_used_bytes=30 << 30,
        kv_block_tokens=16,
        kv_token_bytes=128 << 10,
        kv_tokens=327_680,
        host_bytes=0,
        host_used_bytes=0,
        longest_context_tokens=32_768,
        device_bytes=80 << 30,
        device_free_bytes=20 << 30,
    ),
)
RIGHT = structs.replace(
    LEFT,
    member="right",
    waiting=None,
    running=None,
    blocks_used=None,
    blocks_total=None,
    cache_use_share=None,
    prefix_hit_share=None,
    read_tokens_per_s=None,
    generated_tokens_per_s=None,
    figures_age_s=None,
    memory=EngineMemory(),
    calls=0,
    state="down",
    reason="it is not ready (HTTP 503)",
)


@pytest.fixture
async def listener(tmp_path: Path, sqlite_url: str) -> AsyncIterator[Listener]:
    async with Listener(tmp_path, sqlite_url, MORE) as running:
        yield running


async def said(listener: Listener, worker: str, *members: MemberReport, ago_s: float = 0) -> None:
    now_us = listener.clock.utc_us()
    report = WorkerReport(worker, now_us - round(ago_s * 1e6), members=members)
    async with listener.database() as database:
        await WorkerTable(database).put(report)


async def drained(listener: Listener) -> list[tuple[str, str, str]]:
    async with listener.database() as database:
        return [
            (each.member, each.actor, each.reason)
            for each in await DrainTable(database, listener.clock).all()
        ]


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def row_of(page: str, engine: str) -> str:
    rows = re.findall(r"<tr\b.*?</tr>", page, re.DOTALL)
    return text_of(next(row for row in rows if f'/providers/{engine}"' in row))


async def test_an_engine_stands_with_all_that_it_said_and_with_how_old_it_is(
    listener: Listener, browser: Browser
) -> None:
    await said(listener, "w0", LEFT, RIGHT, ago_s=2)
    await said(listener, "w1", structs.replace(LEFT, calls=2, waiting=9), ago_s=4)
    await browser.sign_in()
    answer, page = await browser.send("GET", AT)
    assert answer.status == 200

    left = row_of(page, "left")
    wanted = ("left", "of herd", "up", "4 16", "750 of 1,000", "40%", "900", "120.5", "8.3 ms")
    assert [each for each in wanted if each not in left] == []
    assert "3 s ago by w0" in left  # its report's age and that of the engine's own figures
    assert " 5 " in left  # calls of both workers
    right = row_of(page, "right")
    assert "down" in right
    assert "it is not ready (HTTP 503)" in right
    assert "no figures" in right
    assert "no worker tells of it" in row_of(page, "engine")
    text = text_of(page)
    assert "Waiting 4 in all queues" in text
    assert "75% 750 of 1,000" in text
    assert "No worker tells of 1 of 3 engines" in text


async def test_memory_stands_as_a_sum_and_what_an_engine_does_not_tell_is_said(
    listener: Listener, browser: Browser
) -> None:
    foreign = structs.replace(
        RIGHT, engine="vllm", blocks_total=1_200, memory=EngineMemory(kv_block_tokens=16)
    )
    await said(listener, "w0", LEFT, foreign)
    await browser.sign_in()
    _, page = await browser.send("GET", AT)
    memory = page.partition('aria-label="Memory"')[2].partition("</table>")[0]
    rows = [text_of(row) for row in re.findall(r"<tr\b.*?</tr>", memory, re.DOTALL)]
    (left,) = [row for row in rows if row.startswith("left")]
    wanted = ("60 GiB of 80 GiB, 20 GiB free", "30 GiB of 40 GiB, 10 GiB free", "none")
    assert [each for each in wanted if each not in left] == []
    assert "15 GiB weights + 40 GiB pool (327,680 tokens of 128 KiB) = 55 GiB" in left
    assert "10 at once of the longest, 32,768 tokens" in left
    (right,) = [row for row in rows if row.startswith("right")]
    assert right == "right not told not told 19,200 tokens not told not told"


async def test_old_figures_are_said_to_be_stale_and_those_of_a_lost_worker_are_not_shown(
    listener: Listener, browser: Browser
) -> None:
    await said(listener, "w0", structs.replace(LEFT, figures_age_s=40.0), ago_s=2)
    await browser.sign_in()
    _, page = await browser.send("GET", AT)
    assert "stale 42 s" in row_of(page, "left")
    listener.clock.advance(60)
    _, page = await browser.send("GET", AT)
    assert "no worker tells of it" in row_of(page, "left")
    assert "No worker is heard of: 1 was lost" in text_of(page)
    assert "worker lost" in page


async def test_without_workers_the_page_says_so_and_without_engines_how_to_get_one(
    listener: Listener, browser: Browser, tmp_path: Path
) -> None:
    await browser.sign_in()
    answer, page = await browser.send("GET", AT)
    assert answer.status == 200
    assert "Is the data plane running?" in page


async def test_what_is_polled_is_the_figures_alone(listener: Listener, browser: Browser) -> None:
    await said(listener, "w0", LEFT)
    await browser.sign_in()
    _, block = await browser.send("GET", AT, hx_target="div#live")
    assert block.strip().startswith('<div id="live"')
    assert "<html" not in block
    assert "750 of 1,000" in block


async def test_a_member_is_drained_with_a_reason_and_resumed_and_both_are_on_record(
    listener: Listener, browser: Browser
) -> None:
    await said(listener, "w0", LEFT, structs.replace(RIGHT, state="up"))
    await browser.sign_in()
    _, asked = await browser.send("GET", f"{AT}/drain?member=left")
    told = text_of(asked)
    assert "3 calls of workers are under way there now" in told
    assert "1 other member takes its share: right" in told
    form = {"member": "left", "reason": "new weights"}
    answer, _ = await browser.send("POST", f"{AT}/drain", form)
    assert answer.status == 303
    assert await drained(listener) == [("left", "admin-token", "new weights")]
    _, page = await browser.send("GET", AT)
    assert "drained" in row_of(page, "left")
    assert "drained just now by admin-token (new weights). 3 calls are still under way" in text_of(
        page
    )
    again, refused = await browser.send("POST", f"{AT}/drain", form)
    assert again.status == 409
    assert "drained it already" in refused
    _, last = await browser.send("GET", f"{AT}/drain?member=right")
    assert "herd has no other member in service" in text_of(last)
    assert "Not in service: left (drained)." in text_of(last)
    _, same = await browser.send("GET", f"{AT}/drain?member=left")
    assert "left: drained just now by admin-token (new weights)" in text_of(same)
    assert 'name="reason"' not in same
    answer, _ = await browser.send("POST", f"{AT}/resume", {"member": "left"})
    assert answer.status == 303
    assert await drained(listener) == []
    assert (await browser.send("POST", f"{AT}/resume", {"member": "left"}))[0].status == 400
    records = [each for each in await deeds(listener) if each.action.startswith("pool.")]
    assert [(each.action, each.actor) for each in records] == [
        *(("pool.drained", "admin-token"), ("pool.resumed", "admin-token"))
    ]
    assert json.loads(records[0].detail["after"])["reason"] == "new weights"


@pytest.mark.parametrize(("state", "ago_s"), [("down", 0.0), ("unknown", 0.0), ("up", 600.0)])
async def test_a_member_that_gets_nothing_is_not_counted_on_for_anothers_share(
    listener: Listener, browser: Browser, state: MemberState, ago_s: float
) -> None:
    """Where the other one was down, the page said that it takes the share of the first."""
    await said(listener, "w1", structs.replace(RIGHT, state=state), ago_s=ago_s)
    await said(listener, "w0", LEFT)
    await browser.sign_in()
    _, asked = await browser.send("GET", f"{AT}/drain?member=left")
    assert "herd has no other member in service" in text_of(asked)
    told = "no worker tells of it" if ago_s else state
    assert f"Not in service: right ({told})." in text_of(asked)


async def test_only_a_member_of_a_pool_can_be_drained_and_only_by_who_may(
    listener: Listener, browser: Browser
) -> None:
    await seeding.person(listener, "ann", "viewer")
    await browser.sign_in_as("ann", seeding.PASSWORD)
    _, page = await browser.send("GET", AT)
    assert "/drain" not in page
    assert (await browser.send("POST", f"{AT}/drain", {"member": "left"}))[0].status == 403
    await browser.sign_in()
    for member in ("engine", "nobody", ""):
        answer, _ = await browser.send("GET", f"{AT}/drain?member={member}")
        assert answer.status == 400
        answer, _ = await browser.send("POST", f"{AT}/drain", {"member": member})
        assert answer.status == 400
    long = {"member": "left", "reason": "x" * 600}
    assert (await browser.send("POST", f"{AT}/drain", long))[0].status == 409
    assert await drained(listener) == []


async def test_the_json_api_tells_and_does_the_same(listener: Listener, browser: Browser) -> None:
    await said(listener, "w0", LEFT)
    await browser.sign_in()
    _, text = await browser.send("GET", "/api/engine")
    found = json.loads(text)
    (left,) = [each for each in found["lines"] if each["member"] == "left"]
    assert left["newest"]["seen"]["blocks_total"] == 1_000
    answer, _ = await browser.send("POST", "/api/engine/left/drain", body='{"reason": "r"}')
    assert answer.status == 204
    assert await drained(listener) == [("left", "admin-token", "r")]
    assert (await browser.send("POST", "/api/engine/left/resume", body="{}"))[0].status == 204


async def test_an_engine_that_is_down_is_not_said_to_be_quiet_anywhere(
    listener: Listener, browser: Browser
) -> None:
    await said(listener, "w0", structs.replace(RIGHT, provider="engine", member="engine"))
    await browser.sign_in()
    for path in ("/", "/models"):
        _, page = await browser.send("GET", path)
        assert "down" in re.findall(r">engine</(?:strong|a)>.{0,900}", page, re.DOTALL)[0], path
    _, page = await browser.send("GET", "/models/providers/engine")
    assert "It is down, as workers see it: it is not ready (HTTP 503)." in text_of(page)
    listener.clock.advance(120)
    _, page = await browser.send("GET", "/models/providers/engine")
    assert "Nothing was asked of it in the last 15 minutes." in page, "a lost worker tells nothing"


async def test_what_drains_an_engine_is_in_sight_beside_all_its_figures(listener: Listener) -> None:
    await seeding.person(listener, "ops", "platform_admin")
    full = {"blocks_total": 1_000_000, "blocks_used": 750_000, "read_tokens_per_s": 123_456.7}
    await said(listener, "gate-2/w0", structs.replace(LEFT, waiting=4_000, **full), RIGHT)
    async with window(listener) as seen:
        await seen.sign_in("ops", seeding.PASSWORD)
        await seen.open(AT)
        link = await seen.page.get_by_role("link", name="Drain left").bounding_box()
        region = await seen.page.get_by_role("region", name="Engines").bounding_box()
        assert link
        assert region
        assert link["x"] + link["width"] <= region["x"] + region["width"]


async def test_the_page_follows_the_figures_in_a_browser(listener: Listener) -> None:
    await seeding.person(listener, "ops", "platform_admin")
    await said(listener, "w0", LEFT, RIGHT)
    async with window(listener) as seen:
        await seen.sign_in("ops", seeding.PASSWORD)
        await seen.open(AT)
        assert await seen.violations() == []
        await said(listener, "w0", structs.replace(LEFT, blocks_used=123), RIGHT)
        await seen.page.get_by_text("123 of 1,000").first.wait_for()
        await seen.page.get_by_role("link", name="Drain left").press("Enter")
        assert await seen.violations() == []
        await seen.page.get_by_label("Why").fill("new weights")
        await seen.page.get_by_role("button", name="Drain it").press("Enter")
        await seen.page.get_by_role("button", name="Resume left").wait_for()
        assert seen.problems == []
