"""Credentials in the browser: they go in, are told apart, and never come out again."""

import json
import os
import re
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from admin.access import STEP_UP_S
from gateway.audit.projecting.export import segment_rows
from gateway.secrets.credentials import master_key
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.sealing.sealed_secrets import SealedSecretTable
from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.listener import Browser, Listener, browsing


pytestmark = pytest.mark.anyio

MORE = """
[providers.sealed]
kind = "openai"
jurisdiction = "us"
credential = { db = "open-ai" }
[providers.filed]
kind = "openai"
jurisdiction = "us"
credential = { file = "filed.key" }
[providers.vaulted]
kind = "openai"
jurisdiction = "us"
credential = { vault = "teams/it's#key" }
[providers.clouded]
kind = "openai"
jurisdiction = "us"
credential = { aws_sm = "prod/openai" }
[vault]
url = "https://vault.example"
"""
AT = "/models/credentials"
CANARY = f"sk-{secrets.token_hex(16)}"


@pytest.fixture
async def listener(tmp_path: Path, sqlite_url: str) -> AsyncIterator[Listener]:
    async with Listener(tmp_path, sqlite_url, MORE) as running:
        yield running


async def put(
    browser: Browser, value: str, name: str = "open-ai", version: int = 0, **more: str
) -> tuple[int, str]:
    form = {"name": name, "value": value, "version": str(version)} | more
    answer, page = await browser.send("POST", f"{AT}/set", form)
    return answer.status, page


async def opened(listener: Listener, name: str = "open-ai") -> str:
    async with listener.database() as database:
        table = SealedSecretTable(database, master_key(listener.settings), listener.clock)
        return (await table.open(name)).reveal()


async def deeds(listener: Listener) -> list[tuple[str, str, dict[str, str]]]:
    folder = listener.settings.path(listener.settings.audit.directory)
    records = [row.projected.record async for row in segment_rows(folder)]
    return [
        (each.action, each.status, dict(each.detail))
        for each in records
        if each.action.startswith("secret.")
    ]


