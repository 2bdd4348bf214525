"""What a key may do is narrowed at once, and widened when somebody else agrees to it."""

import html
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from admin.access import STEP_UP_S
from gateway.identity import Peppers
from gateway.oversight.access import Grant
from gateway.secrets.credentials import pepper
from gateway.store.identity.keys import KeyStore
from gateway.store.identity.people import PeopleStore
from gateway.types import Principal
from tests.admin import seeding
from tests.admin.chromium import come_true, window
from tests.admin.compliance.archive import deeds as projected
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio
LIST = "/o/acme/keys"
INBOX = "/o/acme/approvals"
API = "/api/organisations/acme"
NARROW: dict[str, Any] = {"models": frozenset(["house"]), "labels": ("team",)}


@pytest.fixture
async def owner(listener: Listener, browser: Browser) -> Browser:
    """Petra, who issues keys."""
    await seeding.person(listener, "petra", "app_owner", "acme")
    await seeding.issue(listener, "first")
    await browser.sign_in_as("petra", seeding.PASSWORD)
    return browser


@pytest.fixture
async def second(listener: Listener, owner: Browser) -> AsyncIterator[Browser]:
    """Anton, who lets them do more."""
    assert owner.session_id
    await seeding.person(listener, "anton", "approver", "acme")
    async with browsing(listener) as browser:
        await browser.sign_in_as("anton", seeding.PASSWORD)
        yield browser


async def principal(listener: Listener, key_id: str) -> Principal:
    """Who a worker that loads its keys now takes the key's bearer for."""
    async with listener.database() as database:
        peppers = Peppers({1: pepper(listener.settings)})
        return (await KeyStore(database, peppers, listener.clock).table()).records[key_id].principal


def chosen(*models: str, **more: str) -> list[tuple[str, str]]:
    fields = {"labels": "team", "expires": "keep", "translation": "warn"} | more
    return [*(("models", name) for name in models), *fields.items()]


async def send(browser: Browser, path: str, fields: list[tuple[str, str]]) -> tuple[int, str]:
    form: Any = fields
    answer, page = await browser.send("POST", path, form)
    return answer.status, page


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page)))


async def change(
    browser: Browser, key_id: str, fields: list[tuple[str, str]], reason: str = "a second model"
) -> tuple[int, str]:
    """As people do it: look at what it does, then do it."""
    path = f"{LIST}/{key_id}/change"
    status, page = await send(browser, path, [*fields, ("deed", "look")])
    if status != 200:
        return status, page
    hidden = re.findall(r'name="(was|looked)" value="(\w*)"', page)
    return await send(browser, path, [*fields, *hidden, ("deed", "do"), ("reason", reason)])


async def decide(
    browser: Browser, proposal: str, action: str = "approve", said: str = "for the pilot"
) -> tuple[int, str]:
    form = [("id", proposal), ("action", action), ("reason", said)]
    return await send(browser, f"{INBOX}/keys", form)


async def newest(browser: Browser) -> dict[str, Any]:
    found: list[dict[str, Any]] = msgspec.json.decode(
        (await browser.send("GET", f"{API}/key_proposals"))[1]
    )
    return found[0]


async def test_what_only_takes_away_is_said_first_and_then_holds_at_once(
    listener: Listener, owner: Browser
) -> None:
    key = await seeding.issue(listener, "payroll", labels=("team",))
    path = f"{LIST}/{key}/change"
    _, page = await send(owner, path, [*chosen("house"), ("deed", "look")])
    said = text_of(page)
    assert "narrower It may use house only, instead of all models that policy permits." in said
    assert re.search(r"narrower</span>\s+It may use", page)
    assert "It only narrows, so it takes effect" in said
    assert (await principal(listener, key)).models is None, "looking changes nothing"

    assert (await change(owner, key, chosen("house", translation="strict")))[0] == 303
    asker = await principal(listener, key)
    assert (asker.models, asker.translation) == (frozenset(["house"]), "strict")
    assert (await owner.send("GET", f"{API}/key_proposals"))[1] == "[]"
    told = (await deeds(listener))[-1]
    assert (told.action, told.actor, told.status) == ("key.narrowed", "petra", "ok")
    assert msgspec.json.decode(told.detail["before"])["models"] is None
    assert msgspec.json.decode(told.detail["after"])["models"] == ["house"]
    await projected(listener)
    _, page = await owner.send("GET", f"{LIST}/{key}")
    assert "petra narrowed its permissions" in text_of(page)


