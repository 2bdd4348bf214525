"""The room of keys: what is listed is what is stored, and what is done is done once."""

import html
import re
from typing import Any

import msgspec
import pytest

from admin.access import STEP_UP_S
from admin.keys.issuing import OVERLAP_S_MAX
from gateway.errors import NotReady, Unauthenticated
from gateway.identity import Peppers, authenticate, key_id_for
from gateway.secrets.credentials import pepper
from gateway.store.identity.key_lists import KeyLists
from gateway.store.identity.keys import KeyStore
from gateway.store.money.rate_limits import RateLimitTable
from tests.admin.listener import ON_BOTH, Browser, Listener
from tests.admin.seeding import (
    DAY_US,
    HOSTILE,
    PASSWORD,
    issue,
    limit,
    person,
    requests,
)
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio
LIST = "/o/acme/keys"


@pytest.fixture
async def owner(listener: Listener, browser: Browser) -> Browser:
    """An app owner, who issues keys and sets no budgets."""
    await issue(listener, "somebody else's", organisation="umbrella")
    await issue(listener, "an assistant")
    await person(listener, "ann", "app_owner")
    await browser.sign_in_as("ann", PASSWORD)
    return browser


@pytest.fixture
async def admin(listener: Listener, owner: Browser) -> Browser:
    await person(listener, "root", "platform_admin")
    await owner.send("POST", "/sign-out")
    await owner.sign_in_as("root", PASSWORD)
    return owner


async def see(browser: Browser, path: str, status: int = 200) -> str:
    answer, page = await browser.send("GET", path)
    assert answer.status == status, (path, answer.status)
    return page


async def send(browser: Browser, path: str, form: dict[str, str], status: int) -> str:
    answer, page = await browser.send("POST", path, form)
    assert answer.status == status, (path, answer.status, page[-2000:])
    return page


FORM = {
    "name": "payroll assistant",
    "workspace": "people",
    "project": "payroll",
    "expires_days": "90",
    "translation": "warn",
    "budget_window": "month",
}


def secret_in(page: str) -> str:
    found = re.search(r'id="the-key">(gw_live_\w+)<', page)
    assert found is not None
    return found[1]


async def is_good(listener: Listener, key: str) -> bool:
    """Whether the data plane would let the key in."""
    peppers = Peppers({1: pepper(listener.settings)})
    async with listener.database() as database:
        table = await KeyStore(database, peppers, listener.clock).table()
    headers = [(b"x-api-key", key.encode())]
    try:
        authenticate(table, peppers, headers, listener.clock.utc_us())
    except Unauthenticated:
        return False
    return True


def named(mark: str) -> str:
    """The id of the key that a form with this mark made."""
    return key_id_for("acme", mark)


async def test_a_key_is_shown_once_and_works_and_its_list_shows_it(
    listener: Listener, owner: Browser
) -> None:
    await see(owner, f"{LIST}/new")
    page = await send(owner, f"{LIST}/new", FORM | {"key_id": "abcABC012345"}, 201)
    key = secret_in(page)
    assert page.count(key) == 3, "the key, in curl, and in the SDK's snippet"
    assert await is_good(listener, key)

    listed = await see(owner, LIST)
    shown = await see(owner, f"{LIST}/{named('abcABC012345')}")
    assert "payroll assistant" in listed
    assert re.search("people</a></span> / <span[^>]*>payroll<", listed)
    assert "somebody else" not in listed
    assert "ann issued it" in shown or "issued it on" in shown
    assert key not in listed + shown
    again = await send(owner, f"{LIST}/new", FORM | {"key_id": "abcABC012345"}, 400)
    assert "was already sent" in again
    assert key not in again


@pytest.mark.parametrize(
    ("field", "typed"),
    [
        *(("workspace", "Not A Name"), ("name", ""), ("expires_days", "soon")),
        *(("expires_days", "99999"), ("key_id", "../../etc/pw"), ("translation", "loud")),
    ],
)
async def test_a_wrong_field_is_said_beside_it_and_the_others_are_kept(
    owner: Browser, field: str, typed: str
) -> None:
    page = await send(owner, f"{LIST}/new", FORM | {field: typed}, 400)

    assert "gw_live_" not in page
    if field not in ("name", "key_id"):
        assert 'value="payroll assistant"' in page
    if field in ("workspace", "expires_days"):
        assert f'value="{typed}"' in page
        assert 'aria-invalid="true"' in page
    assert "payroll assistant" not in await see(owner, LIST)


