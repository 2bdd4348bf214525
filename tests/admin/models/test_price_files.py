"""Prices put in force in the browser: right as a whole, said first, by two people, taken back."""

import html
import json
import re
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import update

from admin.access import STEP_UP_S
from gateway.oversight.access import Grant
from gateway.store.identity.people import PeopleStore
from gateway.store.money.price_files import PriceFiles
from gateway.store.schema.prices import price_files
from gateway.worker.pricing import PriceWatch
from tests.admin import seeding
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.models.test_prices import ENTRY, MODEL, file_of, text_of
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio

AT = "/models/prices"
DEARER = file_of(output_microusd_per_mtok=ENTRY.output_microusd_per_mtok * 3)
CHEAPER = file_of(output_microusd_per_mtok=ENTRY.output_microusd_per_mtok // 2)


@pytest.fixture
async def ops(listener: Listener, browser: Browser) -> Browser:
    """Petra, who proposes prices; there is an organisation, as it has a key."""
    await seeding.issue(listener, "first")
    await seeding.person(listener, "petra", "platform_admin")
    await browser.sign_in_as("petra", seeding.PASSWORD)
    return browser


@pytest.fixture
async def second(listener: Listener) -> AsyncIterator[Browser]:
    """Anton, who approves them."""
    await seeding.person(listener, "anton", "approver")
    async with browsing(listener) as browser:
        await browser.sign_in_as("anton", seeding.PASSWORD)
        yield browser


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


async def propose(browser: Browser, path: str, seen: int, reason: str = "agreed") -> int:
    fields = {"seen": str(seen), "reason": reason}
    answer, _ = await browser.send("POST", f"{path}/propose", fields)
    return answer.status


async def decide(browser: Browser, number: int, deed: str = "approve", said: str = "yes") -> int:
    path = f"{AT}/proposals/{number}/{deed}"
    answer, _ = await browser.send("POST", path, {"reason": said})
    return answer.status


async def test_a_file_is_kept_said_proposed_approved_by_another_recorded_and_taken_back(
    listener: Listener, ops: Browser, second: Browser
) -> None:
    key = await seeding.issue(listener, "payroll")
    await listener.record(*seeding.requests(listener, key, 60))
    path = await keep(ops, DEARER)
    _, page = await ops.send("GET", path)
    said = text_of(page)
    assert "a.toml, given by petra" in said
    assert "Not in force." in said
    assert re.search(
        r"1 model will have new prices; the last 30 days would have cost \$.* more", said
    )
    assert re.search(rf"{MODEL} \(serves claude\): output costs \$.* instead of \$.* \(\+200", said)
    assert "Nothing changes until another person approves it: anton may" in said

    assert await propose(ops, path, 0) == 303
    assert await price_in_force(listener) == ENTRY.output_microusd_per_mtok
    assert await decide(ops, 1) == 403, "she has no role that approves"
    _, page = await ops.send("GET", path)
    assert "It can be approved by anton" in text_of(page)
    assert await decide(second, 1, said="as in the contract") == 303
    assert await price_in_force(listener) == 3 * ENTRY.output_microusd_per_mtok
    _, page = await ops.send("GET", AT)
    assert "proposed by petra and approved by anton: 1 model is priced by" in text_of(page)
    for seen, (number, reason) in enumerate(
        (("2", "negotiated"), ("1", "too early"), ("0", "as before")), 1
    ):
        if number == "2":
            await keep(ops, CHEAPER)
        assert await propose(ops, f"{AT}/files/{number}", seen, reason) == 303
        assert await decide(second, seen + 1) == 303
    assert await price_in_force(listener) == ENTRY.output_microusd_per_mtok

    _, page = await ops.send("GET", AT)
    history = text_of(page[page.index('id="history"') :])
    assert re.search(
        r"petra anton as before in force .*too early .*negotiated .*agreed .*before", history
    )
    told = [each for each in await deeds(listener) if each.action.startswith("prices.")]
    assert [(each.action, each.actor) for each in told[:3]] == [
        *(("prices.kept", "petra"), ("prices.proposed", "petra"), ("prices.approved", "anton")),
    ]
    after = json.loads(told[2].detail["after"])
    assert (after["number"], after["proposed_by"], after["comment"]) == (
        *(1, "petra", "as in the contract"),
    )
    assert after["last_days_more_microusd"] > 0


async def test_a_proposal_waits_in_the_inbox_and_under_needs_you_and_is_decided_there(
    listener: Listener, ops: Browser, second: Browser
) -> None:
    key = await seeding.issue(listener, "payroll")
    await listener.record(*seeding.requests(listener, key, 60))
    await propose(ops, await keep(ops, DEARER), 0, "the vendor's letter of May")
    inbox = "/o/acme/approvals"
    _, page = await second.send("GET", inbox)
    said = text_of(page)
    assert "the vendor's letter of May" in html.unescape(said)
    assert re.search(r"1 model will have new prices .* the last 30 days cost \$.* more", said)
    assert "1 to approve" in said
    assert "proposed by petra" in text_of((await second.send("GET", "/"))[1])

    _, own = await ops.send("GET", inbox)
    assert "None of your roles may approve prices" in text_of(own)
    assert "proposed by petra" not in text_of((await ops.send("GET", "/"))[1])

    form = {"id": "1", "action": "reject", "reason": ""}
    assert (await second.send("POST", f"{inbox}/prices", form))[0].status == 400
    form["reason"] = "not what was agreed"
    assert (await second.send("POST", f"{inbox}/prices", form))[0].status == 303
    assert (await second.send("POST", f"{inbox}/prices", form))[0].status == 400, "it is decided"
    assert await price_in_force(listener) == ENTRY.output_microusd_per_mtok
    _, page = await ops.send("GET", f"{AT}/files/1")
    assert "declined by anton: not what was agreed" in text_of(page)
    assert [each.action for each in await deeds(listener)][-1] == "prices.declined"

    await propose(ops, f"{AT}/files/1", 0)
    form |= {"id": "2", "action": "approve", "reason": "yes"}
    assert (await second.send("POST", f"{inbox}/prices", form))[0].status == 303
    assert await price_in_force(listener) == 3 * ENTRY.output_microusd_per_mtok


async def test_who_may_both_propose_and_approve_does_not_approve_their_own(
    listener: Listener, browser: Browser
) -> None:
    await seeding.issue(listener, "payroll")
    await seeding.person(listener, "petra", "platform_admin")
    async with listener.database() as database:
        people = PeopleStore(database, listener.clock)
        await people.grant("petra", Grant("approver", "*"))
    await browser.sign_in_as("petra", seeding.PASSWORD)
    path = await keep(browser, DEARER)
    _, page = await browser.send("GET", path)
    assert "Nobody else can yet" in text_of(page)
    assert await propose(browser, path, 0) == 303
    form = {"id": "1", "action": "reject", "reason": "no"}
    assert await decide(browser, 1) == 403
    assert await decide(browser, 1, "decline", "no") == 403
    assert (await browser.send("POST", "/o/acme/approvals/prices", form))[0].status == 403
    _, page = await browser.send("GET", path)
    assert "Nobody else may approve prices yet" in text_of(page)
    assert "gatewright users grant NAME approver" in page
    assert await price_in_force(listener) == ENTRY.output_microusd_per_mtok
    assert await decide(browser, 1, "withdraw") == 303
    _, text = await browser.send("GET", "/api/prices/proposals")
    assert [each["state"] for each in json.loads(text)] == ["withdrawn"]
    told = [each.action for each in await deeds(listener) if each.action.startswith("prices.")]
    assert told == ["prices.kept", "prices.proposed", "prices.withdrawn"]


async def test_a_long_file_is_kept_whole_whatever_way_a_form_sends_it(ops: Browser) -> None:
    path = await keep(ops, "# as the contract has it\n" * 1_000 + DEARER)
    _, page = await ops.send("GET", path)
    assert "1 model will have new prices" in text_of(page)


async def test_an_approver_of_one_organisation_does_not_approve_prices_of_all(
    listener: Listener, ops: Browser
) -> None:
    await propose(ops, await keep(ops, DEARER), 0)
    await seeding.person(listener, "olga", "approver", "acme")
    async with browsing(listener) as browser:
        await browser.sign_in_as("olga", seeding.PASSWORD)
        form = {"id": "1", "action": "approve", "reason": "yes"}
        assert (await browser.send("POST", "/o/acme/approvals/prices", form))[0].status == 403
        assert await decide(browser, 1) == 403
        _, page = await browser.send("GET", "/o/acme/approvals")
        assert "Price file" not in page
    assert await price_in_force(listener) == ENTRY.output_microusd_per_mtok


async def test_a_file_that_became_wrong_meanwhile_is_refused_whole_when_it_is_approved(
    listener: Listener, ops: Browser, second: Browser
) -> None:
    """As another release of the gateway may find in it what this one did not."""
    path = await keep(ops, DEARER)
    await propose(ops, path, 0)
    async with listener.database() as database, database.writing() as connection:
        await connection.execute(update(price_files).values(text="[models\nx = 1"))
    assert await decide(second, 1) == 400
    form = {"id": "1", "action": "approve", "reason": "yes"}
    answer, page = await second.send("POST", "/o/acme/approvals/prices", form)
    assert answer.status == 400
    assert "It would be refused" in text_of(page)
    assert await price_in_force(listener) == ENTRY.output_microusd_per_mtok


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
    listener: Listener, ops: Browser, second: Browser
) -> None:
    first, other = await keep(ops, DEARER), await keep(ops, CHEAPER)
    assert await propose(ops, first, 0, "") == 400
    assert await propose(ops, first, 0) == 303
    assert await propose(ops, first, 0) == 400, "it is proposed already"
    assert await propose(ops, other, 0) == 303
    assert await decide(second, 1) == 303
    assert await decide(second, 2) in (400, 409), "what was compared is not in force any more"
    assert await propose(ops, other, 0) == 409
    assert await propose(ops, first, 1) == 400, "it is in force"
    assert await propose(ops, f"{AT}/files/9", 1) == 404
    assert await decide(second, 9) == 404
    assert await price_in_force(listener) == 3 * ENTRY.output_microusd_per_mtok