async def test_what_lets_it_do_more_waits_with_its_diff_and_its_impact_for_somebody_else(
    listener: Listener, owner: Browser, second: Browser
) -> None:
    key = await seeding.issue(listener, "payroll", **NARROW)
    refused = seeding.requests(listener, key, 12, over_us=3 * seeding.DAY_US)
    asked = {"model_requested": "claude", "status": "refused", "target": "", "http_status": 403}
    await listener.record(
        *seeding.requests(listener, key, 20, over_us=3 * seeding.DAY_US, status="ok"),
        *(
            msgspec.structs.replace(each, request_id=f"{each.request_id}_no", **asked)
            for each in refused[:7]
        ),
    )
    status, page = await send(
        owner, f"{LIST}/{key}/change", [*chosen("house", "claude"), ("deed", "look")]
    )
    assert status == 200
    said = text_of(page)
    assert "wider It may also use claude ." in said
    assert "It made 27 requests in the last 7 days, of which 7 were refused for a model" in said
    assert "Nothing changes until another person approves it: anton may." in said
    assert (await change(owner, key, chosen("house", "claude"), reason=" "))[0] == 400
    assert (await change(owner, key, chosen("house", "claude")))[0] == 303
    assert (await principal(listener, key)).models == frozenset(["house"]), "nothing changed yet"

    _, page = await second.send("GET", INBOX)
    said = text_of(page)
    assert re.search(
        r"Wider permissions for the key payroll +requested by petra.* a second model", said
    )
    assert "wider It may also use claude ." in said
    assert "of which 7 were refused for a model it would now get" in said
    assert "1 to approve" in said
    assert "petra proposes wider permissions for the key payroll of acme" in text_of(
        (await second.send("GET", "/"))[1]
    )
    _, own = await owner.send("GET", INBOX)
    assert "None of your roles may widen keys here." in text_of(own)
    assert "1 to approve" not in own
    waiting = msgspec.json.decode((await owner.send("GET", f"{API}/key_proposals/waiting"))[1])
    assert [(each["impact"]["asked"], each["impact"]["refused"]) for each in waiting] == [(27, 7)]

    proposal = (await newest(owner))["id"]
    assert (await decide(second, proposal, said=" "))[0] == 400
    assert (await decide(second, proposal))[0] == 303
    assert (await principal(listener, key)).models == frozenset(["house", "claude"])
    assert (await decide(second, proposal))[0] == 400, "it is decided"
    assert (await decide(second, "0" * 12))[0] == 404
    done = [each for each in await deeds(listener) if each.action.startswith("key.wid")]
    assert [(each.action, each.actor) for each in done if each.status == "ok"] == [
        *(("key.widening_proposed", "petra"), ("key.widened", "anton")),
    ]
    after = msgspec.json.decode(done[-1].detail["after"])
    assert (after["models"], after["proposed_by"], after["comment"], after["refused"]) == (
        *(["claude", "house"], "petra", "for the pilot", 7),
    )
    await projected(listener)
    _, page = await owner.send("GET", f"{LIST}/{key}")
    said = text_of(page)
    assert "anton approved wider permissions" in said
    assert "is approved by anton: for the pilot" in said


