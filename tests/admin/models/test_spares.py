"""Two versions of a credential: the next one is tried, used, and gone back from."""

import json
import re
import secrets
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from admin.access import STEP_UP_S
from gateway.oversight.access import Grant
from gateway.oversight.deeds import Deeds
from gateway.secrets.credentials import master_key
from gateway.store.identity.people import PeopleStore
from gateway.store.identity.sessions import IDLE_S
from gateway.store.sealing.spare_secrets import Retirement, SpareSecretTable
from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.listener import Browser, Listener
from tests.admin.models.test_provider import MORE, work
from tests.admin.spoken import unspoken
from tests.admin.test_deeds import deeds
from tests.gateway.audit.samples import running
from tests.upstreams import RecordingUpstream


pytestmark = pytest.mark.anyio
AT = "/models/credentials/database/kept"
OLD, NEW = (f"sk-{secrets.token_hex(12)}" for _ in range(2))


@pytest.fixture
async def upstream() -> AsyncIterator[RecordingUpstream]:
    async with RecordingUpstream() as made:
        yield made


@pytest.fixture
async def listener(
    tmp_path: Path, sqlite_url: str, upstream: RecordingUpstream
) -> AsyncIterator[Listener]:
    async with Listener(tmp_path, sqlite_url, MORE.format(url=upstream.url)) as made:
        yield made


@pytest.fixture
async def browser(listener: Listener, browser: Browser) -> Browser:
    await browser.sign_in()
    form = {"name": "kept", "value": OLD, "version": "0"}
    assert (await browser.send("POST", "/models/credentials/set", form))[0].status == 303
    return browser


async def step(browser: Browser, part: str, **form: str) -> tuple[int, str]:
    answer, page = await browser.send("POST", f"/models/secrets/kept/{part}", form)
    return answer.status, plain(page)


async def shown(browser: Browser) -> str:
    answer, page = await browser.send("GET", AT)
    assert answer.status == 200
    assert not any(value in page for value in (OLD, NEW))
    return plain(page)


def plain(page: str) -> str:
    return unescape(" ".join(re.sub(r"<[^>]+>", " ", page).split()))


async def done(listener: Listener) -> list[tuple[str, str]]:
    found = await deeds(listener)
    assert not any(value in str(found) for value in (OLD, NEW))
    return [
        (each.action, each.error) for each in found if each.action.startswith(("secret", "prov"))
    ]


async def test_a_next_version_is_tried_used_and_put_back_and_every_step_is_on_record(
    listener: Listener, browser: Browser, upstream: RecordingUpstream
) -> None:
    assert (await step(browser, "next", value=NEW, version="0"))[0] == 303
    said = await shown(browser)
    assert "2 next" in said
    assert "1 in use" in said
    assert "kept is called with version 2 by 0 workers within 5 seconds" in said
    assert "It has not been seen to work with kept." in said

    assert (await step(browser, "test", provider="kept"))[0] == 303
    await work(listener)
    assert {call.headers["authorization"] for call in upstream.calls} == {f"Bearer {NEW}"}
    _, text = await browser.send("GET", "/api/credentials/kept/versions")
    told = json.loads(text)
    (trial,) = told["trials"]
    assert trial["order"]["found"]["fingerprint"] == told["next"]["fingerprint"]

    assert (await step(browser, "switch", version="2", in_use="1"))[0] == 303
    said = await shown(browser)
    assert "2 in use" in said
    assert "Version 1 can be put back" in said
    assert (await step(browser, "put-back", version="1", in_use="2"))[0] == 303
    said = await shown(browser)
    assert "1 in use" in said
    assert "2 next" in said
    assert (await step(browser, "switch", version="2", in_use="1"))[0] == 303
    assert (await step(browser, "retire", version="1"))[0] == 303
    assert "can be put back until" not in await shown(browser)
    assert (await step(browser, "next", value=f"{NEW}x", version="0"))[0] == 303
    assert "3 next" in await shown(browser), "no number is given twice"
    assert (await step(browser, "drop", version="3"))[0] == 303
    assert await done(listener) == [
        (action, "")
        for action in (
            *("secret.set", "secret.next_set", "provider.test_ordered", "secret.switched"),
            *("secret.put_back", "secret.switched", "secret.retired", "secret.next_set"),
            "secret.next_dropped",
        )
    ]


