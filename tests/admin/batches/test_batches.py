"""Batches and files on their pages: numbers and states, cancelled and deleted, never opened."""

from collections.abc import Iterable

import msgspec
import pytest
from sqlalchemy import delete, update

from admin.batches import desk
from gateway.batches import LineCounts
from gateway.store.batching.lists import BatchLists
from gateway.store.engine import Database
from gateway.store.schema.audit import audit_records
from gateway.store.schema.batches import batches
from gateway.store.schema.rollup import batch_costs
from gateway.store.schema.tables import organisations
from gateway.store.traffic import rollup
from gateway.store.traffic.rollup import Rollup
from gateway.types import AuditRecord
from tests.admin import seeding as people
from tests.admin.batches import seeding
from tests.admin.chromium import window
from tests.admin.compliance.archive import deeds
from tests.admin.listener import ON_BOTH, Browser, Listener


pytestmark = pytest.mark.anyio
AT = "/o/acme/batches"
FILES = "/o/acme/files"


async def owner(listener: Listener, browser: Browser) -> None:
    await people.person(listener, "olga", "app_owner", "acme")
    await browser.sign_in_as("olga", people.PASSWORD)


async def test_the_list_is_filtered_and_says_how_far_each_is(
    listener: Listener, browser: Browser
) -> None:
    key = await listener.issue_key("nightly summaries")
    async with listener.database() as database:
        running = await seeding.batch(listener, database, key)
        over = await seeding.batch(listener, database, key, lines=5)
        await seeding.end(listener, database, over, LineCounts(succeeded=3, errored=2))
    await owner(listener, browser)
    _, page = await browser.send("GET", AT)
    assert running[:18] in page
    assert over[:18] in page
    assert "nightly summaries" in page
    _, page = await browser.send("GET", f"{AT}?q=state:completed")
    assert (running[:18] in page, over[:18] in page) == (False, True)
    _, page = await browser.send("GET", f"{AT}?q=nightly+state:failed")
    assert "No batch matches this filter" in page
    _, page = await browser.send("GET", f"{AT}/{over}")
    assert "3 of 5 lines were answered, 2 were not" in page
    _, text = await browser.send("GET", f"/api/organisations/acme/batches/{running}")
    found = msgspec.json.decode(text)
    assert (found["batch"]["waiting"], len(found["lines"])) == (3, 3)
    for path in (AT, f"{AT}/{running}", f"/api/organisations/acme/batches/{running}"):
        assert "secret" not in (await browser.send("GET", path))[1]


def ended(
    listener: Listener, key: str, batch: str, lines: Iterable[int], cost_microusd: int
) -> list[AuditRecord]:
    """Records of lines that ended."""
    return [
        AuditRecord(
            stage="outcome",
            request_id=f"req_{key}_{line}",
            organisation="acme",
            utc_us=listener.clock.utc_us(),
            key_id=key,
            status="ok",
            cost_microusd=cost_microusd,
            detail={"batch": batch, "line": str(line)},
        )
        for line in lines
    ]


async def costs(browser: Browser) -> dict[str, tuple[int, bool]]:
    _, text = await browser.send("GET", "/api/organisations/acme/batches")
    return {
        each["batch"]["id"]: (each["cost_microusd"], each["is_all"])
        for each in msgspec.json.decode(text)
    }


async def from_before(database: Database) -> None:
    """The batches and records as an installation has them that knew no such sums."""
    async with database.writing() as connection:
        await connection.execute(update(batches).values(is_cost_kept=False))
        await connection.execute(update(audit_records).values(batch=""))
        await connection.execute(delete(batch_costs))