async def test_declining_leaves_it_and_who_proposed_it_takes_it_back(
    listener: Listener, owner: Browser, second: Browser
) -> None:
    key = await seeding.issue(listener, "payroll", **NARROW)
    await change(owner, key, chosen("house", labels="team tier:priority"))
    assert (await decide(second, (await newest(owner))["id"], "reject", "no priority"))[0] == 303
    _, page = await owner.send("GET", f"{LIST}/{key}")
    assert "is declined by anton: no priority" in text_of(page)

    assert (await change(owner, key, chosen("house", expires="never")))[0] == 400, "it may already"
    listener.clock.advance(1)
    assert (await change(owner, key, chosen()))[0] == 303
    proposal = (await newest(owner))["id"]
    _, page = await owner.send("GET", f"{LIST}/{key}")
    assert "It may use all models that policy permits, instead of house ." in text_of(page)
    assert "where anton may approve it" in text_of(page)
    assert (await second.send("POST", f"{LIST}/{key}/proposals/{proposal}/withdraw"))[
        0
    ].status == 403
    assert (await owner.send("POST", f"{LIST}/{key}/proposals/{proposal}/withdraw"))[
        0
    ].status == 303
    assert (await newest(owner))["state"] == "withdrawn"
    assert "Nothing to approve" in (await second.send("GET", INBOX))[1]
    assert (await principal(listener, key)).models == frozenset(["house"])


async def test_who_may_both_propose_and_approve_does_not_agree_with_themselves(
    listener: Listener, owner: Browser
) -> None:
    key = await seeding.issue(listener, "payroll", **NARROW)
    async with listener.database() as database:
        people = PeopleStore(database, listener.clock)
        await people.grant("petra", Grant("approver", "acme"))
    _, page = await send(owner, f"{LIST}/{key}/change", [*chosen(), ("deed", "look")])
    assert "Nobody else can yet" in page
    assert "gatewright users grant NAME approver --organisation acme" in page
    assert (await change(owner, key, chosen()))[0] == 303
    proposal = (await newest(owner))["id"]
    assert (await decide(owner, proposal))[0] == 403
    assert (await decide(owner, proposal, "reject"))[0] == 403
    _, page = await owner.send("GET", INBOX)
    assert "You proposed this, so another person must decide." in page
    body = '{"comment": "mine"}'
    answer, _ = await owner.send("POST", f"{API}/key_proposals/{proposal}/approve", body=body)
    assert answer.status == 403
    assert (await principal(listener, key)).models == frozenset(["house"])


async def test_what_was_looked_at_is_what_is_done_and_nobody_overwrites_another(
    listener: Listener, owner: Browser
) -> None:
    key = await seeding.issue(listener, "payroll", labels=("team",))
    path = f"{LIST}/{key}/change"
    _, page = await send(owner, path, [*chosen("house"), ("deed", "look")])
    hidden = re.findall(r'name="(was|looked)" value="(\w*)"', page)
    other = [*chosen("claude"), *hidden, ("deed", "do")]
    status, page = await send(owner, path, other)
    assert (status, "It may use claude only" in text_of(page)) == (200, True)
    assert (await principal(listener, key)).models is None, "it is looked at first"

    same = [*chosen("house"), *hidden, ("deed", "do")]
    assert (await change(owner, key, chosen("house", "claude")))[0] == 303
    status, page = await send(owner, path, same)
    assert (status, "Somebody else changed this key meanwhile. Nothing was done." in page) == (
        409,
        True,
    )
    assert (await principal(listener, key)).models == frozenset(["house", "claude"])
    for wrong in ({"expires": "days"}, {"expires": "days", "expires_days": "x"}, {"expires": "x"}):
        assert (await change(owner, key, chosen("house", **wrong)))[0] == 400, wrong
    assert (await change(owner, key, chosen("nowhere")))[0] == 400
    assert (await change(owner, "0" * 12, chosen("house")))[0] == 404
    theirs = await seeding.issue(listener, "theirs", organisation="umbrella")
    assert (await change(owner, theirs, chosen("house")))[0] == 404


