"""On a screen of 1280 pixels no column of a list is out of sight."""

from pathlib import Path

import pytest
from msgspec import structs
from sqlalchemy import update

from gateway.batches import LineCounts
from gateway.store.custody.incidents import incidents
from gateway.store.schema.policies import policy_versions
from gateway.store.schema.tables import virtual_keys
from gateway.types import AuditRecord
from tests.admin.batches.seeding import batch, end
from tests.admin.chromium import window
from tests.admin.listener import Listener
from tests.admin.models import test_engine as engines
from tests.admin.policies.people import staff
from tests.admin.screenshots import fill
from tests.admin.seeding import PASSWORD, issue, person, requests
from tests.admin.test_every_list_by_key import fill_compliance
from tests.admin.test_long_lists import fill_policies


pytestmark = pytest.mark.anyio

OUT_OF_SIGHT = """() => [...document.querySelectorAll('main .scroll')]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => `${each.ariaLabel}: ${each.scrollWidth} in ${each.clientWidth}`)"""


def _seen(record: AuditRecord, **changes: object) -> AuditRecord:
    return structs.replace(
        record,
        request_id="req_01a21d3528890450bcf2a4088b98",
        target="gatewright-demo",
        findings={"CREDIT_CARD": 1},
        cost_microusd=2,
        duration_us=314_300,
        status="ok",
        error="",
        **changes,
    )


@pytest.mark.parametrize("target", ["gatewright-demo", ""])
async def test_the_list_of_requests_shows_all_its_columns_and_each_outcome(
    listener: Listener, target: str
) -> None:
    """The last columns were cut off, and an outcome that had asked nobody was blank."""
    key_id = await issue(listener, "made by somebody for a long trial")
    (record,) = requests(listener, key_id, 1)
    route = {"target": target} if target else {"target": "", "provider": "", "jurisdiction": ""}
    await listener.record(structs.replace(_seen(record), **route))
    await person(listener, "cora", "compliance")
    async with window(listener) as seen:
        await seen.sign_in("cora", PASSWORD)
        await seen.open("/o/acme/traffic")
        assert await seen.page.evaluate(OUT_OF_SIGHT) == []
        assert await seen.page.inner_text("tbody td:nth-child(2) >> nth=-1") != ""


async def test_large_costs_and_limits_push_no_column_of_requests_or_keys_out_of_sight(
    listener: Listener,
) -> None:
    key_id = await issue(listener, "made by somebody for a long trial")
    (record,) = requests(listener, key_id, 1)
    await listener.record(structs.replace(_seen(record), cost_microusd=123_456_789 * 10**6))
    long = {"created_by": "o" * 60, "name": "K" * 200}
    async with listener.database() as database, database.writing() as connection:
        await connection.execute(update(virtual_keys).values(long))
    await listener.limit(f"key:{key_id}", 9_999_999_999 * 10**6)
    await person(listener, "ann", "platform_admin")
    async with window(listener) as seen:
        await seen.sign_in("ann", PASSWORD)
        for path in ("/o/acme/traffic", "/o/acme/keys"):
            await seen.open(path)
            for width in (1280, 1366):
                await seen.page.set_viewport_size({"width": width, "height": 900})
                assert await seen.page.evaluate(OUT_OF_SIGHT) == [], (path, width)


async def test_the_list_of_reveals_shows_all_its_columns(listener: Listener) -> None:
    key_id = await issue(listener, "an assistant")
    (record,) = requests(listener, key_id, 1)
    await listener.record(_seen(record))
    await person(listener, "cora", "compliance")
    async with window(listener) as seen:
        await seen.sign_in("cora", PASSWORD)
        await seen.open("/o/acme/compliance/reveals/new")
        await seen.page.fill("[name=request_id]", "req_01a21d3528890450bcf2a4088b98")
        await seen.page.fill("[name=reason]", "A customer says their card was sent abroad")
        await seen.page.fill("[name=ticket]", "SECURITY-1017")
        await seen.page.click("main button:has-text('Send the request')")
        await seen.page.wait_for_url("**/reveals/*")
        await seen.open("/o/acme/compliance/reveals")
        assert await seen.page.inner_text("th >> nth=-1") == "Readings"
        assert await seen.page.evaluate(OUT_OF_SIGHT) == []