@ON_BOTH
async def test_its_requests_are_linked_and_their_cost_is_added_up(
    listener: Listener, browser: Browser
) -> None:
    key = await listener.issue_key("nightly")
    async with listener.database() as database:
        batch = await seeding.batch(listener, database, key)
        await listener.record(
            *ended(listener, key, batch, (2, 1), 1_500_000),
            *ended(listener, key, "batch_other", (3,), 1),
        )
        await owner(listener, browser)
        for _ in range(2):
            _, text = await browser.send("GET", f"/api/organisations/acme/batches/{batch}")
            found = msgspec.json.decode(text)
            assert [each["line"] for each in found["sent"]] == [1, 2]
            assert (found["cost_microusd"], found["is_all"]) == (3_000_000, True)
            await from_before(database)
        _, page = await browser.send("GET", f"{AT}/{batch}")
        assert f"/o/acme/traffic/req_{key}_2" in page

        async with database.writing() as connection:
            gone = audit_records.c.request_id == f"req_{key}_2"
            await connection.execute(update(audit_records).where(gone).values(raw=None))
    for path in (AT, f"{AT}/{batch}"):
        answer, page = await browser.send("GET", path)
        assert (answer.status, f"traffic/req_{key}_2" in page) == (200, False), "it has no bytes"


@ON_BOTH
async def test_what_a_batch_of_very_many_lines_cost_is_exact(
    listener: Listener, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "RECORDS_MAX", 3)
    keys = [await listener.issue_key(name) for name in ("nightly", "weekly")]
    async with listener.database() as database:
        made = [await seeding.batch(listener, database, key) for key in keys]
        for key, batch in zip(keys, made, strict=True):
            await listener.record(*ended(listener, key, batch, range(1, 9), 250_000))
        await owner(listener, browser)
        assert await costs(browser) == dict.fromkeys(made, (2_000_000, True))
        assert "$2.00" in (await browser.send("GET", AT))[1]
        await listener.record(*ended(listener, keys[0], made[0], (9,), 250_000))
        assert (await costs(browser))[made[0]] == (2_250_000, True)

        # Another time zone makes all sums anew, and these are the same.
        async with database.writing() as connection:
            await connection.execute(update(organisations).values(time_zone="Asia/Kolkata"))
        assert (await costs(browser))[made[0]] == (2_250_000, True)

        sums = Rollup(database, listener.clock)
        await sums.tidy()
        assert len(await BatchLists(database, listener.clock).costs("acme", made)) == 2
        async with database.writing() as connection:
            await connection.execute(delete(batches).where(batches.c.id == made[0]))
        await sums.tidy()
        assert list(await BatchLists(database, listener.clock).costs("acme", made)) == [made[1]]


async def test_what_is_not_added_up_yet_is_said_to_be_a_part(
    listener: Listener, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollup, "BATCH_RECORDS", 1)
    key = await listener.issue_key("nightly")
    async with listener.database() as database:
        batch = await seeding.batch(listener, database, key)
    await owner(listener, browser)
    await listener.record(*ended(listener, key, batch, range(1, 9), 250_000))
    cost, is_all = (await costs(browser))[batch]
    assert (cost < 2_000_000, is_all) == (True, False)


