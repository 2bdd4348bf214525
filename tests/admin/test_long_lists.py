"""Lists of more rows than one page shows: counted, paged, and never read whole."""

import re
from typing import Any

import msgspec
import pytest
from sqlalchemy import Table, insert, select

from gateway.clock import DAY_US
from gateway.oversight.key_scope import scope_of
from gateway.store.custody.reviews import reviews
from gateway.store.engine import Database
from gateway.store.policies.documents import PolicyStore
from gateway.store.schema.custody import audit_holds, audit_reveals, erasure_cases
from gateway.store.schema.policies import policy_events, policy_versions
from gateway.store.schema.tables import key_proposals, people, virtual_keys, workspaces
from tests.admin.listener import ON_BOTH, Browser, Listener
from tests.admin.policies.people import APPROVER, WRITER, add_person, signed_in, staff
from tests.policies.worlds import document


pytestmark = pytest.mark.anyio
MANY = 130
COMPLIANCE, INBOX = "/o/acme/compliance", "/o/acme/approvals"


async def fill(database: Database, table: Table, row: dict[str, Any], many: int = MANY) -> None:
    """Rows like this one; `{}` in a text is its number, and a number grows with it."""

    def of(value: Any, number: int) -> Any:
        if isinstance(value, str):
            return value.replace("{}", f"{number:03d}")
        return value(number) if callable(value) else value

    rows = [{name: of(value, number) for name, value in row.items()} for number in range(many)]
    async with database.writing() as connection:
        await connection.execute(insert(table), rows)


async def fill_custody(database: Database, now_us: int) -> None:
    """Reveals, holds and erasures that wait for a second person, and reviews that ended."""
    said: dict[str, Any] = {"organisation": "acme", "reason": "a complaint"}
    unanswered: dict[str, Any] = {"minutes": 15, "approved_by": "", "approved_us": 0, "used": 0}
    asked: dict[str, Any] = {
        "id": "r{}",
        "request_id": "req_{}",
        "ticket": "C-{}",
        "asked_by": "ulf",
    } | unanswered
    await fill(database, audit_reveals, said | asked | {"asked_us": lambda n: now_us - n})
    held: dict[str, Any] = {
        "id": "h{}",
        "subject": "s{}",
        "set_by": "ulf",
        "set_us": lambda n: now_us + n,
    }
    await fill(database, audit_holds, said | held | {"release_by": "ulf", "released_by": ""})
    case: dict[str, Any] = {
        "id": "e{}",
        "organisation": "acme",
        "subject": "s{}",
        "law": "gdpr",
        "ticket": "E-{}",
    }
    case |= {"opened_by": "ulf", "opened_us": now_us, "due_us": lambda n: now_us + DAY_US + n}
    case |= {"state": "open", "closed_by": "", "closed_us": 0, "keys": 0, "certificate": ""}
    await fill(database, erasure_cases, case | {"asked_by": "ulf", "asked_us": now_us})
    review: dict[str, Any] = {
        "id": "v{}",
        "organisation": "acme",
        "name": "Review {}.",
        "room": "audit",
    }
    review |= {"filter": "", "every_days": 7, "responsible": "carla", "made_by": "carla"}
    review |= {"made_us": now_us, "looked_until_us": lambda n: now_us - 9 * DAY_US + n}
    await fill(database, reviews, review | {"ended_us": lambda n: now_us if n >= 3 else None})


async def fill_policies(database: Database, listener: Listener, level: str, many: int) -> None:
    """Versions of one level that nobody has decided about yet."""
    now_us, policy = listener.clock.utc_us(), document({"name": "strict", "no_cache": True})
    await PolicyStore(database, listener.clock).keep(policy)
    at: dict[str, Any] = {"level": level, "number": lambda n: n + 1}
    version: dict[str, Any] = at | {
        "digest": policy.digest,
        "state": "draft",
        "author": WRITER,
        "approver": "",
    }
    version |= {"note": "T-{}.", "percent": 0.0, "changed_us": now_us, "guard": ""}
    await fill(database, policy_versions, version | {"created_us": lambda n: now_us + n}, many)
    event: dict[str, Any] = at | {
        "place": lambda n: n + 1,
        "actor": WRITER,
        "action": "draft",
        "reason": "T-{}.",
    }
    await fill(database, policy_events, event | {"utc_us": lambda n: now_us + n}, many)