async def test_limits_of_a_key_are_for_who_may_set_budgets(
    listener: Listener, owner: Browser
) -> None:
    assert "Only people who may set budgets" in await see(owner, f"{LIST}/new")
    await send(owner, f"{LIST}/new", FORM | {"budget_microusd": "5"}, 403)
    await person(listener, "root", "platform_admin")
    await owner.send("POST", "/sign-out")
    await owner.sign_in_as("root", PASSWORD)
    limits = {"budget_microusd": "12.50", "requests_per_minute": "60", "key_id": "limited00000"}
    await send(owner, f"{LIST}/new", FORM | limits, 201)

    page = await see(owner, f"{LIST}/{named('limited00000')}")
    assert "$12.50" in page
    assert re.search(r"requests a minute</dt><dd>60<", page)
    _, text = await owner.send("GET", f"/api/organisations/acme/keys/{named('limited00000')}")
    detail = msgspec.json.decode(text)
    assert detail["key"]["spendings"][0]["limit_microusd"] == 12_500_000
    assert detail["rate"]["requests_per_minute"] == 60


@ON_BOTH
async def test_filters_find_what_they_say_and_a_broken_one_is_said_in_place(
    listener: Listener, owner: Browser
) -> None:
    await issue(listener, "mail sorter", project="mail")
    await issue(listener, "soon over", expires_us=listener.clock.utc_us() + 3 * DAY_US)
    listener.clock.advance(31 * 86_400)
    await owner.sign_in_as("ann", PASSWORD)
    await issue(listener, "fresh one")

    def names(page: str) -> set[str]:
        return set(re.findall(r'hx-target="#peek">([^<]+)<', page))

    assert names(await see(owner, f"{LIST}?q=state:unused")) == {"an assistant", "mail sorter"}
    assert names(await see(owner, f"{LIST}?q=state:expired")) == {"soon over"}
    assert names(await see(owner, f"{LIST}?q=project:mail+SORTER")) == {"mail sorter"}
    assert names(await see(owner, f"{LIST}?q=owner:nobody")) == set()
    broken = await see(owner, f"{LIST}?q=colour:red", 400)
    assert "There is no filter" in broken
    assert 'value="colour:red"' in broken
    assert len(names(broken)) == 4
    for first in ("9" * 30, "²", "-1", "x"):
        assert names(await see(owner, f"{LIST}?from={first}")) == names(broken), first
    assert names(await see(owner, f"{LIST}?from=4")) == names(broken), "its last page"


