"""Undo: the way back from a deed, offered for two minutes, an ordinary deed that may be refused."""

import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path

import pytest

from admin.undo import COOKIE
from gateway.store.identity.people import PeopleStore
from gateway.store.identity.teams import TeamStore
from gateway.store.money.leases import LeaseTable
from gateway.store.money.rate_limits import RateLimitTable
from gateway.store.pool_drains import DrainTable
from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.models.test_engine import MORE
from tests.admin.policies.people import APPROVER, WRITER, signed_in, staff
from tests.admin.policies.test_rolling_out import STRICT, stepped, submitted
from tests.admin.policies.test_writing import HOME, TEXT, saved, typed
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio
TEAM = "/o/acme/teams/people"
TRAFFIC, AUDIT = "/o/acme/traffic", "/o/acme/audit"
DRAIN = {"member": "left", "reason": "new weights"}
ROLE = {"person": "olga", "role": "viewer", "organisation": "acme", "to": "/person/olga"}
VIEW = {"name": "mine", "q": "status:failed", "to": ""}
LIMIT, RATE = "/o/acme/costs/limits/change", "/o/acme/costs/limits/rate"
ORG = {"account": "org:acme", "window": "month"}
RATE_BEFORE = "org:acme None 900 None"
UNDONE_BY = {
    "person.disabled": "person.enabled",
    "role.granted": "role.revoked",
    "role.revoked": "role.granted",
    "team.archived": "team.restored",
    "team.restored": "team.archived",
    "team.changed": "team.changed",
    "team.defaults_set": "team.defaults_set",
    "team.member_added": "team.member_removed",
    "team.member_removed": "team.member_added",
    "budget.set": "budget.set",
    "budget.removed": "budget.set",
    "rate_limit.set": "rate_limit.set",
    "pool.drained": "pool.resumed",
    "pool.resumed": "pool.drained",
    "policy.unscheduled": "policy.scheduled",
    "policy.edited": "policy.edited",
}
"""Deeds that offer a way back, and the deed that it is. A view that was dropped is no deed."""
Step = tuple[str, dict[str, str]]
"""Where a form goes, and its fields."""

DEFAULTS = {"expires_days": "30", "budget_microusd": "12.5", "budget_window": "month"}
WAYS: dict[str, tuple[tuple[Step, ...], Step, str, tuple[Step, ...]]] = {
    # What was before; the deed; what its page says of it; what somebody else does meanwhile.
    "person.disabled": (
        (),
        ("/person/olga/disable", {}),
        "olga is disabled",
        (("/person/olga/enable", {}), ("/person/olga/disable", {})),
    ),
    "role.granted": (
        (),
        ("/people/grant", ROLE),
        "The role viewer was given to olga",
        (("/people/revoke", ROLE),),
    ),
    "role.revoked": (
        (("/people/grant", ROLE),),
        ("/people/revoke", ROLE),
        "The role viewer was removed from olga",
        (("/people/grant", ROLE),),
    ),
    "team.archived": (
        (),
        (f"{TEAM}/archive", {"revision": "0"}),
        "was archived",
        ((f"{TEAM}/change", {"title": "P", "owner": "", "revision": "1"}),),
    ),
    "team.restored": (
        ((f"{TEAM}/archive", {"revision": "0"}),),
        (f"{TEAM}/restore", {"revision": "1"}),
        "was restored",
        ((f"{TEAM}/change", {"title": "P", "owner": "", "revision": "2"}),),
    ),
    "team.changed": (
        (),
        (f"{TEAM}/change", {"title": "Culture", "owner": "olga", "revision": "0"}),
        "display name or owner changed",
        ((f"{TEAM}/change", {"title": "P", "owner": "", "revision": "1"}),),
    ),
    "team.defaults_set": (
        ((f"{TEAM}/defaults", DEFAULTS | {"revision": "0"}),),
        (f"{TEAM}/defaults", {"expires_days": "7", "revision": "1"}),
        "the defaults of new keys were changed",
        ((f"{TEAM}/change", {"title": "P", "owner": "", "revision": "2"}),),
    ),
    "team.member_added": (
        (),
        (f"{TEAM}/members", {"person": "olga"}),
        "olga was added to",
        ((f"{TEAM}/members/remove", {"person": "olga"}),),
    ),
    "team.member_removed": (
        ((f"{TEAM}/members", {"person": "olga"}),),
        (f"{TEAM}/members/remove", {"person": "olga"}),
        "was removed from",
        ((f"{TEAM}/members", {"person": "olga"}),),
    ),
    "budget.set": (
        ((LIMIT, ORG | {"limit_microusd": "50", "was": "none"}),),
        (LIMIT, ORG | {"limit_microusd": "7.25", "was": "50000000"}),
        "acme: the limit each month was changed",
        ((LIMIT, ORG | {"limit_microusd": "60", "was": "7250000"}),),
    ),
    "budget.removed": (
        ((LIMIT, ORG | {"limit_microusd": "50", "was": "none"}),),
        (LIMIT, ORG | {"deed": "remove", "was": "50000000"}),
        "with nothing used",
        ((LIMIT, ORG | {"limit_microusd": "60", "was": "none"}),),
    ),
    "rate_limit.set": (
        ((RATE, {"account": "org:acme", "tokens_per_minute": "900", "was": "none"}),),
        (RATE, {"account": "org:acme", "requests_per_minute": "60", "was": RATE_BEFORE}),
        "acme: the rate limits were changed",
        ((RATE, {"account": "org:acme", "was": "org:acme 60 None None"}),),
    ),
    "pool.drained": (
        (),
        ("/models/engine/drain", DRAIN),
        "left is drained",
        (("/models/engine/resume", DRAIN), ("/models/engine/drain", DRAIN)),
    ),
    "pool.resumed": (
        (("/models/engine/drain", DRAIN),),
        ("/models/engine/resume", {"member": "left"}),
        "left gets its share again",
        (("/models/engine/drain", DRAIN),),
    ),
}


