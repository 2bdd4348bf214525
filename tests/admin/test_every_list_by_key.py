"""Every list that grows is read on behind the key of a row, in the order in which it is counted."""

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import delete

from gateway.audit.memory import MemoryAuditLog
from gateway.store.custody.custody_lists import CustodyLists
from gateway.store.custody.incidents import IncidentStore, incidents
from gateway.store.custody.orders import Custody
from gateway.store.custody.reviews import ReviewStore
from gateway.store.engine import Database
from gateway.store.erasure.cases import ErasureCases
from gateway.store.evidence.packing import EvidencePacks
from gateway.store.evidence.retirements import Retirements, Shown
from gateway.store.identity.key_scopes import KeyScopes
from gateway.store.identity.team_lists import TeamLists
from gateway.store.money.budget_lists import BudgetLists
from gateway.store.money.price_files import PriceFiles
from gateway.store.money.price_proposals import PriceProposals
from gateway.store.money.raises import BudgetRaises
from gateway.store.policies.schedules import ScheduleTable
from gateway.store.policies.version_lists import VersionLists
from gateway.store.schema.audit import worker_retirements
from gateway.store.schema.custody import evidence_packs
from gateway.store.schema.policies import policy_schedules, policy_versions
from gateway.store.schema.prices import price_files, price_orders, price_proposals
from gateway.store.schema.tables import budget_raises, organisations, workspaces
from tests.admin.listener import ON_BOTH, Browser, Listener
from tests.admin.policies.people import APPROVER, add_person, signed_in, staff
from tests.admin.test_lists_in_parts import empty, fill_money
from tests.admin.test_long_lists import (
    MANY,
    fill,
    fill_custody,
    fill_keys,
    fill_policies,
    onward,
    page,
    titles,
)


pytestmark = [pytest.mark.anyio, pytest.mark.either]
SIZE = 40
WRONG_KEYS = ("~", "x~y", "1~2~3~4~5", "9" * 30 + "~a", "-1~a", "٥~a", "%", "%zz~%7E")
MANY_OF_TWO_STATES = MANY + 30
API = "/api/organisations/acme/compliance"


