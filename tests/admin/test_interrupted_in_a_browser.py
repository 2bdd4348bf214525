"""A proof or a session that runs out while somebody fills a form in: nothing typed is lost."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from admin.access import STEP_UP_S
from gateway.oversight.access import Grant
from gateway.store.custody.orders import Custody
from gateway.store.engine import Database
from gateway.store.identity.people import PeopleStore
from gateway.store.identity.sessions import IDLE_S
from tests.admin.chromium import Window, window
from tests.admin.compliance.archive import PASSWORD, converse
from tests.admin.listener import Listener
from tests.admin.provider_of_a_test import CLIENT, Liar
from tests.admin.seeding import person


pytestmark = pytest.mark.anyio
AT = "/o/acme/compliance/reveals"
REASON = 'Twenty minutes of words, <b>a & b</b> "quoted",\nin two lines: ünïcode ₹.'


async def filled(seen: Window, wanted: str) -> None:
    """The form of a reveal, as somebody fills it in who has proved a moment ago who they are."""
    await seen.open(f"{AT}/new?request={wanted}")
    await seen.page.fill("#field-reason", REASON)
    await seen.page.fill("[name=ticket]", "T & 1")
    await seen.page.fill("[name=minutes]", "7")


async def reasons(listener: Listener) -> list[tuple[str, str, int]]:
    async with listener.database() as database:
        found = await _custody(database, listener).reveals(0, "acme")
    return [(each.reason.replace("\r\n", "\n"), each.ticket, each.minutes) for each in found]


def _custody(database: Database, listener: Listener) -> Custody:
    log: Any = None
    return Custody(database, log, listener.clock)


@pytest.mark.parametrize("ended_s", [STEP_UP_S + 1, IDLE_S + 1])
async def test_what_was_typed_is_sent_after_a_password_and_one_press(
    listener: Listener, ended_s: float
) -> None:
    (wanted,) = await converse(listener, ["ann"])
    await person(listener, "cora", "compliance")
    async with window(listener) as seen:
        await seen.sign_in("cora", PASSWORD)
        await filled(seen, wanted)
        listener.clock.advance(ended_s)
        await seen.page.click("button:has-text('Send the request')")
        await seen.page.wait_for_selector("#password")
        for password in ("not the one it is", PASSWORD):
            if await seen.page.is_visible("#name"):
                await seen.page.fill("#name", "cora")
            await seen.page.fill("#password", password)
            await seen.page.click("main form:has(#password) button")
            await seen.page.wait_for_load_state()
        assert await reasons(listener) == [], "nothing is sent by itself"
        assert await seen.faults() == []
        await seen.page.click("button:has-text('Send it now')")
        await seen.page.wait_for_selector("text=T & 1")
        assert seen.problems == []
    assert await reasons(listener) == [(REASON, "T & 1", 7)]


@pytest.fixture
def provider() -> Iterator[Liar]:
    liar = Liar()
    liar.forge = lambda claims: liar.honest(claims | {"auth_time": claims["iat"]})
    yield liar
    liar.stop()


@pytest.fixture
async def vouched(tmp_path: Path, sqlite_url: str, provider: Liar) -> AsyncIterator[Listener]:
    secret = tmp_path / "oidc.secret"
    secret.touch(mode=0o600)
    secret.write_text(f"{CLIENT} and a half")
    more = f'[oidc]\nissuer = "{provider.issuer}"\nclient_id = "{CLIENT}"\n'
    more += 'client_secret = { file = "oidc.secret" }\n'
    async with Listener(tmp_path, sqlite_url, more) as listener:
        yield listener


async def by_provider(page: Any) -> None:
    """What a person does at the provider's page, and on the way back."""
    await page.click("text=It is me")
    await page.wait_for_url(re.compile(r"^[^?]*/$"))


@pytest.mark.long
@pytest.mark.parametrize("ended_s", [STEP_UP_S + 1, IDLE_S + 1])
async def test_what_was_typed_stays_while_the_provider_proves_who_it_is(
    vouched: Listener, ended_s: float
) -> None:
    (wanted,) = await converse(vouched, ["ann"])
    async with window(vouched) as seen:
        await seen.open("/sign-in")
        await seen.page.click("text=Sign in with your organisation")
        await by_provider(seen.page)
        async with vouched.database() as database:
            people = PeopleStore(database, vouched.clock)
            (somebody,) = await people.listed()
            await people.grant(somebody.name, Grant("compliance", "acme"))
        await filled(seen, wanted)
        vouched.clock.advance(ended_s)
        await seen.page.click("button:has-text('Send the request')")
        await seen.page.wait_for_selector("a[target=_blank]")
        assert await seen.faults() == []
        assert await seen.violations() == []
        async with seen.page.context.expect_page() as opened:
            await seen.page.click("a[target=_blank]")
        await by_provider(await opened.value)
        await seen.page.click("button:has-text('go on here')")
        await seen.page.click("button:has-text('Send it now')")
        await seen.page.wait_for_selector("text=T & 1")
    assert await reasons(vouched) == [(REASON, "T & 1", 7)]
