"""A certified OpenID provider ends sessions here, and is told which of its own to end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import jwt
import pytest
from sqlalchemy import func, select

from gateway.clock import StoppedClock, SystemClock
from gateway.oversight.access import Grant
from gateway.store.identity.people import PeopleStore
from gateway.store.schema.tables import admin_sessions
from tests.admin.chromium import window
from tests.admin.listener import ON_BOTH, Browser, Listener, browsing
from tests.admin.openid_provider import CLIENT, SECRET, OpenIdProvider, Visit, fetched
from tests.admin.test_deeds import deeds


pytestmark = [pytest.mark.anyio, pytest.mark.either, fetched]
World = tuple[Listener, OpenIdProvider]


@asynccontextmanager
async def world(
    folder: Path, database_url: str, *, names_sessions: bool = True
) -> AsyncIterator[World]:
    """A listener and its provider, by the same clock."""
    secret = folder / "oidc.secret"
    secret.touch(mode=0o600)
    secret.write_text(SECRET)
    program = folder / "provider"
    program.mkdir()
    listener = Listener(folder, database_url)
    provider = OpenIdProvider(program, listener.url, names_sessions=names_sessions)
    async with provider:
        more = f'[oidc]\nissuer = "{provider.issuer}"\nclient_id = "{CLIENT}"\n'
        more += 'client_secret = { file = "oidc.secret" }\n'
        listener.config_file.write_text(listener.config_file.read_text() + more)
        listener.clock = StoppedClock(SystemClock().utc_us())
        async with listener:
            yield listener, provider


@asynccontextmanager
async def visiting(
    listener: Listener, provider: OpenIdProvider
) -> AsyncIterator[tuple[Browser, Visit]]:
    """A browser, as the listener and as the provider see it."""
    jar = aiohttp.CookieJar(unsafe=True)
    async with browsing(listener) as browser, aiohttp.ClientSession(cookie_jar=jar) as session:
        yield browser, Visit(session, provider)


async def is_known(browser: Browser) -> bool:
    """Signed in, though without any role."""
    answer, _ = await browser.send("GET", "/")
    assert answer.status in (303, 403)
    return answer.status == 403


@ON_BOTH
async def test_who_signs_out_at_the_provider_is_signed_out_here_and_nobody_else(
    tmp_path: Path, listener_url: str
) -> None:
    async with (
        world(tmp_path, listener_url) as (listener, provider),
        visiting(listener, provider) as (ann, at_provider),
        visiting(listener, provider) as (anns_other, elsewhere),
        visiting(listener, provider) as (bob, of_bob),
    ):
        assert await at_provider.sign_in(ann, "ann") == 200
        assert await elsewhere.sign_in(anns_other, "ann") == 200
        assert await of_bob.sign_in(bob, "bob") == 200
        assert [await is_known(each) for each in (ann, anns_other, bob)] == [True, True, True]
        await at_provider.end(f"{provider.issuer}/session/end")

        assert await provider.said() == {"told": "ann"}
        assert [await is_known(each) for each in (ann, anns_other, bob)] == [False, True, True]
        (ended,) = [each for each in await deeds(listener) if each.action == "session.ended"]
        assert (ended.actor, ended.status) == ("oidc-provider", "ok")
        assert "oidc-" in ended.detail["before"]


@ON_BOTH
async def test_a_provider_that_names_no_session_ends_all_of_the_subject(
    tmp_path: Path, listener_url: str
) -> None:
    async with (
        world(tmp_path, listener_url, names_sessions=False) as (listener, provider),
        visiting(listener, provider) as (ann, at_provider),
        visiting(listener, provider) as (anns_other, elsewhere),
        visiting(listener, provider) as (bob, of_bob),
    ):
        for browser, visit, name in (
            (ann, at_provider, "ann"),
            (anns_other, elsewhere, "ann"),
            (bob, of_bob, "bob"),
        ):
            assert await visit.sign_in(browser, name) == 200
        await at_provider.end(f"{provider.issuer}/session/end")

        assert await provider.said() == {"told": "ann"}
        assert [await is_known(each) for each in (ann, anns_other, bob)] == [False, False, True]


@ON_BOTH
async def test_signing_out_here_names_the_session_there_and_leaves_no_token_behind(
    tmp_path: Path, listener_url: str
) -> None:
    async with (
        world(tmp_path, listener_url) as (listener, provider),
        visiting(listener, provider) as (ann, at_provider),
    ):
        await at_provider.sign_in(ann, "ann")
        _, page = await ann.send("POST", "/sign-out")
        onward, _ = await ann.send("GET", "/sign-out/there")
        url = onward.headers["location"]
        (hint,) = parse_qs(urlsplit(url).query)["id_token_hint"]
        claims = jwt.decode(hint, options={"verify_signature": False})
        again, _ = await ann.send("GET", "/sign-out/there")
        back = await at_provider.end(url)

        assert (claims["sub"], claims["aud"]) == ("ann", CLIENT)
        assert hint not in page
        assert again.headers["location"] == "/sign-in"
        assert back == f"{listener.url}/sign-in"
        assert await provider.said() == {"told": "ann"}
        async with listener.database() as database, database.reading() as connection:
            query = select(func.count()).select_from(admin_sessions)
            assert (await connection.execute(query)).scalar_one() == 0


async def test_a_browser_is_led_through_the_providers_sign_out_and_back(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with (
        world(tmp_path, sqlite_url) as (listener, provider),
        window(listener, scripts=False) as opened,
    ):
        page = opened.page
        await page.goto(f"{listener.url}/sign-in/openid")
        await page.fill("input[name=login]", "ann")
        await page.fill("input[name=password]", "anything")
        await page.click("button[type=submit]")
        await page.click("text=Continue")
        await page.wait_for_url(f"{listener.url}/")
        async with listener.database() as database:
            store = PeopleStore(database, listener.clock)
            (person,) = await store.listed()
            await store.grant(person.name, Grant("viewer", "*"))
        await page.goto(f"{listener.url}/viewing")
        await page.click("details.menu.right summary")
        await page.click("text=Sign out")
        await page.wait_for_url(f"{provider.issuer}/session/end*")
        (hint,) = parse_qs(urlsplit(page.url).query)["id_token_hint"]
        await page.click("text=Yes, sign me out")
        await page.wait_for_url(f"{listener.url}/sign-in")

        assert await provider.said() == {"told": "ann"}
        assert jwt.decode(hint, options={"verify_signature": False})["sub"] == "ann"
        await page.goto(f"{listener.url}/")
        assert urlsplit(page.url).path == "/sign-in"