@ON_BOTH
async def test_what_a_key_used_stands_on_its_page_with_a_way_to_each_request(
    listener: Listener, owner: Browser
) -> None:
    key_id = await issue(listener, "busy")
    await limit(listener, f"key:{key_id}", 50_000_000, "month")
    asked = requests(listener, key_id, 30, over_us=DAY_US // 8)
    await listener.record(*asked)
    page = await see(owner, f"{LIST}/{key_id}")
    last = f"req_{key_id}_29"

    assert f'href="/o/acme/traffic/{last}"' in page
    assert f'href="/o/acme/traffic?q=key:{key_id}"' in page
    assert "11 requests in the last hour" in page
    assert "of $50.00 this month" in page
    told = msgspec.json.decode(await see(owner, f"/api/organisations/acme/keys/{key_id}"))
    assert told["month_microusd"] == sum(each.cost_microusd for each in asked)
    assert '<dt>Cost this month</dt><dd><a href="/o/acme/costs?by=key">$' in page
    assert "11 requests in the last hour" in await see(owner, f"{LIST}/{key_id}/revoke")
    peek, fragment = await owner.send("GET", f"{LIST}/{key_id}", hx_target="aside#peek")
    assert peek.status == 200
    assert "<html" not in fragment
    assert "11 requests" in fragment


@ON_BOTH
async def test_rotating_leaves_the_old_secret_good_for_its_overlap_and_no_longer(
    listener: Listener, owner: Browser
) -> None:
    old = secret_in(await send(owner, f"{LIST}/new", FORM | {"key_id": "rotated00000"}, 201))
    page = await send(owner, f"{LIST}/{named('rotated00000')}/rotate", {"overlap_s": "3600"}, 201)
    new = secret_in(page)
    assert old != new
    assert (await is_good(listener, old), await is_good(listener, new)) == (True, True)
    shown = await see(owner, f"{LIST}/{named('rotated00000')}")
    assert "two secrets" in shown
    assert "1 hour" in shown
    for wrong in ("x", f"{OVERLAP_S_MAX + 1}"):
        await send(owner, f"{LIST}/{named('rotated00000')}/rotate", {"overlap_s": wrong}, 400)
    listener.clock.advance(3_601)
    assert (await is_good(listener, old), await is_good(listener, new)) == (False, True)
    listener.clock.advance(91 * 86_400)
    await owner.sign_in_as("ann", PASSWORD)
    page = await send(owner, f"{LIST}/{named('rotated00000')}/rotate", {"overlap_s": "60"}, 400)
    assert "This key is expired: issue another one." in page


async def test_a_key_whose_limits_cannot_be_set_is_not_left_alive(
    listener: Listener, admin: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise NotReady("the database does not answer")

    monkeypatch.setattr(RateLimitTable, "set", fails)
    form = FORM | {"key_id": "unlimited000", "requests_per_minute": "5"}
    await send(admin, f"{LIST}/new", form, 503)
    page = await see(admin, f"{LIST}/{named('unlimited000')}")

    assert "Revoked" in page


async def test_a_form_of_rotating_that_is_sent_twice_does_not_end_the_secret_in_use(
    listener: Listener, owner: Browser
) -> None:
    old = secret_in(await send(owner, f"{LIST}/new", FORM | {"key_id": "twice0000000"}, 201))
    at = f"{LIST}/{named('twice0000000')}/rotate"
    (seen,) = re.findall(r'name="seen" value="([^"]+)"', await see(owner, at))
    form = {"overlap_s": "86400", "seen": seen}
    new = secret_in(await send(owner, at, form, 201))
    page = await send(owner, at, form, 409)
    assert "given another secret meanwhile" in page
    assert "gw_live_" not in page
    assert (await is_good(listener, old), await is_good(listener, new)) == (True, True)

    (again,) = re.findall(r'name="seen" value="([^"]+)"', page)
    newest = secret_in(await send(owner, at, form | {"seen": again}, 201))
    assert not await is_good(listener, old), "whoever read that it ends has it so"
    assert (await is_good(listener, new), await is_good(listener, newest)) == (True, True)


async def test_revoking_says_what_happens_and_then_ends_the_key(
    listener: Listener, owner: Browser
) -> None:
    key = secret_in(await send(owner, f"{LIST}/new", FORM | {"key_id": "ended0000000"}, 201))
    page = await see(owner, f"{LIST}/{named('ended0000000')}/revoke")
    assert "No requests in the last hour" in page
    assert await is_good(listener, key)
    answer, _ = await owner.send("POST", f"{LIST}/{named('ended0000000')}/revoke", {})
    assert answer.status == 303
    assert not await is_good(listener, key)
    shown = await see(owner, answer.headers["location"])
    assert "No worker is reporting, so none can be counted" in shown
    assert "Revoked" in shown
    again = await see(owner, f"{LIST}/{named('ended0000000')}/revoke")
    assert "It was revoked just now: requests with it are refused." in again
    assert 'class="danger"' not in again, "there is nothing left to press"
    await send(owner, f"{LIST}/{named('ended0000000')}/rotate", {"overlap_s": "0"}, 400)


async def test_another_organisations_key_is_not_there(listener: Listener, owner: Browser) -> None:
    theirs = await issue(listener, "theirs", organisation="umbrella")
    for path in (theirs, f"{theirs}/rotate", f"{theirs}/revoke"):
        await see(owner, f"{LIST}/{path}", 404)
    for path in ("rotate", "revoke"):
        await send(owner, f"{LIST}/{theirs}/{path}", {"overlap_s": "0"}, 404)


async def test_the_api_issues_shows_and_rotates_like_the_pages(
    listener: Listener, admin: Browser
) -> None:
    base = "/api/organisations/acme/keys"
    order = {"workspace": "w", "project": "p", "name": "n", "models": ["house"], "expires_days": 1}
    answer, text = await admin.send("POST", base, body=msgspec.json.encode(order).decode())
    assert answer.status == 201
    issued = msgspec.json.decode(text)
    answer, text = await admin.send(
        "POST", f"{base}/{issued['key_id']}/rotate", body='{"overlap_s": 0}'
    )
    rotated = msgspec.json.decode(text)
    assert not await is_good(listener, issued["key"])
    assert await is_good(listener, rotated["key"])
    for wrong in (
        *({"models": ["nowhere"]}, {"expires_days": 0}, {"budget_microusd": -1}, {"x": 1}),
        *({"requests_per_minute": 2**63}, {"tokens_per_minute": 2**70}, {"labels": ["a b"]}),
        *({"name": "a\u202eb"}, {"name": "a\nb"}, {"expires_days": 36_501}),
        *({"concurrent_requests": -1}, {"labels": [""]}, {"labels": [f"l{n}" for n in range(51)]}),
    ):
        body = msgspec.json.encode(order | wrong).decode()
        assert (await admin.send("POST", base, body=body))[0].status == 400, wrong
    _, text = await admin.send("GET", f"{base}?q=project:p")
    found = msgspec.json.decode(text)
    (line,) = found["keys"]
    assert (found["count"], found["following"]) == (1, 0)
    assert (line["models"], line["states"][-1]) == (["house"], "live")


async def test_a_rotation_that_the_api_is_sent_twice_does_not_end_the_secret_in_use(
    listener: Listener, owner: Browser
) -> None:
    old = secret_in(await send(owner, f"{LIST}/new", FORM | {"key_id": "again0000000"}, 201))
    at = f"/api/organisations/acme/keys/{named('again0000000')}"

    async def rotate(**said: object) -> tuple[int, dict[str, Any]]:
        body = msgspec.json.encode(said).decode()
        answer, text = await owner.send("POST", f"{at}/rotate", body=body)
        return answer.status, msgspec.json.decode(text)

    async def secrets() -> str:
        _, text = await owner.send("GET", at)
        return str(msgspec.json.decode(text)["secrets"])

    before = await secrets()
    status, said = await rotate(overlap_s=60)
    assert status == 201
    for again in ({}, {"secrets": before}, {"secrets": before, "ends_former": True}):
        status, refused = await rotate(overlap_s=60, **again)
        assert (status, refused["error"]["code"]) == (409, "conflict"), again
    assert (await is_good(listener, old), await is_good(listener, said["key"])) == (True, True)

    status, meant = await rotate(overlap_s=60, secrets=await secrets())
    assert (status, await is_good(listener, old)) == (201, False)
    status, last = await rotate(overlap_s=60, ends_former=True)
    assert (status, await is_good(listener, said["key"])) == (201, False)
    assert (await is_good(listener, meant["key"]), await is_good(listener, last["key"])) == (
        *(True, True),
    )
    listener.clock.advance(60)
    assert (await rotate(overlap_s=60))[0] == 201, "the overlap is over"


async def test_the_record_of_a_key_says_that_it_may_use_nothing(
    listener: Listener, admin: Browser
) -> None:
    order = {"workspace": "w", "project": "p", "name": "n", "budget_microusd": 0}
    for models in (list[str](), None):
        body = msgspec.json.encode(order | {"models": models}).decode()
        answer, _ = await admin.send("POST", "/api/organisations/acme/keys", body=body)
        assert answer.status == 201
    told = [
        msgspec.json.decode(each.detail["after"])
        for each in await deeds(listener)
        if each.action == "key.issued"
    ]

    assert [each.get("models") for each in told] == [[], None]
    assert [each["budget_microusd"] for each in told] == [0, 0]


async def test_a_form_that_waits_for_a_proof_issues_its_key_after_it(
    listener: Listener, owner: Browser
) -> None:
    listener.clock.advance(STEP_UP_S + 1)
    page = await send(owner, f"{LIST}/new", FORM, 403)
    kept = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page))
    page = await send(owner, "/prove", kept | {"password": PASSWORD}, 200)
    assert "payroll assistant" not in await see(owner, LIST)
    kept = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page))
    secret_in(await send(owner, f"{LIST}/new", kept, 201))
    assert "payroll assistant" in await see(owner, LIST)