async def test_a_version_that_failed_says_at_which_step_and_with_what(
    listener: Listener, browser: Browser, upstream: RecordingUpstream
) -> None:
    await step(browser, "next", value=NEW, version="0")
    upstream.models_status = 401
    await step(browser, "test", provider="kept")
    await work(listener)
    said = await shown(browser)
    assert "it failed" in said
    assert "credential: HTTP 401" in said


async def test_a_next_version_that_needs_a_proof_leads_back_to_its_page_and_keeps_no_secret(
    listener: Listener, browser: Browser
) -> None:
    sent = {"value": NEW, "version": "1", "in_use": "1"}
    for seconds, path in ((STEP_UP_S + 1, "/prove"), (IDLE_S + 1, "/sign-in")):
        listener.clock.advance(seconds)
        referer = f"{listener.url}{AT}"
        answer, page = await browser.send(
            "POST", "/models/secrets/kept/next", sent, referer=referer
        )
        assert NEW not in page
        sent_on = parse_qs(urlsplit(answer.headers.get("location", "")).query).get("to", [])
        (to,) = sent_on or set(re.findall(r'name="to" value="([^"]*)"', page))
        proof = {"token": listener.token, "to": to}
        answer, _ = await browser.send("POST", path, proof)
        assert (answer.status, answer.headers["location"]) == (303, AT)


async def test_what_changed_meanwhile_or_is_not_there_is_refused_on_the_page(
    browser: Browser,
) -> None:
    status, said = await step(browser, "switch", version="0", in_use="1")
    assert (status, "there is no such version" in said) == (400, True)
    assert (await step(browser, "put-back", version="1"))[0] == 409
    status, said = await step(browser, "next", value=OLD, version="0")
    assert (status, "the value that is in use already" in said) == (400, True)
    assert (await step(browser, "next", value="with space", version="0"))[0] == 400
    await step(browser, "next", value=NEW, version="0")
    for part, form in (
        ("next", {"value": f"{NEW}x", "version": "0"}),
        ("switch", {"version": "3", "in_use": "1"}),
        ("switch", {"version": "2", "in_use": "7"}),
        ("drop", {"version": "1"}),
    ):
        status, said = await step(browser, part, **form)
        assert (status, "Somebody else set or removed" in said) == (409, True), part
    status, said = await step(browser, "test", provider="near")
    assert (status, "does not use it" in said) == (400, True)
    assert "2 next" in await shown(browser)


async def test_a_version_is_put_back_only_over_those_that_were_seen(
    listener: Listener, browser: Browser
) -> None:
    """Somebody sets another one, as the old ones leaked, or prepares one that only they have."""
    await step(browser, "next", value=NEW, version="0")
    await step(browser, "switch", version="2", in_use="1")
    looked = {"version": "1", "in_use": "2"}
    form = {"name": "kept", "value": f"{NEW}x", "version": "2"}
    assert (await browser.send("POST", "/models/credentials/set", form))[0].status == 303
    status, said = await step(browser, "put-back", **looked)
    assert (status, "Somebody else set or removed" in said) == (409, True)
    assert "3 in use" in await shown(browser)

    looked["in_use"] = "3"
    await step(browser, "next", value=f"{NEW}y", version="0")
    assert (await step(browser, "put-back", **looked))[0] == 409
    assert "4 next" in await shown(browser)

    _, page = await browser.send("GET", AT)
    fields = re.search(r'put-back"(.*?)<button', page, re.DOTALL)
    assert fields is not None
    seen = dict(re.findall(r'name="(version|in_use|next)" value="(\d+)"', fields[1]))
    assert seen == {"version": "1", "in_use": "3", "next": "4"}
    assert (await step(browser, "put-back", **seen))[0] == 303
    said = await shown(browser)
    assert "1 in use" in said
    assert "3 next" in said


async def test_a_former_version_is_destroyed_when_its_time_is_over(
    listener: Listener, browser: Browser
) -> None:
    await step(browser, "next", value=NEW, version="0")
    await step(browser, "switch", version="2", in_use="1")
    async with listener.database() as database:
        table = SpareSecretTable(database, master_key(listener.settings), listener.clock)
        async with running(listener.folder / "deeds") as audit:
            retirement = Retirement(table, Deeds(audit, listener.clock))
            listener.clock.advance(listener.settings.secrets.former_kept_s - 1)
            await retirement.tend()
            assert set(await table.of("kept")) == {"former"}
            listener.clock.advance(2)
            assert await table.of("kept") == {}
            await browser.sign_in()
            status, said = await step(browser, "put-back", version="1", in_use="2")
            assert (status, "Its time is over" in said) == (400, True)
            await retirement.tend()
            assert await table.expired() == []