async def test_lists_of_batches_providers_and_roles_show_all_their_columns(
    listener: Listener,
) -> None:
    key_id = await issue(listener, "made by somebody for a long trial")
    async with listener.database() as database:
        ended = await batch(listener, database, key_id, 3)
        await end(listener, database, ended, LineCounts(succeeded=3))
    await person(listener, "petra", "platform_admin")
    async with window(listener) as seen:
        await seen.sign_in("petra", PASSWORD)
        for path in ("/o/acme/batches", "/models", "/people"):
            await seen.open(path)
            await seen.page.evaluate(
                "() => document.querySelectorAll('details').forEach((each) => each.open = true)"
            )
            assert await seen.page.locator("main .scroll").count() > 0
            assert await seen.page.evaluate(OUT_OF_SIGHT) == [], path


async def test_long_names_push_no_column_of_limits_incidents_or_versions_out_of_sight(
    listener: Listener,
) -> None:
    await staff(listener)
    await person(listener, "cora", "compliance")
    await person(listener, "petra", "platform_admin")
    now_us = listener.clock.utc_us()
    typed = {"author": f"{'n' * 40}, typed by os:{'u' * 30}"}
    async with listener.database() as database:
        await fill_compliance(database, now_us)
        await fill_policies(database, listener, "org:acme", 12)
        long = {"title": "Untersuchung " * 9, "opened_by": "o" * 60, "regimes": "cert-in dpdp"}
        for table, values in ((incidents, long), (policy_versions, typed)):
            async with database.writing() as connection:
                await connection.execute(update(table).values(values))
    key_id = await issue(listener, "K" * 200)
    await listener.limit(f"key:{key_id}", 10**6)
    async with window(listener) as seen:
        for name, paths in (
            ("cora", ("/o/acme/compliance", "/o/acme/compliance/incidents")),
            ("petra", ("/o/acme/costs/limits", "/o/acme/policies/organisation/history")),
        ):
            await seen.sign_in(name, PASSWORD)
            for path in paths:
                await seen.open(path)
                assert await seen.page.locator("main .scroll").count() > 0
                assert await seen.page.evaluate(OUT_OF_SIGHT) == [], path
            if name == "cora":
                await seen.open("/o/acme/compliance")
                assert "10 of 30 open incidents" in await seen.page.inner_text("main")


async def test_a_window_too_narrow_for_a_rail_beside_them_shows_every_column_of_the_lists(
    tmp_path: Path, sqlite_url: str
) -> None:
    """From 1101 to 1279 pixels ten lists were cut off, one of engines in a pool even at 1280."""
    async with Listener(tmp_path, sqlite_url, engines.MORE) as listener:
        await fill(listener)
        await engines.said(listener, "w5", engines.LEFT, engines.RIGHT, ago_s=2)
        acme = ("traffic", "costs", "batches", "teams", "audit", "keys", "compliance/reviews")
        paths = [*(f"/o/acme/{each}" for each in (*acme, "compliance/erasures"))]
        async with window(listener) as seen:
            await seen.sign_in("mira", PASSWORD)
            for path in (*paths, "/models", "/models/engine", "/system"):
                await seen.open(path)
                for width in (1101, 1279, 1280):
                    await seen.page.set_viewport_size({"width": width, "height": 900})
                    assert await seen.page.locator("main .scroll").count() > 0
                    assert await seen.page.evaluate(OUT_OF_SIGHT) == [], (path, width)


@pytest.mark.long
async def test_between_a_phone_and_a_desk_no_column_of_a_list_is_out_of_sight(
    listener: Listener,
) -> None:
    """At 820 pixels what a list said last was pushed out, and no word is torn for it."""
    shown = await fill(listener)
    torn = """() => [...document.querySelectorAll('table.broad .chip')].flatMap((chip) => {
      const word = document.createRange(), text = chip.lastChild;
      return [...text.data.matchAll(/\\S+/g)].filter((found) => {
        word.setStart(text, found.index);
        word.setEnd(text, found.index + found[0].length);
        return new Set([...word.getClientRects()].map((each) => Math.round(each.top))).size > 1;
      }).map((found) => found[0]);
    })"""
    async with window(listener, width=820) as seen:
        await seen.sign_in("mira", PASSWORD)
        for path in ("traffic", "batches", "compliance/reviews"):
            await seen.open(f"/o/acme/{path}")
            assert await seen.page.evaluate(OUT_OF_SIGHT) == [], path
            assert await seen.page.evaluate(torn) == [], path
        for path in ("/models", "/models/engine"):
            await seen.open(path)
            assert await seen.page.evaluate(OUT_OF_SIGHT) == [], path
            assert await seen.page.evaluate(torn) == [], path
        await seen.page.set_viewport_size({"width": 390, "height": 844})
        for path in (f"traffic/{shown}", "policies/organisation/versions/2"):
            await seen.open(f"/o/acme/{path}")
            assert await seen.page.evaluate(OUT_OF_SIGHT) == [], path