async def fill_keys(database: Database, now_us: int, many: int) -> None:
    """Keys that somebody wants to do more."""
    async with database.reading() as connection:
        made = dict((await connection.execute(select(virtual_keys))).mappings().one())
    key = made | {"id": "k{}", "name": "key {}"}
    for name, value in made.items():
        if isinstance(value, bytes):
            key[name] = lambda n: n.to_bytes(32, "big")
    await fill(database, virtual_keys, key, many)
    seen, wanted = (scope_of(models, None, [], "warn") for models in (["house"], None))
    scopes = {"seen": msgspec.json.encode(seen).decode()}
    scopes |= {"wanted": msgspec.json.encode(wanted).decode()}
    proposal: dict[str, Any] = {
        "id": "p{}",
        "organisation": "acme",
        "key_id": "k{}",
        "proposed_by": WRITER,
    }
    proposal |= {"reason": "more", "proposed_us": lambda n: now_us + n, "state": "waiting"}
    await fill(database, key_proposals, proposal | scopes | DECIDED_BY_NOBODY, many)


DECIDED_BY_NOBODY = {"decided_by": "", "comment": "", "decided_us": 0}


async def page(browser: Browser, path: str) -> str:
    answer, text = await browser.send("GET", path)
    assert answer.status == 200, path
    return text


def onward(text: str) -> str:
    """Where the pager leads; empty on the last page."""
    found = re.search(r'href="([^"]*)" rel="next"', text)
    return found[1].replace("&amp;", "&") if found else ""


@ON_BOTH
async def test_a_list_of_more_than_a_page_shows_a_hundred_and_leads_on(listener: Listener) -> None:
    await staff(listener)
    await add_person(listener, "carla", "compliance")
    await add_person(listener, "mira", "platform_admin", where="*")
    now_us = listener.clock.utc_us()
    async with listener.database() as database:
        await fill_custody(database, now_us)
        await fill_policies(database, listener, "org:acme", MANY)
        team = {"organisation": "acme", "name": "team{}", "title": "Team {}.", "owner": "ulf"}
        await fill(database, workspaces, team | {"created_us": now_us})
        await fill(database, people, {"name": "person{}", "title": "P{}.", "created_us": now_us})
    lists = {
        f"{COMPLIANCE}/reviews": ("Review 000.", "Review 129.", MANY),
        f"{COMPLIANCE}/reveals": ("C-000<", "C-129<", MANY),
        f"{COMPLIANCE}/holds": ("h000<", "h129<", MANY),
        f"{COMPLIANCE}/erasures": ("E-000<", "E-129<", MANY),
        "/o/acme/teams?state=keyless": ("Team 000.", "Team 129.", MANY),
        "/o/acme/policies/organisation/history": (
            'name="a" value="130"',
            'name="a" value="1"',
            MANY,
        ),
        "/people?q=pERSon": ("person000<", "person129<", MANY),
    }
    async with signed_in(listener, "mira") as mira:
        for path in ("reviews", "reveals", "holds", "erasures"):
            await read_in_parts(mira, f"/api/organisations/acme/compliance/{path}")
        versions = "/api/organisations/acme/policies/organisation/versions"
        await read_in_parts(mira, versions)
        for path, (first, last, count) in lists.items():
            text = await page(mira, path)
            assert f"1–100 of {count}" in text, path
            assert (first in text, last in text) == (True, False), path
            text = await page(mira, onward(text))
            assert f"101–{count} of {count}" in text, path
            assert (last in text, onward(text)) == (True, ""), path
            beyond = f"{path}{'&' if '?' in path else '?'}from=900"
            assert f"101–{count} of {count}" in await page(mira, beyond), "as after a deed"


