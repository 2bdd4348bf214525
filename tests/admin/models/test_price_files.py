"""Prices put in force in the browser: right as a whole, said first, proved anew, and taken back."""

import json
import re

import pytest

from admin.access import STEP_UP_S
from gateway.store.money.price_files import PriceFiles
from gateway.worker.pricing import PriceWatch
from tests.admin import seeding
from tests.admin.listener import Browser, Listener
from tests.admin.models.test_prices import ENTRY, MODEL, file_of, text_of
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio

AT = "/models/prices"
DEARER = file_of(output_microusd_per_mtok=ENTRY.output_microusd_per_mtok * 3)
CHEAPER = file_of(output_microusd_per_mtok=ENTRY.output_microusd_per_mtok // 2)


@pytest.fixture
async def ops(listener: Listener, browser: Browser) -> Browser:
    await seeding.person(listener, "petra", "platform_admin")
    await browser.sign_in_as("petra", seeding.PASSWORD)
    return browser


async def price_in_force(listener: Listener) -> int:
    """What a worker that starts now charges for the model's output."""
    told = [0]
    async with listener.database() as database:
        files = PriceFiles(database, listener.clock)
        watch = PriceWatch(
            listener.settings,
            lambda targets: told.append(
                next(t.price.output_microusd_per_mtok for t in targets if t.name == "claude")
            ),
            files,
        )
        await watch.start()
    return told[-1] or ENTRY.output_microusd_per_mtok


async def keep(browser: Browser, text: str) -> str:
    """The path of the page of a file that was kept."""
    answer, page = await browser.send("POST", f"{AT}/files", {"text": text, "name": "a.toml"})
    assert answer.status == 303, page[-500:]
    return answer.headers["location"]


async def order(browser: Browser, path: str, seen: int, reason: str = "agreed") -> int:
    fields = {"seen": str(seen), "reason": reason}
    answer, _ = await browser.send("POST", f"{path}/force", fields)
    return answer.status


async def test_a_file_is_kept_said_in_numbers_put_in_force_recorded_and_taken_back(
    listener: Listener, ops: Browser
) -> None:
    key = await seeding.issue(listener, "payroll")
    await listener.record(*seeding.requests(listener, key, 60))
    path = await keep(ops, DEARER)
    assert await price_in_force(listener) == ENTRY.output_microusd_per_mtok
    _, page = await ops.send("GET", path)
    said = text_of(page)
    assert "a.toml, given by petra" in said
    assert "Not in force." in said
    assert re.search(
        r"1 model will cost otherwise; the last 30 days would have cost \$.* more", said
    )

    assert await order(ops, path, 0) == 303
    assert await price_in_force(listener) == 3 * ENTRY.output_microusd_per_mtok
    _, page = await ops.send("GET", AT)
    assert "by petra: 1 model is priced by price file 1" in text_of(page)
    await order(ops, await keep(ops, CHEAPER), 1, "negotiated")
    assert await price_in_force(listener) == ENTRY.output_microusd_per_mtok // 2

    # Back to the one before, and back to what the configuration says.
    assert await order(ops, f"{AT}/files/1", 2, "too early") == 303
    assert await price_in_force(listener) == 3 * ENTRY.output_microusd_per_mtok
    assert await order(ops, f"{AT}/files/0", 3, "as before") == 303
    assert await price_in_force(listener) == ENTRY.output_microusd_per_mtok

    _, page = await ops.send("GET", AT)
    history = text_of(page[page.index('id="history"') :])
    assert re.search(r"as before in force .*too early .*negotiated .*agreed .*before", history)
    told = [each for each in await deeds(listener) if each.action.startswith("prices.")]
    assert [each.action for each in told] == ["prices.kept", "prices.ordered"] * 2 + [
        *("prices.ordered", "prices.ordered")
    ]
    assert {each.actor for each in told} == {"petra"}
    after = json.loads(told[1].detail["after"])
    assert (after["number"], after["reason"]) == (1, "agreed")
    assert after["last_days_more_microusd"] > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[models\nx = 1", "line 1"),
        (DEARER + file_of("other", input_microusd_per_mtok=-1), "is negative"),
        ("", "nothing in it"),
    ],
)
async def test_one_error_refuses_the_whole_file_and_nothing_is_kept(
    listener: Listener, ops: Browser, text: str, said: str
) -> None:
    answer, page = await ops.send("POST", f"{AT}/files", {"text": text})
    assert answer.status == 400
    assert said in page
    _, files = await ops.send("GET", "/api/prices/files")
    assert json.loads(files) == {"files": [], "orders": []}
    assert [each.action for each in await deeds(listener)] == ["session.began"]


async def test_who_looked_at_other_prices_gets_a_conflict_and_a_reason_is_needed(
    listener: Listener, ops: Browser
) -> None:
    first, second = await keep(ops, DEARER), await keep(ops, CHEAPER)
    assert await order(ops, first, 0, "") == 400
    assert await order(ops, first, 0) == 303
    assert await order(ops, second, 0) == 409
    assert await order(ops, first, 1) == 400, "it is in force"
    assert await order(ops, f"{AT}/files/9", 1) == 404
    assert await price_in_force(listener) == 3 * ENTRY.output_microusd_per_mtok


async def test_putting_in_force_wants_a_fresh_proof_and_a_role_that_may(
    listener: Listener, ops: Browser
) -> None:
    path = await keep(ops, DEARER)
    listener.clock.advance(STEP_UP_S + 1)
    fields = {"seen": "0", "reason": "agreed in May"}
    answer, page = await ops.send("POST", f"{path}/force", fields)
    assert answer.status == 403
    assert "agreed in May" in page, "what was typed goes along with the question for the proof"
    assert await price_in_force(listener) == ENTRY.output_microusd_per_mtok

    await seeding.person(listener, "vera", "viewer")
    await ops.sign_in_as("vera", seeding.PASSWORD)
    _, page = await ops.send("GET", path)
    assert "Put in force on all workers" not in page
    assert await order(ops, path, 0) == 403
    assert (await ops.send("POST", f"{AT}/files", {"text": CHEAPER}))[0].status == 403


async def test_the_json_keeps_compares_and_orders_the_same(
    listener: Listener, ops: Browser
) -> None:
    key = await seeding.issue(listener, "payroll")
    await listener.record(*seeding.requests(listener, key, 60))
    costs = "/api/organisations/acme/costs/summary?since=2026-12-01"
    before = json.loads((await ops.send("GET", costs))[1])["savings"]
    body = json.dumps({"text": DEARER, "name": "may.toml"})
    answer, text = await ops.send("POST", "/api/prices/files", body=body)
    assert (answer.status, json.loads(text)) == (201, {"number": 1})
    _, text = await ops.send("GET", "/api/prices/files/1/compared")
    assert [change["model"] for change in json.loads(text)["changes"]] == [MODEL]
    order_of = json.dumps({"reason": "agreed", "seen": 0})
    answer, text = await ops.send("POST", "/api/prices/files/1/force", body=order_of)
    assert answer.status == 200
    assert json.loads(text)["place"] == 1
    _, text = await ops.send("GET", "/api/prices")
    now = json.loads(text)
    assert (now["number"], now["by"], now["own"]) == (1, "petra", [MODEL])
    after = json.loads((await ops.send("GET", costs))[1])["savings"]
    assert after["baseline_microusd"] > before["baseline_microusd"], "pages count by them, too"