async def test_a_credential_is_set_replaced_and_removed_and_each_is_on_record(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    _, before = await browser.send("GET", f"{AT}/database/open-ai")
    assert "sealed cannot be called" in before
    assert "once it is set, a next version can be tried first" in before
    assert "No deed on it is among the latest of the log." in before
    status, _ = await put(browser, f"  {CANARY}\n")
    assert status == 303
    assert await opened(listener) == CANARY

    _, first = await browser.send("GET", f"{AT}/database/open-ai?done=set")
    assert "Version 1 is set" in first
    assert "What was done just now is on record, and listed here in a moment." in first
    assert "a next version (above) can be tried first" in first
    assert (await put(browser, "another", version=1))[0] == 303
    assert await opened(listener) == "another"
    _, second = await browser.send("GET", f"{AT}/database/open-ai")
    marks = [re.findall(r"<code>([0-9a-f]{8})</code>", page) for page in (first, second)]
    assert [len(set(each)) for each in marks] == [1, 1]
    assert marks[0] != marks[1]
    answer, _ = await browser.send("POST", f"{AT}/remove", {"name": "open-ai", "version": "2"})
    assert answer.status == 303
    async with listener.database() as database:
        table = SealedSecretTable(database, master_key(listener.settings), listener.clock)
        assert await table.listed() == []

    (set_first, set_second, removed) = await deeds(listener)
    assert [each[0] for each in (set_first, set_second, removed)] == [
        *("secret.set", "secret.set", "secret.removed")
    ]
    assert json.loads(set_first[2]["after"]) == {"name": "open-ai", "fingerprint": marks[0][0]}
    assert json.loads(set_second[2]["before"])["fingerprint"] == marks[0][0]
    assert json.loads(removed[2]["before"])["version"] == 2


async def test_a_value_is_in_no_page_answer_log_deed_or_table(
    listener: Listener, browser: Browser, capfd: pytest.CaptureFixture[str]
) -> None:
    await browser.sign_in()
    pages = [(await put(browser, CANARY))[1]]
    pages.append((await put(browser, CANARY, version=7))[1])  # somebody else's version
    pages.append((await put(browser, CANARY, name="No Name"))[1])
    pages.append((await put(browser, f"{CANARY} {CANARY}", version=1))[1])
    body = json.dumps({"value": CANARY, "expected_version": 1})
    for wanted in (body, body.replace("1}", '"one"}'), f'{{"value": "{CANARY}"'):
        _, text = await browser.send("POST", "/api/credentials/open-ai", body=wanted)
        pages.append(text)
    listener.clock.advance(STEP_UP_S + 1)
    pages.append((await put(browser, CANARY, version=2))[1])
    await browser.send("POST", "/sign-out")
    pages.append((await put(browser, CANARY, version=2))[1])
    await browser.sign_in()
    for path in (AT, f"{AT}/database/open-ai", f"{AT}/set?name=open-ai", "/api/credentials"):
        answer, page = await browser.send("GET", path)
        assert answer.status == 200
        pages.append(page)

    assert [number for number, page in enumerate(pages) if CANARY in page] == []
    assert await opened(listener) == CANARY
    said = capfd.readouterr()
    assert CANARY not in said.out + said.err
    # The database, its journal and the segments of the audit log are files here.
    files = [path for path in listener.folder.rglob("*") if path.is_file()]
    assert any(path.name in listener.settings.database_url for path in files)
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
    assert len(await deeds(listener)) >= 2


async def test_a_form_that_failed_comes_back_without_the_secret_and_says_what_is_wrong(
    browser: Browser,
) -> None:
    await browser.sign_in()
    for value, said in (("", "Nothing was typed"), ("a b", "spaces"), ("x" * 9_000, "longer")):
        status, page = await put(browser, value)
        assert status == 400
        assert said in page
        assert "type it again" in page
        (field,) = re.findall(r'<input id="field-value"[^>]*>', page)
        assert 'value=""' in field
        assert 'type="password"' in field
        assert 'autocomplete="off"' in field
    status, page = await put(browser, "fine", name="Not A Name")
    assert status == 400
    assert "lower-case letters" in page


async def test_of_two_people_at_once_the_second_is_told_and_changes_nothing(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    async with browsing(listener) as other:
        await other.sign_in()
        assert (await put(other, "from the other".replace(" ", "-")))[0] == 303
    status, page = await put(browser, "mine")
    assert status == 409
    assert "Somebody else set or removed" in page
    assert await opened(listener) == "from-the-other"
    answer, _ = await browser.send("POST", f"{AT}/remove", {"name": "open-ai", "version": "0"})
    assert answer.status == 409
    assert await opened(listener) == "from-the-other"
    assert [each[1] for each in await deeds(listener)] == ["ok", *("ok", "failed") * 2]


async def test_a_proof_that_is_too_old_leads_back_to_the_form_and_keeps_no_secret(
    listener: Listener, browser: Browser
) -> None:
    await seeding.person(listener, "sec", "security_admin")
    await browser.sign_in_as("sec", seeding.PASSWORD)
    listener.clock.advance(STEP_UP_S + 1)
    asked, page = await browser.send("GET", f"{AT}/set?name=open-ai")
    assert asked.status == 403
    status, again = await put(browser, CANARY)
    assert status == 403
    assert CANARY not in again
    for text, wanted in ((page, f"{AT}/set?name=open-ai"), (again, f"{AT}/set")):
        (to,) = set(re.findall(r'name="to" value="([^"]*)"', text))
        answer, _ = await browser.send("POST", "/prove", {"password": seeding.PASSWORD, "to": to})
        assert (answer.status, answer.headers["location"]) == (303, wanted)
    with pytest.raises(Exception, match="no such secret"):
        await opened(listener)


async def test_only_who_may_set_secrets_everywhere_can_and_others_are_shown_no_button(
    listener: Listener, browser: Browser
) -> None:
    await listener.issue_key("makes the organisation")
    await seeding.person(listener, "ann", "viewer")
    await browser.sign_in_as("ann", seeding.PASSWORD)
    _, page = await browser.send("GET", AT)
    assert f'href="{AT}/set' not in page
    assert (await browser.send("GET", f"{AT}/set"))[0].status == 403
    assert (await put(browser, "mine"))[0] == 403
    await seeding.person(listener, "own", "platform_admin", "acme")
    async with browsing(listener) as other:
        await other.sign_in_as("own", seeding.PASSWORD)
        assert (await other.send("GET", AT))[0].status == 403
        assert (await put(other, "mine"))[0] == 403
    assert await deeds(listener) == []


async def test_what_is_kept_elsewhere_says_where_and_how_it_is_changed(
    listener: Listener, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWRIGHT_TEST_ABSENT_KEY", CANARY)
    path = listener.folder / "filed.key"
    path.write_text(CANARY)
    path.chmod(0o644)
    await browser.sign_in()
    wanted = {
        "environment/managed": ["GATEWRIGHT_TEST_ABSENT_KEY", "start them anew"],
        "file/filed": ["can be read by others", f"install -m 600 /dev/stdin {path}"],
        "vault/vaulted": ["vault kv patch", "key=-", "not known here"],
        "aws/clouded": ["put-secret-value --secret-id prod/openai"],
    }
    assert (await browser.send("GET", "/"))[0].status == 200
    assert (await browser.send("GET", "/models"))[0].status == 200
    for name, texts in wanted.items():
        answer, page = await browser.send("GET", f"{AT}/{name}")
        assert answer.status == 200
        assert [text for text in texts if text not in page] == []
        assert f'href="{AT}/set?' not in page
        assert CANARY not in page
    path.chmod(0o600)
    _, filed = await browser.send("GET", f"{AT}/file/filed")
    _, environment = await browser.send("GET", f"{AT}/environment/managed")
    marks = [re.findall(r"<code>([0-9a-f]{8})</code>", each) for each in (filed, environment)]
    assert marks[0] == marks[1] != []  # the same value in two places
    for nothing in ("file/managed", "database/nothing", f"vault/{quote('<script>')}"):
        assert (await browser.send("GET", f"{AT}/{nothing}"))[0].status == 404


async def test_what_another_master_key_sealed_is_said_to_be_of_no_use(
    listener: Listener, browser: Browser
) -> None:
    async with listener.database() as database:
        other = MasterKey(Secret(os.urandom(32)))
        await SealedSecretTable(database, other, listener.clock).seal(
            "open-ai", Secret("sk-value"), "ann"
        )
    await browser.sign_in()
    _, page = await browser.send("GET", f"{AT}/database/open-ai")
    assert "another master key" in page
    _, listed = await browser.send("GET", AT)
    assert "cannot be used" in listed


async def test_the_json_api_sets_lists_and_removes_without_ever_telling_a_value(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    body = json.dumps({"value": CANARY, "expected_version": 0})
    answer, text = await browser.send("POST", "/api/credentials/open-ai", body=body)
    assert answer.status == 200
    told = json.loads(text)
    assert (told["name"], told["version"]) == ("open-ai", 1)
    again, _ = await browser.send("POST", "/api/credentials/open-ai", body=body)
    assert again.status == 409
    _, listed = await browser.send("GET", "/api/credentials")
    (line,) = [each for each in json.loads(listed)["lines"] if each["kind"] == "database"]
    assert (line["fingerprint"], line["providers"]) == (told["fingerprint"], ["sealed"])
    gone, _ = await browser.send(
        "POST", "/api/credentials/open-ai/remove", body='{"expected_version": 1}'
    )
    assert gone.status == 204
    nothing, _ = await browser.send("POST", "/api/credentials/open-ai/remove", body="{}")
    assert nothing.status == 400


async def test_a_credential_is_replaced_in_a_browser_by_keyboard(listener: Listener) -> None:
    await seeding.person(listener, "sec", "security_admin")
    async with window(listener) as seen:
        await seen.sign_in("sec", seeding.PASSWORD)
        await seen.open(f"{AT}/database/open-ai")
        await seen.page.get_by_role("link", name="Set", exact=True).press("Enter")
        await seen.page.get_by_label("The secret").fill(CANARY)
        await seen.page.keyboard.press("Enter")
        await seen.page.wait_for_url("**/database/open-ai?done=set")
        assert "Version 1 is set" in await seen.page.inner_text("main")
        assert CANARY not in await seen.page.content()
        assert seen.problems == []
    assert await opened(listener) == CANARY