async def read_in_parts(browser: Browser, path: str) -> None:
    """A list of the JSON API is whole, as ever, and in parts of a hundred to whoever names one."""
    _, text = await browser.send("GET", path)
    whole: list[Any] = msgspec.json.decode(text)
    found: list[Any] = []
    answer, text = await browser.send("GET", f"{path}?from=0")
    said = answer.headers["link"]
    assert said.startswith(f"<{path}?from=100&after=")
    assert said.endswith('>; rel="next"')
    while text:
        found += msgspec.json.decode(text)
        assert answer.headers["x-total-count"] == str(MANY), path
        onward = answer.headers.get("link", "").partition(">")[0].removeprefix("<")
        answer, text = await browser.send("GET", onward) if onward else (answer, "")
    assert (len(whole), found == whole) == (MANY, True), path


@ON_BOTH
async def test_the_inbox_counts_all_that_waits_and_shows_a_page_of_it(listener: Listener) -> None:
    await staff(listener)
    await add_person(listener, "carla", "compliance", "approver")
    now_us, many = listener.clock.utc_us(), 30
    async with listener.database() as database:
        await fill_policies(database, listener, "org:acme", many)
        await fill_policies(database, listener, "ws:acme_/research", many)
        await fill_policies(database, listener, "org:umbrella", many)
        await fill_keys(database, now_us, many)
        await fill_custody(database, now_us)
    async with signed_in(listener, APPROVER) as anton:
        text = await page(anton, INBOX)
        assert "320 to approve" in text
        assert [word in text for word in ("all 320", "policy 30", "key 30")] == [True] * 3
        assert titles(text) == versions(1, 20)
        assert onward(text).startswith(f"{INBOX}?from=20&after=policies%3A")
        text = await page(anton, f"{INBOX}?from=20")
        assert titles(text) == versions(21, 30) + keys(0, 9)
        text = await page(anton, f"{INBOX}?kind=keys&from=20")
        assert (titles(text), "21–30 of 30" in text) == (keys(20, 29), True)
        (where,) = set(re.findall(r'action="(/o/acme/approvals/keys[^"]*)"', text))
        form = {"id": "p021", "action": "reject", "reason": "not now"}
        answer, _ = await anton.send("POST", where.replace("&amp;", "&"), form)
        back = f"{INBOX}?kind=keys&from=20&done=1"
        assert (answer.status, answer.headers["location"]) == (303, back)
        assert "319 to approve" in await page(anton, back)
        assert "1–20 of 319" in await page(anton, f"{INBOX}?kind=prices"), "not theirs to see"
    async with signed_in(listener, WRITER) as wanda:
        assert "to approve</a>" not in await page(wanda, INBOX), "all of it is hers"
    async with signed_in(listener, "carla") as carla:
        text = await page(carla, INBOX)
        assert f"{59 + 3 * MANY} to approve" in text
        text = await page(carla, COMPLIANCE)
        assert "3 reviews are overdue" in text
        assert text.count(f"10 of {MANY} ") == 3, "the oldest of each kind, and where all are"


async def test_a_level_with_many_versions_shows_the_newest_and_compares_any_two(
    listener: Listener,
) -> None:
    await staff(listener)
    async with listener.database() as database:
        await fill_policies(database, listener, "org:acme", MANY)
    async with signed_in(listener, WRITER) as wanda:
        text = await page(wanda, "/o/acme/policies")
        assert (text.count(" in review"), "120 more" in text) == (10, True)
        text = await page(wanda, "/o/acme/policies/organisation")
        assert "The newest 10 of 130 that are not live yet" in text
        text = await page(wanda, "/o/acme/policies/organisation/history?a=2&b=129&from=100")
        assert "From version 2 to version 129" in text
        assert "Nothing of this kind is waiting" in await page(wanda, f"{INBOX}?kind=keys")
        simulator = "/o/acme/policies/simulator?level=organisation"
        text = await page(wanda, simulator)
        assert ('value="81"' in text, 'value="80"' in text) == (True, False)
        assert 'value="3" selected' in await page(wanda, f"{simulator}&b=3")


def titles(text: str) -> list[str]:
    return re.findall(r"<strong>([^<]*)</strong> <span", text)


def versions(first: int, last: int) -> list[str]:
    return [f"Organisation acme, version {number}" for number in range(first, last + 1)]


def keys(first: int, last: int) -> list[str]:
    return [f"Wider permissions for the key key {number:03d}" for number in range(first, last + 1)]