async def test_hostile_names_are_text_wherever_they_stand(
    listener: Listener, owner: Browser
) -> None:
    for number, name in enumerate(HOSTILE):
        form = FORM | {"name": name, "key_id": f"hostile{number:05d}"}
        answer, _ = await owner.send("POST", f"{LIST}/new", form)
        assert answer.status in (201, 400)
        await issue(listener, name)
    page = await see(owner, LIST)
    for name in HOSTILE[:2]:
        assert name not in page
    assert "&lt;script&gt;" in page


async def test_while_the_database_is_away_a_page_says_what_to_do_about_it(
    listener: Listener, admin: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object) -> None:
        raise NotReady("the database does not answer")

    with monkeypatch.context() as away:
        away.setattr(KeyLists, "states", fails)
        away.setattr(KeyStore, "issue", fails)
        page = await see(admin, f"{LIST}?q=state:live", 503)
        assert f'href="{LIST}?q=state:live">Try again<' in page
        page = await send(admin, f"{LIST}/new", FORM | {"key_id": "away00000000"}, 503)
        assert "may or may not have been done." in page
        assert f'action="{LIST}/new"' in page
        assert "Try again" not in page, "whoever presses it would send nothing"
    await see(admin, f"{LIST}?q=state:live")


async def test_a_key_leads_to_the_forms_of_its_own_limits(
    listener: Listener, admin: Browser
) -> None:
    key, at = await listener.issue_key("assistant"), "/o/acme/costs/limits"
    for window, kept in (("month", "no such limit"), ("day", "$5.00")):
        page = html.unescape(await see(admin, f"{LIST}/{key}"))
        ways = re.findall(r'href="([^"]*/costs/limits/[^"]*)"', page)
        change = f"{at}/change?account=key:{key}&window={window}"
        rate = f"{at}/rate?account=key:{key}"
        assert ways == [change, rate]
        assert kept in await see(admin, change)
        assert f'name="account" value="key:{key}"' in await see(admin, rate)
        await listener.limit(f"key:{key}", 5_000_000)
    await listener.revoke_key(key)
    assert f"{at}/rate" not in await see(admin, f"{LIST}/{key}")