async def test_a_secret_that_is_removed_takes_its_versions_along(
    listener: Listener, browser: Browser
) -> None:
    await step(browser, "next", value=NEW, version="0")
    form = {"name": "kept", "version": "1"}
    assert (await browser.send("POST", "/models/credentials/remove", form))[0].status == 303
    assert (await step(browser, "next", value=NEW, version="0"))[0] == 400
    form = {"name": "kept", "value": OLD, "version": "0"}
    assert (await browser.send("POST", "/models/credentials/set", form))[0].status == 303
    _, text = await browser.send("GET", "/api/credentials/kept/versions")
    assert (json.loads(text)["next"], json.loads(text)["former"]) == (None, None)


async def test_only_who_may_set_secrets_takes_steps_and_programs_take_the_same(
    listener: Listener, browser: Browser
) -> None:
    api = "/api/credentials/kept"
    order = json.dumps({"value": NEW, "expected_version": 0})
    assert (await browser.send("POST", f"{api}/next", body=order))[0].status == 204
    assert (await browser.send("POST", f"{api}/next/test/kept"))[0].status == 201
    seen = json.dumps({"version": 2, "in_use": 1})
    assert (await browser.send("POST", f"{api}/switch", body=seen))[0].status == 204
    back = json.dumps({"version": 1, "in_use": 2, "next": 0})
    assert (await browser.send("POST", f"{api}/put-back", body=back))[0].status == 204
    assert (await browser.send("POST", f"{api}/next/drop", body='{"version": 2}'))[0].status == 204
    assert (await browser.send("POST", f"{api}/retire", body='{"version": 2}'))[0].status == 409
    await seeding.person(listener, "vic", "viewer")
    await browser.sign_in_as("vic", seeding.PASSWORD)
    for part in ("next", "next/drop", "next/test/kept", "switch", "put-back", "retire"):
        assert (await browser.send("POST", f"{api}/{part}", body=seen))[0].status == 403
    assert (await browser.send("GET", f"{api}/versions"))[0].status in (200, 403)


async def test_a_switch_is_made_by_keyboard(listener: Listener, browser: Browser) -> None:
    await step(browser, "next", value=NEW, version="0")
    await seeding.person(listener, "sam", "platform_admin")
    async with window(listener) as seen:
        await seen.sign_in("sam", seeding.PASSWORD)
        await seen.open(AT)
        assert await seen.violations() == []
        await seen.page.get_by_role("button", name="Switch to version 2").press("Enter")
        await seen.page.get_by_role("button", name="Put version 1 back").wait_for()
        assert await seen.violations() == []
        assert seen.problems == []


async def test_the_page_follows_a_trial_and_leaves_a_secret_that_is_being_typed(
    listener: Listener, browser: Browser
) -> None:
    await seeding.person(listener, "root", "platform_admin")
    async with listener.database() as database:
        await PeopleStore(database, listener.clock).grant("root", Grant("security_admin", "*"))
    assert (await step(browser, "next", value=NEW, version="0"))[0] == 303
    async with window(listener) as seen:
        page = seen.page
        await seen.sign_in("root", seeding.PASSWORD)
        await seen.open(AT)
        assert await page.get_attribute("#trials", "hx-get") is None, "nothing is waited for"
        await page.click("button:has-text('Test kept with it')")
        await page.wait_for_selector("#trials:has-text('waiting')")
        await page.click("summary:has-text('Set another next version')")
        await page.fill("#field-value", OLD)
        await work(listener)
        await page.wait_for_selector("#trials:has-text('it works')")
        assert await page.get_attribute("#trials", "hx-get") is None, "nor any more"
        assert await page.locator("#trials button.danger").count() == 0, "it was seen to work"
        assert await page.input_value("#field-value") == OLD
        assert await page.evaluate("document.activeElement.id") == "field-value"
        assert await unspoken(page) == []
        assert seen.problems == []
