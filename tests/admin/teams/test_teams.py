"""Teams in the browser: made, owned, limited, archived; what new keys get, and who is told what."""

import re

import msgspec
import pytest

from gateway.audit.projecting.projector import Projector
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.identity.teams import Team, TeamStore
from gateway.store.money.leases import LeaseTable
from gateway.store.money.rate_limits import RateLimitTable
from tests.admin import seeding
from tests.admin.listener import Browser, Listener
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio
ROOM = "/o/acme/teams"


async def _team(listener: Listener, name: str) -> Team:
    async with listener.database() as database:
        team = await TeamStore(database, listener.clock).team("acme", name)
    assert team is not None
    return team


async def _project(listener: Listener) -> None:
    directory = listener.settings.path(listener.settings.audit.directory)
    async with listener.database() as database:
        await Projector(directory, DatabaseAuditSink(database, directory)).catch_up()


@pytest.fixture
async def admin(listener: Listener, browser: Browser) -> Browser:
    await listener.issue_key("assistant")
    await seeding.person(listener, "olga", "app_owner", "acme")
    await seeding.person(listener, "petra", "platform_admin")
    await browser.sign_in_as("petra", seeding.PASSWORD)
    return browser


async def test_a_team_is_made_changed_archived_and_its_page_tells_the_story(
    listener: Listener, admin: Browser
) -> None:
    form = {"name": "people", "title": "People & Culture", "owner": "olga"}
    answer, _ = await admin.send("POST", "/o/acme/new-team", form)
    assert (answer.status, answer.headers["location"]) == (303, f"{ROOM}/people")
    await admin.send("POST", f"{ROOM}/people/members", {"person": "petra"})
    changed = {"title": "People", "owner": "petra", "revision": "0"}
    await admin.send("POST", f"{ROOM}/people/change", changed)
    _, page = await admin.send("GET", f"{ROOM}/people/archive")
    assert "It has no live key, so nothing stops working." in page
    answer, _ = await admin.send("POST", f"{ROOM}/people/archive", {"revision": "1"})
    assert answer.status == 303

    await _project(listener)
    _, page = await admin.send("GET", f"{ROOM}/people")
    assert "<h1>People</h1>" in page
    assert "no keys can be issued in it" in page
    for said in ("created it", "added petra", "changed its display name or owner", "archived it"):
        assert f"petra {said}" in page
    names = [each.action for each in await deeds(listener) if each.action.startswith("team.")]
    assert names == ["team.created", "team.member_added", "team.changed", "team.archived"]
    _, listed = await admin.send("GET", f"{ROOM}?state=archived")
    assert "People" in listed
    assert "/teams/research" not in listed


async def test_who_is_second_sees_how_it_is_now_and_keeps_what_was_typed(
    listener: Listener, admin: Browser
) -> None:
    first = {"title": "First", "owner": "", "revision": "0"}
    await admin.send("POST", f"{ROOM}/research/change", first)
    answer, page = await admin.send("POST", f"{ROOM}/research/change", first | {"title": "Second"})

    assert answer.status == 409
    assert "Somebody else changed this team meanwhile" in page
    assert (
        "It is now called First, it has no owner, and new keys get no limit of their own." in page
    )
    assert 'value="Second"' in page
    assert (await _team(listener, "research")).title == "First"


@pytest.mark.parametrize(
    ("part", "form", "said"),
    [
        ("", {"name": "Not a name"}, "use 1 to 63 lower-case letters"),
        ("", {"name": "research"}, "there is such a team already"),
        ("", {"name": "x", "owner": "nobody"}, "nobody with a role in this organisation"),
        ("research/members", {"person": "nobody"}, "nobody with a role in this organisation"),
        ("research/change", {"title": "", "owner": ""}, "a title has 1 to 200 characters"),
        ("research/defaults", {"budget_microusd": "much"}, "not an amount of dollars"),
        ("research/restore", {}, "This team is not archived"),
    ],
)
async def test_what_cannot_be_done_is_said_in_place(
    admin: Browser, part: str, form: dict[str, str], said: str
) -> None:
    answer, page = await admin.send("POST", f"{ROOM}/{part}" if part else "/o/acme/new-team", form)

    assert answer.status == 400
    assert said in page


async def test_a_team_is_archived_once_and_says_since_when(
    listener: Listener, admin: Browser
) -> None:
    await admin.send("POST", f"{ROOM}/research/archive")
    since_us = (await _team(listener, "research")).archived_us
    listener.clock.advance(60)
    answer, page = await admin.send("POST", f"{ROOM}/research/archive")

    assert (answer.status, "This team is already archived." in page) == (400, True)
    assert (await _team(listener, "research")).archived_us == since_us