async def test_a_reason_has_a_limit_which_is_said(ops: Browser) -> None:
    """It said "say why" of three thousand characters."""
    path = await keep(ops, DEARER)
    form = {"reason": "x" * 3_000, "seen": "0"}
    answer, page = await ops.send("POST", f"{path}/propose", form)
    assert answer.status == 400
    assert "use at most 1,000 characters: these are 3,000" in page
    assert "x" * 3_000 in page, "what was typed stays"


async def test_approving_wants_a_fresh_proof_and_proposing_a_role_that_may(
    listener: Listener, ops: Browser, second: Browser
) -> None:
    path = await keep(ops, DEARER)
    await propose(ops, path, 0)
    listener.clock.advance(STEP_UP_S + 1)
    answer, page = await second.send(
        "POST", f"{AT}/proposals/1/approve", {"reason": "as agreed in May"}
    )
    assert answer.status == 403
    assert "as agreed in May" in page, "what was typed goes along with the question for the proof"
    assert await price_in_force(listener) == ENTRY.output_microusd_per_mtok

    await seeding.person(listener, "vera", "viewer")
    await ops.sign_in_as("vera", seeding.PASSWORD)
    _, page = await ops.send("GET", path)
    assert "Approve: put in force" not in page
    assert await propose(ops, path, 0) == 403
    assert await decide(ops, 1) == 403
    assert (await ops.send("POST", f"{AT}/files", {"text": CHEAPER}))[0].status == 403


async def test_the_json_keeps_compares_proposes_and_approves_the_same(
    listener: Listener, ops: Browser, second: Browser
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
    proposal = json.dumps({"reason": "agreed", "seen": 0})
    answer, text = await ops.send("POST", "/api/prices/files/1/propose", body=proposal)
    assert (answer.status, json.loads(text)["state"]) == (201, "waiting")
    yes = json.dumps({"comment": "as in the contract"})
    answer, text = await second.send("POST", "/api/prices/proposals/1/approve", body=yes)
    assert answer.status == 200, text
    assert json.loads(text)["place"] == 1
    _, text = await ops.send("GET", "/api/prices")
    now = json.loads(text)
    assert (now["number"], now["proposed_by"], now["by"], now["own"]) == (
        *(1, "petra", "anton", [MODEL]),
    )
    after = json.loads((await ops.send("GET", costs))[1])["savings"]
    assert after["baseline_microusd"] > before["baseline_microusd"], "pages count by them, too"