async def test_the_json_narrows_proposes_and_decides_the_same_with_a_fresh_proof(
    listener: Listener, owner: Browser, second: Browser
) -> None:
    key = await seeding.issue(listener, "payroll", **NARROW)
    at = f"{API}/keys/{key}/change"
    for wrong in ({}, {"models": ["nowhere"]}, {"expires_days": 0, "reason": "r"}, {"x": 1}):
        body = msgspec.json.encode(wrong).decode()
        assert (await owner.send("POST", at, body=body))[0].status == 400, wrong
    answer, text = await owner.send("POST", at, body='{"models": []}')
    assert (answer.status, msgspec.json.decode(text)["proposal"]) == (200, None)
    assert (await principal(listener, key)).models == frozenset()
    assert (await owner.send("POST", at, body='{"models": null}'))[0].status == 400, "no reason"
    _, text = await owner.send("POST", at, body='{"models": null, "reason": "the pilot"}')
    made = msgspec.json.decode(text)
    assert (made["scope"]["models"], made["proposal"]["wanted"]["models"]) == ([], None)
    one, said = f"{API}/key_proposals/{made['proposal']['id']}", '{"comment": "yes"}'
    assert (await owner.send("POST", f"{one}/approve", body=said))[0].status == 403, "no role"
    listener.clock.advance(STEP_UP_S + 1)
    assert (await second.send("POST", f"{one}/approve", body=said))[0].status == 403
    await second.send("POST", "/prove", {"password": seeding.PASSWORD})
    answer, text = await second.send("POST", f"{one}/approve", body=said)
    assert (answer.status, msgspec.json.decode(text)["state"]) == (200, "approved")
    assert (await principal(listener, key)).models is None
    assert (await second.send("POST", f"{one}/decline", body=said))[0].status == 400
    assert (await second.send("POST", f"{API}/key_proposals/x/decline", body=said))[0].status == 404


async def test_a_proposal_leaves_the_inbox_with_its_key(
    listener: Listener, owner: Browser, second: Browser
) -> None:
    key = await seeding.issue(listener, "payroll", **NARROW)
    await change(owner, key, chosen())
    assert "Wider permissions for the key payroll" in (await second.send("GET", INBOX))[1]
    await owner.send("POST", f"{LIST}/{key}/revoke")
    _, page = await second.send("GET", INBOX)
    assert "Nothing to approve" in page
    assert "1 to approve" not in page
    _, page = await owner.send("GET", f"{LIST}/{key}")
    assert "is ended" in text_of(page)
    assert "Change</a>" not in page


async def test_a_key_is_widened_by_keys_and_looks_well_in_every_theme_and_width(
    listener: Listener, owner: Browser, second: Browser
) -> None:
    key = await seeding.issue(listener, seeding.HOSTILE[0], **NARROW)
    assert (await change(owner, key, chosen(), reason=seeding.HOSTILE[1]))[0] == 303
    assert second.session_id
    await seeding.person(listener, "root", "platform_admin")
    async with window(listener) as seen:
        await seen.sign_in("root", seeding.PASSWORD)
        async for view in seen.views():
            for path in (INBOX, f"{LIST}/{key}", f"{LIST}/{key}/change"):
                assert await seen.open(path) == 200
                assert await seen.violations() == [], (path, view)
        page = seen.page
        await page.check("input[name=models][value=claude]")
        await page.click("button:has-text('Preview')")
        await page.wait_for_selector("text=It may also use")
        assert await seen.violations() == []
        assert seen.problems == []
    async with window(listener) as seen:
        page = seen.page
        await seen.sign_in("anton", seeding.PASSWORD)
        await seen.open(INBOX)
        await come_true(page, "document.querySelector('button[data-key=a]') !== null")
        await page.keyboard.press("a")
        await page.wait_for_selector("input[name=reason]:focus")
        await page.keyboard.type("for the pilot")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("text=Done and recorded.")
        assert seen.problems == []
    assert (await principal(listener, key)).models is None