@pytest.fixture
async def listener(tmp_path: Path, sqlite_url: str) -> AsyncIterator[Listener]:
    async with Listener(tmp_path, sqlite_url, MORE) as running:
        yield running


@pytest.fixture
async def petra(listener: Listener, browser: Browser) -> Browser:
    await listener.issue_key("assistant")
    await seeding.person(listener, "olga", "app_owner", "acme")
    await seeding.person(listener, "petra", "platform_admin")
    await browser.sign_in_as("petra", seeding.PASSWORD)
    await browser.send("POST", "/o/acme/new-team", {"name": "people", "title": "People"})
    return browser


async def done(browser: Browser, *steps: Step) -> None:
    for path, form in steps:
        answer, page = await browser.send("POST", path, form)
        assert answer.status == 303, (path, page)


async def way_back(browser: Browser) -> tuple[str, dict[str, str]] | None:
    """The form that a page offers, as a browser would send it."""
    _, page = await browser.send("GET", "/viewing")
    found = re.search(r'<form class="undo"[^>]*action="([^"]+)">(.*?)</form>', page, re.DOTALL)
    if found is None:
        return None
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', found[2])
    return unescape(found[1]), {name: unescape(value) for name, value in fields}


async def state(listener: Listener) -> tuple[object, ...]:
    """All that the deeds of `WAYS` change."""
    async with listener.database() as database:
        olga = next(
            each
            for each in await PeopleStore(database, listener.clock).listed()
            if each.name == "olga"
        )
        teams = TeamStore(database, listener.clock)
        team = await teams.team("acme", "people")
        assert team is not None
        return (
            sorted(olga.grants),
            olga.is_disabled,
            (team.title, team.owner, team.defaults, team.archived_us),
            await teams.of_person("olga"),
            [each.limit for each in await LeaseTable(database, listener.clock).budgets()],
            await RateLimitTable(database).all(),
            [
                (each.member, each.reason)
                for each in await DrainTable(database, listener.clock).all()
            ],
        )


async def sent(browser: Browser, way: tuple[str, dict[str, str]] | None) -> tuple[int, str]:
    assert way is not None, "nothing is offered"
    answer, page = await browser.send("POST", *way)
    return answer.status, page


def plain(page: str) -> str:
    return unescape(" ".join(re.sub(r"<[^>]+>", " ", page).split()))


