"""The one-time link: it makes the first person once, soon, and never when somebody exists."""

import asyncio
import re

import pytest

from gateway.audit.projecting.export import segment_rows
from gateway.clock import StoppedClock
from gateway.errors import RequestInvalid, Unauthenticated
from gateway.oversight.access import allows
from gateway.secrets.secret import Secret
from gateway.store.engine import Database
from gateway.store.identity.people import PeopleStore
from gateway.store.identity.setup_links import GOOD_FOR_S, SetupLinks
from gateway.store.schema.tables import setup_links
from tests.admin.chromium import come_true, window
from tests.admin.listener import Browser, Listener
from tests.admin.seeding import HOSTILE, PASSWORD, person


pytestmark = pytest.mark.anyio


async def made(links: SetupLinks) -> str:
    code = await links.make()
    assert code is not None
    return code


async def code_of(listener: Listener) -> str:
    async with listener.database() as database:
        return await made(SetupLinks(database, listener.clock))


async def test_of_two_who_redeem_at_once_one_person_is_made(database: Database) -> None:
    links = SetupLinks(database, StoppedClock())
    codes = [await made(links), await made(links)]

    async def redeem(number: int) -> str:
        try:
            await links.redeem(codes[number % 2], f"person{number}", "", Secret(PASSWORD))
        except (Unauthenticated, RequestInvalid) as error:
            return type(error).__name__
        return "made"

    ends = await asyncio.gather(*(redeem(number) for number in range(4)))
    (first,) = await PeopleStore(database, StoppedClock()).listed()

    assert sorted(ends) == ["Unauthenticated"] * 3 + ["made"]
    assert {grant.role for grant in first.grants} == {"platform_admin", "security_admin"}
    assert not allows(first, "content:reveal")  # type: ignore[arg-type]
    assert await links.make() is None


async def test_a_code_ends_with_its_hour_with_its_use_and_when_somebody_exists(
    database: Database,
) -> None:
    clock = StoppedClock()
    links = SetupLinks(database, clock)
    code = await made(links)
    async with database.reading() as connection:
        (row,) = (await connection.execute(setup_links.select())).all()
    assert code.encode() not in bytes(row.digest)
    for wrong in ("", code[:-1], code + "x", "é"):
        with pytest.raises(Unauthenticated):
            await links.require(wrong)
    await links.require(f" {code}\n")
    clock.advance(GOOD_FOR_S)
    with pytest.raises(Unauthenticated):
        await links.require(code)
    again = await made(links)
    await PeopleStore(database, clock).add("somebody", password=Secret(PASSWORD))
    with pytest.raises(Unauthenticated):
        await links.redeem(again, "other", "", Secret(PASSWORD))


async def test_the_first_person_is_signed_in_and_on_record_and_the_code_is_nowhere(
    listener: Listener, browser: Browser
) -> None:
    code = await code_of(listener)
    form = {"code": code, "name": "ada", "title": "Ada", "password": PASSWORD}
    answer, page = await browser.send("POST", "/setup", form | {"password": "short"})
    assert (answer.status, "12 to 1024" in page, 'value="ada"' in page) == (400, True, True)
    assert code not in page
    answer, _ = await browser.send("POST", "/setup", form)
    assert (answer.status, answer.headers["location"]) == (303, "/first-run")
    _, page = await browser.send("GET", "/first-run")
    assert "ada signs in with a password" in page
    assert '<a href="/new-person">another person</a>' in page

    folder = listener.settings.path(listener.settings.audit.directory)
    records = [row.projected.record async for row in segment_rows(folder)]
    assert [record.action for record in records] == ["person.added", "session.began"]
    assert code not in str(records)
    assert PASSWORD not in str(records)
    again, page = await browser.send("POST", "/setup", form | {"name": "eve"})
    assert again.status == 400
    assert "The first person already exists" in page


@pytest.mark.parametrize("name", [*HOSTILE, "", "Not A Name"])
async def test_a_name_that_is_none_is_said_and_costs_nothing(
    listener: Listener, browser: Browser, name: str
) -> None:
    code = await code_of(listener)
    form = {"code": code, "name": name, "password": PASSWORD}
    answer, page = await browser.send("POST", "/setup", form)
    assert answer.status == 400
    assert "<script>alert" not in page
    answer, _ = await browser.send("POST", "/setup", form | {"name": "ada"})
    assert answer.status == 303


async def test_the_link_fills_its_code_in_and_leaves_no_trace_in_the_address(
    listener: Listener,
) -> None:
    code = await code_of(listener)
    async with window(listener, width=390) as seen:
        page = seen.page
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await seen.open(f"/setup#{code}")
        await come_true(page, "document.getElementById('field-code').value !== ''")
        assert await seen.violations() == []
        assert "#" not in page.url
        assert not any(code in url for url in asked)
        await page.fill("#field-name", "ada")
        await page.fill("#field-password", PASSWORD)
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/first-run")
        assert re.search(r"1 of 5", await page.inner_text("main"))
        assert await seen.violations() == []
        assert seen.problems == []


async def test_a_second_link_in_the_tab_of_an_ended_one_fills_in_its_own_code(
    listener: Listener,
) -> None:
    """Only what stands behind the # changes then: its code stayed in the address, and unread."""
    code = await code_of(listener)
    async with window(listener) as seen:
        page = seen.page
        await seen.open("/setup#ended")
        await come_true(page, "document.getElementById('field-code').value === 'ended'")
        await page.evaluate("(code) => location.assign(`#${code}`)", code)
        await come_true(page, f"document.getElementById('field-code').value === '{code}'")
        assert "#" not in page.url
        assert seen.problems == []


async def test_who_is_there_already_is_sent_to_the_sign_in(
    listener: Listener, browser: Browser
) -> None:
    await person(listener, "ann", "viewer")
    _, page = await browser.send("GET", "/setup")

    assert 'href="/sign-in"' in page
    assert "<form" not in page