async def fill_compliance(database: Database, now_us: int) -> None:
    """Incidents, open and closed, and packs; some of them of the same microsecond."""
    incident = empty(incidents, id="i{}", organisation="acme", title="T{}.", kind="other")
    incident |= {"noticed_us": lambda n: now_us - n // 10}
    await fill(database, incidents, incident, 30)
    closed = {"id": "j{}", "closed_us": now_us, "closed_by": "ulf"}
    await fill(database, incidents, incident | closed)
    await fill(database, organisations, {"name": "umbrella", "title": "U", "created_us": now_us}, 1)
    await fill(database, incidents, incident | {"id": "x{}", "organisation": "umbrella"}, 3)
    pack = empty(evidence_packs, id="p{}", organisation="acme", log="acme", state="failed")
    pack |= {"recipient": "R{}.", "made_us": lambda n: now_us - n // 10}
    await fill(database, evidence_packs, pack)
    await fill(database, evidence_packs, pack | {"id": "x{}", "organisation": "umbrella"}, 3)


async def fill_installation(database: Database, now_us: int) -> None:
    """Price files, what was put in force, what is proposed, and workers to be retired."""
    numbered = {"number": lambda n: n + 1}
    file = empty(price_files, name="f{}", digest="{}", added_by="ulf", added_us=now_us)
    await fill(database, price_files, file | numbered)
    order = empty(price_orders, number=1, actor="ulf", reason="R{}.", utc_us=now_us)
    await fill(database, price_orders, order | {"place": lambda n: n + 1})
    waits = empty(price_proposals, state="waiting", number=lambda n: n + 1_000)
    await fill(database, price_proposals, waits | {"proposed_by": "ulf", "reason": "r{}"})
    shown = msgspec.json.encode(Shown((0, 0), (0, 0), 0)).decode()
    row = empty(worker_retirements, id="w{}", worker="worker{}", asked_by="ulf", state="waiting")
    row |= {"shown": shown, "asked_us": lambda n: now_us - n // 10}
    await fill(database, worker_retirements, row)


async def fill_raises(database: Database, now_us: int) -> None:
    """Larger limits that somebody asks for."""
    asked = empty(budget_raises, id="r{}", organisation="acme", account="ws:acme/t{}")
    asked |= {"window_kind": "month", "state": "waiting", "wanted_microusd": 9, "asked_by": "ulf"}
    await fill(database, budget_raises, asked | {"asked_us": lambda n: now_us + n // 10})
    await fill(database, budget_raises, asked | {"id": "x{}", "organisation": "umbrella"}, 3)


async def fill_all(listener: Listener, database: Database) -> None:
    now_us = listener.clock.utc_us()
    await fill_custody(database, now_us)
    await fill_compliance(database, now_us)
    await fill_policies(database, listener, "org:acme", MANY)
    await fill_keys(database, now_us, MANY)
    await fill_money(database, now_us)
    await fill_installation(database, now_us)
    waits = empty(policy_schedules, id="s{}", level="org:acme", state="cancelled", at_us=7)
    await fill(database, policy_schedules, waits | {"action": "publish"})
    team = {"organisation": "acme", "name": "team{}", "title": "T", "owner": "ulf"}
    archived = {"archived_us": lambda n: now_us if n % 2 else None}
    await fill(database, workspaces, team | {"created_us": now_us} | archived)


def ways_of(listener: Listener, database: Database) -> dict[str, Any]:
    """Every list, as it is asked for a part: how many come before, how many, and a key."""
    at = (database, listener.clock)
    custody, versions = CustodyLists(*at), VersionLists(database)
    orders = Custody(database, MemoryAuditLog(), listener.clock)
    cases = ErasureCases(database, orders, listener.clock)
    prices, proposals, scopes = PriceFiles(*at), PriceProposals(*at), KeyScopes(*at)
    packs = EvidencePacks(database, Path(), listener.clock)
    return {
        "reveals": partial(custody.reveals, "acme"),
        "waiting reveals": partial(custody.waiting_reveals, "acme"),
        "holds": partial(custody.holds, "acme"),
        "releases": partial(custody.releases, "acme"),
        "cases": partial(cases.page, "acme"),
        "asked cases": partial(cases.asked, "acme"),
        "reviews": partial(ReviewStore(*at).page, "acme"),
        "incidents": partial(IncidentStore(*at).page, "acme"),
        "packs": partial(packs.page, "acme"),
        "versions": partial(versions.page, "org:acme"),
        "waiting versions": partial(versions.waiting, "acme"),
        "history": partial(versions.history, "org:acme"),
        "schedules": partial(ScheduleTable(*at).page, "org:acme"),
        "teams": partial(TeamLists(*at).page, "acme", ""),
        "widenings": partial(scopes.page, "acme"),
        "waiting widenings": partial(scopes.waiting, "acme"),
        "budgets": partial(BudgetLists(*at).page, "acme"),
        "larger limits": partial(BudgetRaises(*at).page, "acme"),
        "waiting larger limits": partial(BudgetRaises(*at).waiting, "acme"),
        "price files": prices.files_page,
        "price orders": prices.orders_page,
        "price proposals": proposals.page,
        "waiting prices": proposals.waiting,
        "retirements": Retirements(*at).page,
        "waiting retirements": Retirements(*at).waiting,
    }


@ON_BOTH
async def test_what_stands_behind_a_key_is_what_is_counted_off(listener: Listener) -> None:
    await staff(listener)
    async with listener.database() as database:
        await fill_all(listener, database)
        await fill_raises(database, listener.clock.utc_us())
        for name, way in ways_of(listener, database).items():
            first, after, seen = 0, "", []
            while True:
                counted = await way(first, SIZE, "")
                # Wherever it is said to stand, its key says where it is.
                by_key = await way(1, SIZE, after) if after else counted
                assert by_key.rows == counted.rows, (name, first)
                seen += by_key.rows
                if not counted.following:
                    break
                first, after = counted.following, counted.onward
            assert len(seen) == counted.count >= MANY, name
            assert len({repr(row) for row in seen}) == len(seen), name
            for wrong in WRONG_KEYS:
                assert (await way(SIZE, SIZE, wrong)).count == len(seen), (name, wrong)


@ON_BOTH
async def test_the_end_is_reached_though_rows_before_it_go(listener: Listener) -> None:
    async with listener.database() as database:
        await fill_installation(database, listener.clock.utc_us())
        prices = PriceFiles(database, listener.clock)
        first, after, seen = 0, "", [0]
        while first or not after:
            part = await prices.orders_page(first, SIZE, after)
            seen += [row.place for row in part.rows]
            first, after = part.following, part.onward
            gone = delete(price_orders).where(price_orders.c.place > MANY - SIZE // 2)
            async with database.writing() as connection:
                await connection.execute(gone)
        assert seen[1:] == [*range(MANY, 0, -1)]


async def rows_of(browser: Browser, path: str, name: str = "") -> list[Any]:
    """All rows of a list that a program reads in parts, each of which says how many there are."""
    found: list[Any] = []
    at, total = f"{path}?from=0", 0
    while at:
        answer, text = await browser.send("GET", at)
        assert answer.status == 200, (at, text)
        said = msgspec.json.decode(text)
        found += said[name] if name else said
        total = int(answer.headers["x-total-count"])
        at = answer.headers.get("link", "").partition(">")[0].removeprefix("<")
        assert not at or "&after=" in at, path
    assert len(found) == total, path
    return found


@ON_BOTH
async def test_what_was_only_given_whole_is_given_in_parts_too(listener: Listener) -> None:
    await staff(listener)
    await add_person(listener, "mira", "platform_admin", where="*")
    async with listener.database() as database:
        await fill_compliance(database, listener.clock.utc_us())
        await fill_installation(database, listener.clock.utc_us())
        await fill_keys(database, listener.clock.utc_us(), MANY)
    async with signed_in(listener, "mira") as mira:
        for path, name, count, whole_count in (
            (f"{API}/incidents", "", MANY_OF_TWO_STATES, MANY_OF_TWO_STATES),
            (f"{API}/packs", "", MANY, 50),
            ("/api/system/retirements", "", MANY, 100),
            ("/api/prices/files", "files", MANY, MANY),
            ("/api/prices/orders", "", MANY, MANY),
            ("/api/organisations/acme/key_proposals/waiting", "", MANY, 100),
        ):
            found = await rows_of(mira, path, name)
            _, text = await mira.send("GET", path)
            whole = msgspec.json.decode(text)
            whole = whole[name] if name else whole
            assert (len(found), len(whole)) == (count, whole_count), path
            assert found[: len(whole)] == whole, path
        _, text = await mira.send("GET", "/api/prices/files?from=0")
        assert len(msgspec.json.decode(text)["orders"]) == 100


async def test_pages_of_incidents_packs_and_prices_lead_on_to_the_last(listener: Listener) -> None:
    await staff(listener)
    await add_person(listener, "mira", "platform_admin", where="*")
    async with listener.database() as database:
        await fill_compliance(database, listener.clock.utc_us())
        await fill_installation(database, listener.clock.utc_us())
    async with signed_in(listener, "mira") as mira:
        for path, last in (
            ("/o/acme/compliance/incidents", ">T129.<"),
            ("/o/acme/compliance/packs", ">R129.<"),
            ("/models/prices", ">R000.<"),
        ):
            text, pages = await page(mira, path), 1
            assert last not in text, path
            while way := onward(text):
                assert "&after=" in way, path
                text, pages = await page(mira, way), pages + 1
                # How it stands is said on every page, of all there are.
                is_said = "30 incidents are open" in text
                assert is_said == path.endswith("incidents"), way
            assert last in text, path
            assert pages == (7 if path == "/models/prices" else 2), path
        assert "and 110 older, down to" in await page(mira, "/models/prices")


async def test_the_inbox_is_led_on_by_kind_and_key(listener: Listener) -> None:
    await staff(listener)
    async with listener.database() as database:
        await fill_policies(database, listener, "org:acme", 30)
        await fill_keys(database, listener.clock.utc_us(), 30)
        async with signed_in(listener, APPROVER) as anton:
            way, seen = "/o/acme/approvals", []
            while way:
                text = await page(anton, way)
                seen += titles(text)
                if len(seen) == 20:
                    # Decided by others meanwhile: what comes moves to the front, and is not missed.
                    gone = delete(policy_versions).where(policy_versions.c.number <= 20)
                    async with database.writing() as connection:
                        await connection.execute(gone)
                way = onward(text)
                assert not way or "&after=" in way
            assert len(seen) == len(set(seen)) == 60