@pytest.mark.parametrize("action", WAYS)
async def test_a_deed_is_taken_back_by_its_inverse_which_is_on_record(
    listener: Listener, petra: Browser, action: str
) -> None:
    before, deed, said, _ = WAYS[action]
    await done(petra, *before)
    as_it_was = await state(listener)
    seen = len(await deeds(listener))
    await done(petra, deed)
    _, page = await petra.send("GET", "/viewing")
    assert said in plain(page)
    assert await state(listener) != as_it_was
    assert (await sent(petra, await way_back(petra)))[0] == 303
    taken = [
        record for record in (await deeds(listener))[seen:] if record.action != "session.began"
    ]
    assert [(each.action, each.actor, each.error) for each in taken] == [
        (action, "petra", ""),
        (UNDONE_BY[action], "petra", ""),
    ]
    assert await state(listener) == as_it_was


@pytest.mark.parametrize("action", WAYS)
async def test_what_somebody_changed_meanwhile_is_not_undone_and_the_page_says_so(
    listener: Listener, petra: Browser, action: str
) -> None:
    before, deed, _, meanwhile = WAYS[action]
    await done(petra, *before)
    await done(petra, deed)
    way = await way_back(petra)
    await seeding.person(listener, "paul", "platform_admin")
    async with browsing(listener) as other:
        await other.sign_in_as("paul", seeding.PASSWORD)
        listener.clock.advance(1)
        await done(other, *meanwhile)
    status, page = await sent(petra, way)
    assert status in (400, 409), page
    assert re.search("meanwhile|drained it already", plain(page)), page
    assert await way_back(petra) is None, "a way back that led nowhere is offered no more"


@pytest.mark.parametrize("room", [TRAFFIC, AUDIT])
async def test_a_view_that_was_dropped_comes_back_unless_its_name_is_taken(
    petra: Browser, listener: Listener, room: str
) -> None:
    await seeding.person(listener, "cora", "compliance")
    async with browsing(listener) as cora:
        await cora.sign_in_as("cora", seeding.PASSWORD)
        view = VIEW | {"to": room}
        await done(cora, (f"{room}/views", view), (f"{room}/views/drop", view))
        _, page = await cora.send("GET", room)
        assert "The view mine was deleted." in page
        way = await way_back(cora)
        assert (await sent(cora, way))[0] == 303
        _, page = await cora.send("GET", room)
        assert "q=status%3Afailed" in page
        status, page = await sent(cora, way)
        assert (status, "another view has this name by now" in page) == (400, True)


async def test_a_rule_that_was_moved_goes_back_unless_the_draft_is_another(
    listener: Listener,
) -> None:
    await staff(listener)
    second = '\n[[preferences]]\nname = "strong"\nroute = "strong"\ntargets = ["claude"]\n'
    async with signed_in(listener, WRITER) as wanda:
        await saved(wanda, TEXT + second)
        move = {"section": "preferences", "place": "1", "revision": "1", "action": "up"}
        await done(wanda, (f"{HOME}/edit/rules", move))
        way = await way_back(wanda)
        assert (await sent(wanda, way))[0] == 303
        _, page = await wanda.send("GET", f"{HOME}/edit?as=code")
        assert typed(page).index('"cheap"') < typed(page).index("strong")
        status, page = await sent(wanda, way)
        assert (status, "Nothing was changed" in page) == (409, True)
        remove = {"section": "preferences", "place": "0", "revision": "3", "action": "remove"}
        await done(wanda, (f"{HOME}/edit/rules", remove))
        assert await way_back(wanda) is None


async def test_what_was_scheduled_comes_back_unless_other_things_are_live(
    listener: Listener,
) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        first = await submitted(wanda, STRICT)
        await stepped(anton, first, "approve")
        assert await way_back(anton) is None, "it takes two people"
        await stepped(anton, first, "publish", at="2027-01-15T08:30:00", zone="UTC")
        off = (f"{first}/unschedule", {"reason": "not yet"})
        await done(anton, off)
        way = await way_back(anton)
        assert (await sent(anton, way))[0] == 303
        _, page = await anton.send("GET", first)
        assert "8:30" in plain(page)
        status, page = await sent(anton, way)
        assert (status, "Somebody else changed this meanwhile" in page) == (409, True)

        await done(anton, off)
        way = await way_back(anton)
        await stepped(anton, first, "publish")
        assert await way_back(anton) is None, "what is live is rolled back, never undone"
        status, page = await sent(anton, way)
        assert (status, "Version 1 is live now" in plain(page)) == (409, True)


