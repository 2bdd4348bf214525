"""The page of sinks: who takes, who refuses and why, what waits, and sending again."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.audit.projecting.export import segment_rows
from gateway.store.evidence.deliveries import Run, note
from gateway.store.evidence.shipping import Shipper
from gateway.store.evidence.sink import DatabaseAuditSink
from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.listener import Browser, Listener, browsing
from tests.gateway.store.evidence.test_shipping import ListSink


pytestmark = pytest.mark.anyio
MORE = """
[sinks.siem]
kind = "http"
url = "https://user:c4n4ry@siem.example/in/c4n4ry"
[sinks.archive]
kind = "jsonl"
file = "var/out.jsonl"
"""


@pytest.fixture
async def shipping(tmp_path: Path, sqlite_url: str) -> AsyncIterator[Listener]:
    async with Listener(tmp_path, sqlite_url, MORE) as listener:
        await seeding.person(listener, "mira", "platform_admin")
        key = await seeding.issue(listener, "assistant")
        await listener.record(*seeding.requests(listener, key, 20, over_us=seeding.DAY_US))
        yield listener


@pytest.fixture
async def operator(shipping: Listener) -> AsyncIterator[Browser]:
    async with browsing(shipping) as browser:
        await browser.sign_in_as("mira", seeding.PASSWORD)
        yield browser


async def ship(listener: Listener, **sinks: ListSink) -> int:
    async with listener.database() as database:
        records = DatabaseAuditSink(database, listener.folder / "records")
        return await Shipper(database, records, sinks, listener.clock, "w0").perform()


async def told(browser: Browser, path: str = "") -> Any:
    answer, text = await browser.send("GET", f"/api/system/sinks{path}")
    assert answer.status == 200, text
    return msgspec.json.decode(text)


async def test_sinks_that_took_everything_are_said_to(
    shipping: Listener, operator: Browser
) -> None:
    assert await ship(shipping, siem=ListSink(), archive=ListSink()) == 40
    found = await told(operator)
    _, page = await operator.send("GET", "/system/sinks")

    assert (found["verdict"], found["kind"]) == (
        *("All 2 sinks have taken every record there is.", "good"),
    )
    assert {line["name"]: line["address"] for line in found["lines"]} == {
        "siem": "https://…@siem.example/…",
        "archive": "var/out.jsonl",
    }
    assert "c4n4ry" not in page + str(found)
    assert "Delivery log" in page


async def test_a_sink_that_refuses_is_named_with_the_reason_and_what_waits(
    shipping: Listener, operator: Browser
) -> None:
    refusing = ListSink()
    refusing.refuses = True
    assert await ship(shipping, siem=refusing, archive=ListSink()) == 20
    found = await told(operator)
    _, page = await operator.send("GET", "/system/sinks")

    assert found["verdict"] == "siem refuses what is delivered; 20 records wait."
    words = {line["name"]: line["word"] for line in found["lines"]}
    assert words == {"siem": "refuses", "archive": "takes"}
    assert "it is told to refuse" in page


async def test_records_are_sent_again_after_saying_how_many_and_it_is_on_record(
    shipping: Listener, operator: Browser
) -> None:
    sink = ListSink()
    await ship(shipping, siem=sink)
    day = await told(operator, "/siem/replay?since_us=0")
    assert day["records"] == {"acme": 20}
    _, page = await operator.send("GET", "/system/sinks/siem/replay?hours=6")
    since_us = shipping.clock.utc_us() - 6 * seeding.HOUR_US
    count = (await told(operator, f"/siem/replay?since_us={since_us}"))["records"]["acme"]
    assert 0 < count < 20
    assert f"Send {count} again" in page

    path = "/system/sinks/siem/replay"
    answer, _ = await operator.send("POST", path, {"since_us": str(since_us)})
    assert answer.status == 303
    assert await ship(shipping, siem=sink) == count
    assert len(sink.numbers("acme")) == 20 + count
    _, page = await operator.send("GET", "/system/sinks")
    assert "sent again" in page
    folder = shipping.settings.path(shipping.settings.audit.directory)
    (deed,) = [
        row.projected.record
        async for row in segment_rows(folder)
        if row.projected.record.action == "sink.replayed"
    ]
    assert deed.actor == "mira"
    assert msgspec.json.decode(deed.detail["after"])["records"] == count


async def test_only_who_configures_the_system_sends_again(shipping: Listener) -> None:
    await seeding.person(shipping, "otto", "viewer")
    async with browsing(shipping) as browser:
        await browser.sign_in_as("otto", seeding.PASSWORD)
        seen, page = await browser.send("GET", "/system/sinks")
        asked, _ = await browser.send("GET", "/system/sinks/siem/replay")
        sent, _ = await browser.send("POST", "/api/system/sinks/siem/replay", body="{}")

    assert (seen.status, asked.status, sent.status) == (200, 403, 403)
    assert "Send again" not in page


@pytest.mark.parametrize("body", ["{}", '{"since_us": -1}', '{"since_us": "x"}', "{"])
async def test_an_order_that_is_none_changes_nothing(
    shipping: Listener, operator: Browser, body: str
) -> None:
    await ship(shipping, siem=ListSink())
    answer, _ = await operator.send("POST", "/api/system/sinks/siem/replay", body=body)
    absent, _ = await operator.send(
        "POST", "/api/system/sinks/nobody/replay", body='{"since_us": 0}'
    )

    assert (answer.status, absent.status) == (400, 404)
    assert all(run["state"] == "taken" for run in (await told(operator))["runs"])


async def test_without_sinks_the_page_says_how_to_name_one(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    _, page = await browser.send("GET", "/system/sinks")

    assert "[sinks.siem]" in page
    assert "Second audit device" in page


async def test_hostile_words_in_the_log_are_text(shipping: Listener, operator: Browser) -> None:
    text, now_us = seeding.HOSTILE[0], shipping.clock.utc_us()
    async with shipping.database() as database, database.writing() as connection:
        await note(connection, Run("siem", now_us, now_us, "refused", 1, 0, text, text))
    _, page = await operator.send("GET", "/system/sinks")

    assert text not in page
    assert "&lt;script&gt;" in page


async def test_sinks_and_sending_again_can_be_read_by_everybody(shipping: Listener) -> None:
    await ship(shipping, siem=ListSink())
    async with window(shipping) as seen:
        await seen.sign_in("mira", seeding.PASSWORD)
        async for view in seen.views():
            for path in ("/system/sinks", "/system/sinks/siem/replay?hours=24"):
                assert await seen.open(path) == 200
                assert await seen.violations() == [], (path, view)
        assert seen.problems == []
