"""The overview: figures are those of the records, needs are somebody's own, text is text."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.secrets.credentials import master_key
from gateway.secrets.secret import Secret
from gateway.store.custody.orders import Custody
from gateway.store.identity.people import PeopleStore
from gateway.store.policies.documents import PolicyStore
from gateway.store.policies.guard import ACTOR as GUARD
from gateway.store.policies.schedules import ScheduleTable
from gateway.store.sealing.sealed_secrets import SealedSecretTable
from gateway.types import AuditRecord
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.seeding import (
    DAY_US,
    HOSTILE,
    HOUR_US,
    PASSWORD,
    issue,
    limit,
    person,
    requests,
)
from tests.gateway.audit.samples import running
from tests.policies.worlds import document


pytestmark = pytest.mark.anyio


async def see(browser: Browser, path: str = "/") -> str:
    answer, page = await browser.send("GET", path)
    assert answer.status == 200, page
    return page


async def figures(browser: Browser) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(await see(browser, "/api/overview"))
    return found


@pytest.fixture
async def root(listener: Listener, browser: Browser) -> Browser:
    await person(listener, "root", "platform_admin")
    await browser.sign_in_as("root", PASSWORD)
    return browser


async def test_an_empty_installation_says_so_and_shows_the_first_steps(root: Browser) -> None:
    page = await see(root)

    assert "No requests yet" in page
    assert "Nothing needs your attention." in page
    assert 'href="/first-run"' in page


async def test_figures_of_a_day_stand_beside_the_day_before(
    listener: Listener, root: Browser
) -> None:
    key_id = await issue(listener, "busy")
    listener.clock.advance(HOUR_US / 2e6)
    records = requests(listener, key_id, 90, over_us=46 * HOUR_US)
    await listener.record(*records)
    found = await figures(root)
    first_us = (listener.clock.utc_us() // HOUR_US - 23) * HOUR_US

    def of(is_last: bool) -> list[AuditRecord]:
        return [each for each in records if (each.utc_us >= first_us) is is_last]

    for name, total in (
        ("requests", len),
        ("cost", lambda some: sum(each.cost_microusd for each in some)),
        ("found", lambda some: sum(bool(each.findings) for each in some)),
        (
            "sovereign",
            lambda some: (
                sum(each.jurisdiction == "in-house" for each in some)
                / sum(bool(each.jurisdiction) for each in some)
            ),
        ),
    ):
        assert found[name]["value"] == pytest.approx(total(of(True))), name
        assert found[name]["before"] == pytest.approx(total(of(False))), name
        assert len(found[name]["hours"]) == 24
    assert sum(found["requests"]["hours"]) == found["requests"]["value"]
    hours = found["hours"]
    assert sum(h["in_house"] + h["managed"] + h["refused"] for h in hours) == len(records)
    assert [each["request_id"] for each in found["recent"]] == [
        each.request_id for each in reversed(records[-10:])
    ]
    page = await see(root)
    assert f'href="/o/acme/traffic/{records[-1].request_id}"' in page


async def test_what_waits_is_named_and_only_to_who_it_waits_for(
    listener: Listener, root: Browser, tmp_path: Path
) -> None:
    now_us = listener.clock.utc_us()
    key_id = await issue(listener, "short", expires_us=now_us + 3 * DAY_US)
    await limit(listener, f"key:{key_id}", 0, "day")
    free = requests(listener, key_id, 3, status="ok", target="claude", cost_microusd=0, over_us=9)
    await listener.record(*free)
    async with listener.database() as database:
        store = PolicyStore(database, listener.clock)
        await store.draft("org:acme", document(), "erik")
        # What petra wrote and asked for from a shell does not wait for petra.
        await store.draft("org:acme", document(), "os:petra")
        async with running(tmp_path / "other") as log:
            custody = Custody(database, log, listener.clock)
            await custody.ask_reveal("os:petra", "acme", "r", reason="w", ticket="t", minutes=5)
        people = PeopleStore(database, listener.clock)
        await people.add("erik", password=Secret(PASSWORD))
    await person(listener, "petra", "approver", "acme")
    await person(listener, "otto", "approver", "umbrella")

    def kinds(found: dict[str, Any]) -> set[str]:
        return {need["kind"] for need in found["needs"]}

    assert kinds(await figures(root)) == {"budget", "keys", "unpriced"}
    page = await see(root)
    assert "1 key of acme" in page
    assert f'href="/o/acme/costs/limits?open=key%3A{key_id}#key:{key_id}"' in page
    assert "Budget of acme, key short</a>" in page
    for name, expected in (
        ("petra", {"draft", "budget", "keys", "unpriced"}),
        ("otto", set()),
    ):
        await root.send("POST", "/sign-out")
        await root.sign_in_as(name, PASSWORD)
        found = await figures(root)
        assert kinds(found) == expected, name
        drafts = [need["subject"] for need in found["needs"] if need["kind"] == "draft"]
        assert drafts == (["erik"] if name == "petra" else [])
        assert bool(found["recent"]) is (name == "petra")


async def test_a_trial_that_ended_by_itself_waits_for_who_writes_policies_until_somebody_acts(
    listener: Listener, root: Browser
) -> None:
    await person(listener, "petra", "approver", "acme")
    await person(listener, "wanda", "policy_editor", "acme")
    await person(listener, "vera", "viewer", "acme")
    async with listener.database() as database:
        store = PolicyStore(database, listener.clock)
        version = await store.draft("org:acme", document(), "erik")
        await store.act(version.level, version.number, "approve", "petra")
        await store.act(version.level, version.number, "canary", "petra", percent=10)
        await store.act(version.level, version.number, "withdraw", GUARD, reason="refusals: 50%")
    told = "Version 1 of acme's policy ended its trial by itself: refusals: 50%"
    for name, is_told in (("petra", True), ("wanda", True), ("vera", False)):
        await root.send("POST", "/sign-out")
        await root.sign_in_as(name, PASSWORD)
        kinds = {need["kind"] for need in (await figures(root))["needs"]}
        assert ("withdrawn" in kinds, told in await see(root)) == (is_told, is_told), name

    async with listener.database() as database:
        await PolicyStore(database, listener.clock).draft("org:acme", document(), "wanda")
    await root.send("POST", "/sign-out")
    await root.sign_in_as("petra", PASSWORD)
    assert {need["kind"] for need in (await figures(root))["needs"]} == {"draft"}


async def test_an_approved_version_that_acts_nowhere_waits_for_who_rolls_it_out(
    listener: Listener, root: Browser
) -> None:
    await person(listener, "petra", "approver", "acme")
    await person(listener, "wanda", "policy_editor", "acme")
    level, now_us = "proj:acme/research/assistant", listener.clock.utc_us()

    async def waiting(name: str) -> list[str]:
        await root.send("POST", "/sign-out")
        await root.sign_in_as(name, PASSWORD)
        return [each["kind"] for each in (await figures(root))["needs"]]

    async with listener.database() as database:
        store = PolicyStore(database, listener.clock)
        first = await store.draft(level, document(), "erik")
        assert await waiting("petra") == ["draft"]
        at = "/o/acme/policies/proj:research:assistant/versions"
        told = "Version 1 of the policy of Project research / assistant of acme, by erik"
        assert f'<a href="{at}/1">{told}</a>' in await see(root)

        await store.act(level, first.number, "approve", "petra")
        assert (await waiting("wanda"), await waiting("petra")) == ([], ["approved"])
        assert f'<a href="{at}/1">{told}, is approved but not rolled out</a>' in await see(root)

        schedules = ScheduleTable(database, listener.clock)
        left = await schedules.add(level, first.number, "publish", now_us + DAY_US, "petra")
        assert await waiting("petra") == []
        await schedules.cancel(level, left.number, "petra", "not yet")
        assert await waiting("petra") == ["approved"]

        later = await store.draft(level, document(), "erik")
        await store.act(level, later.number, "approve", "petra")
        await store.act(level, later.number, "publish", "petra")
        assert await waiting("petra") == []


async def test_changes_of_policies_stand_in_the_chart(listener: Listener, root: Browser) -> None:
    async with listener.database() as database:
        store = PolicyStore(database, listener.clock)
        version = await store.draft("org:acme", document(), "erik")
        await store.act(version.level, version.number, "approve", "petra")
        await store.act(version.level, version.number, "publish", "erik", reason=HOSTILE[0])
    page = await see(root)

    assert "version 1 went live" in page
    assert len(re.findall(r"<tr data-mark=", page)) == 1
    assert HOSTILE[0] not in page


async def test_one_sees_only_ones_own_organisation(listener: Listener, browser: Browser) -> None:
    for organisation in ("acme", "umbrella"):
        key_id = await issue(listener, "a key", organisation=organisation)
        await listener.record(*requests(listener, key_id, 5, organisation=organisation))
        await limit(listener, f"org:{organisation}", 1, "month")
    await person(listener, "ann", "viewer", "acme")
    await browser.sign_in_as("ann", PASSWORD)
    page, found = await see(browser), await figures(browser)

    assert "umbrella" not in page
    assert "umbrella" not in str(found)
    assert {each["organisation"] for each in found["recent"]} == {"acme"}


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_text_of_requests_is_text(listener: Listener, root: Browser, hostile: str) -> None:
    await issue(listener, "a key")
    more: dict[str, Any] = {"model_requested": hostile, "target": hostile, "findings": {hostile: 1}}
    more |= {"jurisdiction": hostile, "status": hostile, "data_class": hostile}
    await listener.record(*requests(listener, "k", 2, request_id=hostile, **more))
    page = await see(root)

    if "<" in hostile:
        assert hostile not in page
        assert page.count("&lt;") >= 4
    else:
        assert hostile in page


async def test_a_provider_waits_for_its_credential_of_the_database(
    tmp_path: Path, listener_url: str
) -> None:
    more = (
        '[providers.far]\nkind = "openai"\njurisdiction = "us"\ncredential = { db = "open-ai" }\n'
    )
    async with Listener(tmp_path, listener_url, more) as listener, browsing(listener) as root:
        await root.sign_in()
        said = []
        for value in ("", "sk-value"):
            async with listener.database() as database:
                table = SealedSecretTable(database, master_key(listener.settings), listener.clock)
                if value:
                    await table.seal("open-ai", Secret(value), "a test")
            parts = (await figures(root))["parts"]
            said += [(each["word"], each["note"]) for each in parts if each["name"] == "far"]

    assert said == [("unavailable", "no credential"), ("quiet", "")]