async def test_the_offer_ends_with_time_with_the_next_deed_and_with_the_sitting(
    listener: Listener, petra: Browser
) -> None:
    await done(petra, ("/person/olga/disable", {}))
    async with browsing(listener) as other:
        await seeding.person(listener, "paul", "platform_admin")
        await other.sign_in_as("paul", seeding.PASSWORD)
        kept = {each.key: each.value for each in petra._session.cookie_jar}[COOKIE]
        other._session.cookie_jar.update_cookies({COOKIE: kept})
        assert await way_back(other) is None, "it is another sitting's"
    assert await way_back(petra) is not None
    listener.clock.advance(121)
    assert await way_back(petra) is None

    await done(petra, ("/people/grant", ROLE))
    assert await way_back(petra) is not None
    answer, _ = await petra.send("POST", f"{TEAM}/members", {"person": "nobody"})
    assert answer.status == 400
    assert await way_back(petra) is not None, "nothing was done since"
    await done(petra, ("/o/acme/new-team", {"name": "other", "title": "Other"}))
    assert await way_back(petra) is None


async def test_who_may_not_do_the_inverse_cannot_undo(listener: Listener, petra: Browser) -> None:
    await done(petra, ("/person/olga/disable", {}))
    path, fields = await way_back(petra) or ("", {})
    await seeding.person(listener, "vic", "viewer")
    async with browsing(listener) as vic:
        await vic.sign_in_as("vic", seeding.PASSWORD)
        answer, _ = await vic.send("POST", path, fields)
        assert answer.status == 403


@pytest.mark.parametrize(
    ("before", "deed"),
    [
        ((("/people/grant", ROLE),), ("/people/grant", ROLE)),
        ((), ("/people/revoke", ROLE)),
        ((("/person/olga/disable", {}),), ("/person/olga/disable", {})),
        (
            ((f"{TEAM}/members", {"person": "olga"}),),
            (f"{TEAM}/members", {"person": "olga"}),
        ),
        ((), (f"{TEAM}/members/remove", {"person": "olga"})),
    ],
)
async def test_what_was_so_before_is_not_offered_to_be_taken_back(
    petra: Browser, before: tuple[Step, ...], deed: Step
) -> None:
    """Else whoever sends a form twice, or comes second, would undo somebody else's deed."""
    await done(petra, *before, deed)

    assert await way_back(petra) is None


async def test_a_revoked_key_offers_no_way_back(listener: Listener, petra: Browser) -> None:
    key = await seeding.issue(listener, "batch")
    await done(petra, ("/person/olga/disable", {}))
    await done(petra, (f"/o/acme/keys/{key}/revoke", {}))
    assert await way_back(petra) is None


async def test_every_inverse_is_a_deed_of_its_own_and_nothing_final_has_one(
    listener: Listener,
) -> None:
    recorded = {
        handler.opt.get("records")
        for route in listener.application.routes
        for handler in getattr(route, "route_handlers", ())
    }
    assert set(UNDONE_BY.values()) <= recorded
    final = ("key.", "secret.", "content.", "erasure.", "reveal.", "hold.", "pack.", "review.")
    assert [action for action in UNDONE_BY if action.startswith(final)] == []
    assert [each for each in UNDONE_BY if each.startswith("policy.")] == [
        *("policy.unscheduled", "policy.edited")
    ]


async def test_undo_works_by_keyboard_and_without_scripts(
    listener: Listener, petra: Browser
) -> None:
    await done(petra, (f"{TEAM}/members", {"person": "olga"}))
    async with window(listener) as seen:
        await seen.sign_in("petra", seeding.PASSWORD)
        await seen.open(TEAM)
        await seen.page.get_by_role("button", name="Remove olga from the team").press("Enter")
        await seen.page.get_by_role("status").get_by_text("was removed from").wait_for()
        assert await seen.violations() == []
        await seen.page.get_by_role("button", name="Undo").press("Enter")
        await seen.page.get_by_role("button", name="Remove olga from the team").wait_for()
        assert seen.problems == []