async def test_a_new_key_gets_what_its_team_gives_also_from_who_may_set_no_limit(
    listener: Listener, admin: Browser
) -> None:
    form = {"budget_microusd": "2.5", "budget_window": "day", "tokens_per_minute": "9000"}
    answer, _ = await admin.send("POST", f"{ROOM}/research/defaults", form)
    assert answer.status == 303
    _, page = await admin.send("GET", f"{ROOM}/research")
    assert 'value="2.5"' in page
    assert 'value="9000"' in page
    await admin.send("POST", "/sign-out")
    await admin.sign_in_as("olga", seeding.PASSWORD)
    _, page = await admin.send("GET", "/o/acme/keys/new?workspace=research")
    assert "$2.50 each day, 9,000 tokens a minute" in page
    body = msgspec.json.encode({"workspace": "research", "project": "bot", "name": "hers"})
    answer, text = await admin.send("POST", "/api/organisations/acme/keys", body=body.decode())
    assert answer.status == 201

    account = f"key:{msgspec.json.decode(text)['key_id']}"
    async with listener.database() as database:
        budgets = await LeaseTable(database, listener.clock).budgets()
        (rate,) = await RateLimitTable(database).all()
    limits = [each.limit for each in budgets if each.limit.account == account]
    assert [(each.limit_microusd, each.window) for each in limits] == [(2_500_000, "day")]
    assert (rate.account, rate.tokens_per_minute) == (account, 9_000)
    refused, _ = await admin.send("POST", f"{ROOM}/research/defaults", form)
    assert refused.status == 403


async def test_what_a_team_gives_is_set_over_json_only_where_it_is_as_its_sender_saw_it(
    listener: Listener, admin: Browser
) -> None:
    async def ordered(**order: object) -> int:
        body = msgspec.json.encode(order).decode()
        path = "/api/organisations/acme/teams/research/defaults"
        return (await admin.send("POST", path, body=body))[0].status

    seen = (await _team(listener, "research")).revision
    assert await ordered(expires_days=7, revision=seen) == 201
    assert await ordered(tokens_per_minute=5, revision=seen) == 409
    assert (await _team(listener, "research")).defaults.expires_days == 7
    assert await ordered(tokens_per_minute=5) == 201
    assert (await _team(listener, "research")).defaults.tokens_per_minute == 5


async def test_what_somebody_says_of_a_key_goes_before_what_its_team_gives(
    listener: Listener, admin: Browser
) -> None:
    form = {"budget_microusd": "2.5", "budget_window": "day", "expires_days": "7"}
    await admin.send("POST", f"{ROOM}/research/defaults", form)
    order = {"workspace": "research", "project": "bot", "name": "own", "budget_microusd": 9}
    body = msgspec.json.encode(order).decode()
    _, text = await admin.send("POST", "/api/organisations/acme/keys", body=body)
    key_id = msgspec.json.decode(text)["key_id"]

    _, text = await admin.send("GET", f"/api/organisations/acme/keys/{key_id}")
    key = msgspec.json.decode(text)["key"]
    assert [(each["limit_microusd"], each["window"]) for each in key["spendings"]] == [(9, "month")]
    assert key["expires_us"] - key["created_us"] == 7 * seeding.DAY_US


async def test_an_archived_team_with_live_keys_says_so_and_issues_none(
    listener: Listener, admin: Browser
) -> None:
    _, page = await admin.send("GET", f"{ROOM}/research/archive")
    assert "1 live key keeps working" in page
    await admin.send("POST", f"{ROOM}/research/archive", {})
    _, page = await admin.send("GET", f"{ROOM}/research")
    assert "1 live key keeps working until revoked" in " ".join(page.split())
    form = {"workspace": "research", "project": "bot", "name": "late"}
    answer, page = await admin.send("POST", "/o/acme/keys/new", form)

    assert answer.status == 400
    assert "the team research is archived" in page
    assert 'value="research"' in page


async def test_spending_of_the_month_stands_beside_the_teams_own_limit(
    listener: Listener, admin: Browser
) -> None:
    key = await seeding.issue(listener, "payroll")
    await seeding.limit(listener, "ws:acme/research", 40_000_000, "month")
    rows = seeding.requests(listener, key, 3, over_us=1, status="ok", cost_microusd=1_000_000)
    await listener.record(*rows)
    _, page = await admin.send("GET", ROOM)
    _, text = await admin.send("GET", "/api/organisations/acme/teams/research")

    assert "$3.00" in page
    assert "of $40.00 this month" in page
    line = msgspec.json.decode(text)["line"]
    assert (line["spent_microusd"], line["requests"], line["live_keys"]) == (3_000_000, 3, 2)


async def test_who_can_be_named_is_listed_for_who_may_read_people_and_for_nobody_else(
    listener: Listener, admin: Browser
) -> None:
    await listener.issue_key("theirs", "umbrella")
    await seeding.person(listener, "otto", "viewer", "umbrella")
    await seeding.person(listener, "dora", "viewer", "acme")
    await admin.send("POST", "/person/dora/disable")

    async def named() -> list[list[str]]:
        pages = [await admin.send("GET", path) for path in (f"{ROOM}/research", "/o/acme/new-team")]
        lists = [page.partition('<datalist id="people">')[2] for _, page in pages]
        return [re.findall('value="([^"]+)"', each.partition("</datalist>")[0]) for each in lists]

    assert await named() == [["olga", "petra"]] * 2
    await admin.sign_in_as("olga", seeding.PASSWORD)
    assert await named() == [[]] * 2


async def test_a_team_of_another_organisation_is_not_there(
    listener: Listener, browser: Browser
) -> None:
    await listener.issue_key("theirs", "umbrella")
    await listener.issue_key("ours")
    await seeding.person(listener, "olga", "app_owner", "acme")
    await browser.sign_in_as("olga", seeding.PASSWORD)
    for path in ("/o/umbrella/teams", "/o/umbrella/teams/research", f"{ROOM}/nothing"):
        answer, _ = await browser.send("GET", path)
        assert answer.status == 404, path