async def test_a_batch_from_before_its_cost_was_kept_says_where_it_may_be_more(
    listener: Listener, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [await listener.issue_key(name) for name in ("nightly", "weekly")]
    async with listener.database() as database:
        made = [await seeding.batch(listener, database, key) for key in keys]
        for key, batch in zip(keys, made, strict=True):
            await listener.record(*ended(listener, key, batch, range(2), 1_250_000))
        await from_before(database)
    await owner(listener, browser)

    assert await costs(browser) == dict.fromkeys(made, (2_500_000, True))
    assert "$2.50" in (await browser.send("GET", AT))[1]
    monkeypatch.setattr(desk, "RECORDS_MAX", 3)
    assert sorted((await costs(browser)).values()) == [(1_250_000, False), (2_500_000, True)]
    assert "at least $1.25" in (await browser.send("GET", AT))[1]


async def test_cancelling_says_in_numbers_what_it_does_and_is_a_deed(
    listener: Listener, browser: Browser
) -> None:
    key = await listener.issue_key("nightly")
    async with listener.database() as database:
        batch = await seeding.batch(listener, database, key)
    await owner(listener, browser)
    _, page = await browser.send("GET", f"{AT}/{batch}")
    assert "3 lines that wait are not sent any more" in page
    assert (await browser.send("POST", f"{AT}/{batch}/cancel"))[0].status == 303
    again, page = await browser.send("POST", f"{AT}/{batch}/cancel")
    assert (again.status, "nothing to cancel" in page) == (409, True)
    _, text = await browser.send("GET", "/api/organisations/acme/batches")
    assert [each["batch"]["state"] for each in msgspec.json.decode(text)] == ["cancelling"]
    assert ("olga", "batch.cancelled") in await deeds(listener)
    assert (await browser.send("GET", f"{AT}/batch_none"))[0].status == 404


async def test_a_file_is_deleted_by_who_may_and_shows_no_name(
    listener: Listener, browser: Browser
) -> None:
    key = await listener.issue_key("nightly")
    async with listener.database() as database:
        file = await seeding.file(listener, database, key)
    await people.person(listener, "vic", "viewer", "acme")
    await browser.sign_in_as("vic", people.PASSWORD)
    _, page = await browser.send("GET", f"{FILES}/{file}")
    assert "Delete the file" not in page
    assert (await browser.send("POST", f"{FILES}/{file}/delete"))[0].status == 403
    await owner(listener, browser)
    for path in (FILES, f"{FILES}/{file}"):
        _, page = await browser.send("GET", path)
        assert "2.5 KiB" in page
        assert "secret" not in page
    assert (await browser.send("POST", f"{FILES}/{file}/delete"))[0].status == 303
    _, text = await browser.send("GET", "/api/organisations/acme/files")
    assert msgspec.json.decode(text) == []
    assert ("olga", "file.deleted") in await deeds(listener)


@ON_BOTH
async def test_what_is_older_than_the_list_is_counted_and_can_be_opened(
    listener: Listener, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await listener.issue_key("nightly")
    async with listener.database() as database:
        files, many = [], []
        for _ in range(3):
            files.append(await seeding.file(listener, database, key))
            many.append(await seeding.batch(listener, database, key))
            listener.clock.advance(1)
    await owner(listener, browser)
    monkeypatch.setattr(desk, "LISTED_MAX", 2)
    _, page = await browser.send("GET", FILES)
    assert "3 files, 7.6 KiB together." in page
    assert "3 in all" in page
    _, page = await browser.send("GET", AT)
    assert ("all 3<" in page, "in progress 3<" in page) == (True, True)
    assert ("3 in all" in page, many[0][:18] in page) == (True, True)
    _, page = await browser.send("GET", f"{AT}?q=nightly")
    assert "Words are looked for in the newest 2 of 3." in page
    assert many[0][:18] not in page
    for path, name in ((AT, many[0]), (FILES, files[0])):
        answer, page = await browser.send("GET", f"{path}/{name}")
        assert (answer.status, f"<code>{name}</code>" in page) == (200, True), "the whole id"
    assert (await browser.send("POST", f"{FILES}/{files[0]}/delete"))[0].status == 303
    assert (await browser.send("GET", f"{FILES}/{files[0]}"))[0].status == 404


async def test_its_pages_stand_at_every_width(listener: Listener) -> None:
    key = await listener.issue_key("<script>alert(1)</script>" + "x" * 90)
    async with listener.database() as database:
        batch = await seeding.batch(listener, database, key)
        file = await seeding.file(listener, database, key)
    await people.person(listener, "olga", "app_owner", "acme")
    async with window(listener) as seen:
        await seen.sign_in("olga", people.PASSWORD)
        async for view in seen.views():
            for path in (AT, f"{AT}/{batch}", FILES, f"{FILES}/{file}"):
                assert await seen.open(path) == 200, path
                assert await seen.violations() == [], (path, view)
                wide = await seen.page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, (path, view, wide)
        assert seen.problems == []
