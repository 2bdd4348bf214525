"""The tree of limits: small ones are shown whole, large ones open by branches and are searched."""

import re
from html import unescape
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from sqlalchemy import insert

from gateway.money.rates import RateLimit
from gateway.store.money.rate_limits import RateLimitTable
from gateway.store.schema.tables import projects, virtual_keys, workspaces
from tests.admin.listener import ON_BOTH, Browser, Listener
from tests.admin.seeding import PASSWORD, issue, limit, person


pytestmark = pytest.mark.anyio
ROOM, API = "/o/acme/costs/limits", "/api/organisations/acme/limits"


@pytest.fixture
async def admin(listener: Listener, browser: Browser) -> Browser:
    await issue(listener, "first one")
    await person(listener, "root", "platform_admin")
    await browser.sign_in_as("root", PASSWORD)
    return browser


async def many(listener: Listener, keys: int, places: int = 3) -> None:
    """So many keys in projects `p0` and on of the workspace `lab`; the tenth of each is over."""
    now_us = listener.clock.utc_us()
    place: dict[str, Any] = {"organisation": "acme", "title": "", "created_us": 0}
    made: list[dict[str, Any]] = [
        {
            "id": f"m{number:011}",
            "organisation": "acme",
            "workspace": "lab",
            "project": f"p{number % places}",
            "name": f"service {number}",
            "digest": number.to_bytes(32, "big"),
            "pepper_version": 1,
            "labels": [],
            "created_us": now_us - number,
            "created_by": "olga",
            "revoked_us": now_us if number % 10 == 9 else None,
        }
        for number in range(keys)
    ]
    async with listener.database() as database, database.writing() as connection:
        await connection.execute(insert(workspaces), place | {"name": "lab"})
        rows = [place | {"workspace": "lab", "name": f"p{number}"} for number in range(places)]
        await connection.execute(insert(projects), rows)
        await connection.execute(insert(virtual_keys), made)


async def see(browser: Browser, path: str) -> str:
    answer, page = await browser.send("GET", path)
    assert answer.status == 200, (path, page)
    return page


async def tree(browser: Browser, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(await see(browser, f"{API}{query}"))
    return found


def accounts(found: dict[str, Any]) -> list[str]:
    return [each["account"] for each in found["branches"]]


async def test_a_small_tree_is_shown_whole_and_a_large_one_by_what_is_opened(
    listener: Listener, admin: Browser
) -> None:
    small = await tree(admin)
    assert [each["level"] for each in small["branches"]] == [
        *("organisation", "workspace", "project", "key")
    ]
    await many(listener, 400)
    top = await tree(admin)
    assert [each["title"] for each in top["branches"]] == ["acme", "lab", "research"]
    assert (top["opened"], top["count"], top["keys"]) == ("org:acme", 2, 361)
    lab = next(each for each in top["branches"] if each["title"] == "lab")
    assert (lab["keys"], lab["is_open"]) == (360, False)

    below = await tree(admin, "?open=ws:acme/lab")
    assert [each["title"] for each in below["branches"]] == [
        *("acme", "lab", "p0", "p1", "p2", "research")
    ]
    first = await tree(admin, "?open=proj:acme/lab/p1")
    assert (first["count"], first["following"]) == (120, 100)
    second = await tree(admin, "?open=proj:acme/lab/p1&from=100")
    assert second["following"] == 0
    by_key = await tree(admin, f"?open=proj:acme/lab/p1&from=1&after={quote(first['onward'])}")
    assert by_key == second, "where it stands its key says, not how many come before"
    keys = [each for each in accounts(first) + accounts(second) if each.startswith("key:")]
    assert len(keys) == len(set(keys)) == 120
    assert accounts(first).index("proj:acme/lab/p2") > accounts(first).index(keys[99])
    assert accounts(await tree(admin, f"?open={keys[0]}")) == accounts(first)
    for stranger in ("ws:umbrella/lab", "proj:acme/lab", "key:nowhere", "x", "user:acme/*"):
        assert (await tree(admin, f"?open={stranger}"))["opened"] == "org:acme"


async def test_branches_open_by_links_and_a_page_holds_no_more_than_its_share(
    listener: Listener, admin: Browser
) -> None:
    await many(listener, 2_000)
    page = await see(admin, ROOM)
    for name in ("lab", "p2"):
        page = await see(
            admin, unescape(re.findall(rf'<a href="([^"]+)">{name}</a>', page)[0]).partition("#")[0]
        )
    assert page.count("<code>") < 5
    assert len(re.findall("service [0-9]+</a>", page)) == 100
    assert "1–100 of 600 in proj:acme/lab/p2" in page
    onward = unescape(re.findall(r'href="([^"]+)" rel="next"', page)[0])
    assert "101–200 of 600" in await see(admin, onward)
    assert len(page) < 150_000


@ON_BOTH
async def test_what_is_sought_is_found_wherever_it_hangs_and_limits_are_listed(
    listener: Listener, admin: Browser
) -> None:
    await many(listener, 300)
    await limit(listener, "key:m00000000019", 5_000_000, "month")
    await limit(listener, "key:m00000000020", 5_000_000, "month")
    async with listener.database() as database:
        await RateLimitTable(database).set(RateLimit("user:acme/*", requests_per_minute=3))
    found = await tree(admin, "?q=SERVICE+29")
    names = {each["title"] for each in found["branches"]}
    assert names == {f"service {number}" for number in range(290, 299)}, "299 and 29 are revoked"
    assert accounts(await tree(admin, "?q=p1"))[0] == "proj:acme/lab/p1"
    only = await tree(admin, "?only=limited")
    assert accounts(only) == ["user:acme/*", "key:m00000000019", "key:m00000000020"]
    assert [each["state"] for each in only["branches"]][1:] == ["revoked", "live"]
    assert only["limited"] == 2
    page = await see(admin, f"{ROOM}?only=limited")
    assert "each end user" in page
    assert "lab / p1" in page
    answer, page = await admin.send("GET", f"{ROOM}?q=colour:red")
    assert answer.status == 400
    assert "There is no filter" in page
    assert "research" in page


async def test_a_change_leads_back_to_where_its_account_hangs(
    listener: Listener, admin: Browser
) -> None:
    await many(listener, 300)
    form = {"account": "key:m00000000004", "window": "month", "limit_microusd": "5", "was": "none"}
    answer, _ = await admin.send("POST", f"{ROOM}/change", form)
    to = answer.headers["location"]
    assert answer.status == 303
    assert to.endswith("#key:m00000000004")
    assert 'id="key:m00000000004"' in await see(admin, to.partition("#")[0])
