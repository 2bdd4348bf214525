"""Every list of the JSON API that grows is read in parts, and of nobody else's rows."""

from typing import Any

import msgspec
import pytest
from sqlalchemy import Table

from gateway.store.batching.files import kept_files
from gateway.store.engine import Database
from gateway.store.schema.batches import batches
from gateway.store.schema.policies import policy_schedules
from gateway.store.schema.prices import price_proposals
from gateway.store.schema.tables import budgets, people, workspaces
from tests.admin.listener import ON_BOTH, Browser, Listener
from tests.admin.policies.people import add_person, signed_in, staff
from tests.admin.test_long_lists import (
    MANY,
    fill,
    fill_custody,
    fill_keys,
    fill_policies,
    onward,
    page,
)


pytestmark = pytest.mark.anyio
API = "/api/organisations/acme"
LEVEL = f"{API}/policies/organisation"


def empty(table: Table, **values: Any) -> dict[str, Any]:
    """A row of a table with nothing in it but these."""
    blank = {int: 0, str: "", bytes: b"", float: 0.0, bool: False}
    return {each.name: blank[each.type.python_type] for each in table.columns} | values


async def fill_batches(database: Database, now_us: int) -> None:
    place = {"organisation": "acme", "workspace": "research", "project": "chat", "key_id": "k"}
    times = {"created_us": lambda n: now_us - n, "keep_until_us": now_us + 1}
    row = empty(batches, id="b{}", kind="openai", state="completed", **place, **times)
    await fill(database, batches, row)
    # The oldest of all, which nobody would find among the newest.
    open_one = row | {"id": "open{}", "state": "in_progress", "created_us": 1}
    await fill(database, batches, open_one, 1)
    theirs = {"id": "x{}", "organisation": "umbrella"}
    await fill(database, batches, row | theirs, 3)
    file = empty(kept_files, id="f{}", purpose="batch", is_whole=True, **place)
    file |= {"created_us": lambda n: now_us - n, "expires_us": now_us + 1}
    await fill(database, kept_files, file)
    await fill(database, kept_files, file | theirs, 3)


async def fill_money(database: Database, now_us: int) -> None:
    begun = {"window_kind": "month", "time_zone": "UTC", "window_start_us": now_us}
    row = empty(budgets, limit_microusd=5, **begun)
    for account in (*("ws:acme/t{}", "user:acme/*"), *("key:k{}", "org:acme")):
        many = MANY if "{}" in account else 1
        await fill(database, budgets, row | {"account": account}, many)
    # Of end users, of others, and of one whose name begins like ours.
    for account in ("user:acme/u{}", "ws:acme2/t{}", "key:x{}", "proj:umbrella/t/p{}"):
        await fill(database, budgets, row | {"account": account}, 3)
    proposal = empty(price_proposals, state="declined", number=lambda n: n + 1)
    await fill(database, price_proposals, proposal | {"proposed_by": "ulf", "reason": "r{}"})


async def parts_of(browser: Browser, path: str) -> tuple[list[Any], list[int], int]:
    """All rows, how many each part has, and how many there are said to be."""
    found: list[Any] = []
    sizes: list[int] = []
    at, count = f"{path}?from=0", 0
    while at:
        answer, text = await browser.send("GET", at)
        assert answer.status == 200, at
        said = msgspec.json.decode(text)
        rows = said["events"] if isinstance(said, dict) else said
        found, sizes = [*found, *rows], [*sizes, len(rows)]
        count = int(answer.headers["x-total-count"])
        at = answer.headers.get("link", "").partition(">")[0].removeprefix("<")
    return found, sizes, count


@ON_BOTH
async def test_a_list_is_whole_without_from_and_in_parts_of_a_hundred_with_it(
    listener: Listener,
) -> None:
    await staff(listener)
    await add_person(listener, "mira", "platform_admin", where="*")
    now_us = listener.clock.utc_us()
    async with listener.database() as database:
        await fill_batches(database, now_us)
        await fill_policies(database, listener, "org:acme", MANY)
        await fill_keys(database, now_us, MANY)
        await fill_money(database, now_us)
        team = {"organisation": "acme", "name": "team{}", "title": "T", "owner": "ulf"}
        await fill(database, workspaces, team | {"created_us": now_us})
        await fill(database, people, {"name": "person{}", "title": "P", "created_us": now_us})
        waits = empty(policy_schedules, id="s{}", level="org:acme", state="cancelled", at_us=7)
        await fill(database, policy_schedules, waits | {"action": "publish"})
        await fill(database, policy_schedules, waits | {"id": "x{}", "level": "org:umbrella"}, 3)
    async with signed_in(listener, "mira") as mira:
        for path, count in (
            *((f"{API}/batches", MANY + 1), (f"{API}/files", MANY), ("/api/people", MANY + 3)),
            *((f"{API}/teams", MANY + 1), (f"{LEVEL}/schedules", MANY)),
            *((f"{LEVEL}/history", MANY), (f"{API}/budgets", 2 * MANY + 2)),
            *(("/api/prices/proposals", MANY), (f"{API}/key_proposals", MANY)),
        ):
            _, text = await mira.send("GET", path)
            whole = msgspec.json.decode(text)
            whole = whole["events"] if isinstance(whole, dict) else whole
            found, sizes, said = await parts_of(mira, path)
            assert (said, len(found), max(sizes)) == (count, count, 100), path
            # Of what is proposed of keys, no list without it ever gave more than a hundred.
            assert found[: len(whole)] == whole, path
            assert len(whole) == (100 if path.endswith("key_proposals") else count), path
        _, text = await mira.send("GET", f"{LEVEL}/history?from=0&at=2030-01-01T00:00")
        assert set(msgspec.json.decode(text)) == {"events", "acting"}


@ON_BOTH
async def test_batches_and_files_are_paged_and_a_state_is_found_however_old(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admin.batches.desk.LISTED_MAX", 120)
    await staff(listener)
    await add_person(listener, "mira", "platform_admin", where="*")
    async with listener.database() as database:
        await fill_batches(database, listener.clock.utc_us())
    async with signed_in(listener, "mira") as mira:
        for base, first, last, count in (
            ("/o/acme/batches", ">b000", ">open000", MANY + 1),
            ("/o/acme/batches?q=state%3Acompleted", ">b000", ">b129", MANY),
            ("/o/acme/batches?q=chat", ">b000", ">b119", 120),
            ("/o/acme/files", ">f000", ">f129", MANY),
        ):
            text = await page(mira, base)
            assert f"1–100 of {count}" in text, base
            assert (first in text, last in text) == (True, False), base
            text = await page(mira, onward(text))
            assert f"101–{count} of {count}" in text, base
            assert (last in text, onward(text)) == (True, ""), base
        assert ">open000" in await page(mira, "/o/acme/batches?q=state:in_progress")
        assert "Words are looked for in the newest" in await page(mira, "/o/acme/batches?q=chat")


async def test_what_another_master_key_sealed_is_not_called_an_absent_database(
    listener: Listener,
) -> None:
    """As of the batches here, whose keys nobody can open."""
    await add_person(listener, "carla", "compliance")
    async with listener.database() as database:
        await listener.issue_key("assistant")
        await fill_batches(database, listener.clock.utc_us())
        await fill_custody(database, listener.clock.utc_us())
    async with signed_in(listener, "carla") as carla:
        answer, text = await carla.send("GET", "/o/acme/compliance/erasures/e000")
    assert (answer.status, "database does not answer" in text) == (503, False)
    assert "Nothing that is kept can be opened with this master key." in text
