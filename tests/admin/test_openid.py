"""Signing in by a real OpenID provider on loopback, and by ones that lie."""

import base64
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import aiohttp
import jwt
import pytest
from yarl import URL

from admin.access import COOKIE, STEP_UP_S
from admin.app import open_id_client
from admin.sign_in.begun import BEGUN_FOR_S
from admin.sign_in.oidc import LEEWAY_S, OpenIdClient, Vouched
from gateway.clock import StoppedClock
from gateway.configuration.sections import OidcSettings
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid, Unauthenticated
from gateway.oversight.access import Grant
from gateway.secrets.secret import Secret
from gateway.store.identity.people import PeopleStore
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.provider_of_a_test import CLIENT, PEPPER, Liar


pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]


# --- a real provider ----------------------------------------------------------------------------


@pytest.fixture
def issuer() -> Iterator[str]:
    import oidc_provider_mock

    with oidc_provider_mock.run_server_in_thread(require_nonce=True) as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
async def listener(tmp_path: Path, sqlite_url: str, issuer: str) -> AsyncIterator[Listener]:
    secret = tmp_path / "oidc.secret"
    secret.touch(mode=0o600)
    secret.write_text(f"{CLIENT} and a half")
    more = f'[oidc]\nissuer = "{issuer}"\nclient_id = "{CLIENT}"\n'
    more += 'client_secret = { file = "oidc.secret" }\n'
    listener = Listener(tmp_path, sqlite_url, more)
    async with listener:
        yield listener


async def approve(url: str, subject: str) -> str:
    """What a person does at the provider; where it sends the browser then."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data={"sub": subject}, allow_redirects=False) as answer,
    ):
        assert answer.status == 302
        return answer.headers["location"]


async def sign_in(browser: Browser, subject: str, to: str = "") -> tuple[int, str]:
    begun, _ = await browser.send("GET", f"/sign-in/openid{to}")
    back = urlsplit(await approve(begun.headers["location"], subject))
    answer, page = await browser.send("GET", f"{back.path}?{back.query}")
    return answer.status, page


async def test_a_person_signs_in_sees_nothing_and_then_what_the_role_shows(
    listener: Listener, browser: Browser, issuer: str
) -> None:
    assert (await sign_in(browser, "ann"))[0] == 200
    before, _ = await browser.send("GET", "/")
    async with listener.database() as database:
        store = PeopleStore(database, listener.clock)
        (person,) = await store.listed()
        await store.grant(person.name, Grant("viewer", "*"))
    after, _ = await browser.send("GET", "/")

    assert (before.status, after.status) == (403, 200)
    async with browsing(listener) as again:
        await sign_in(again, "ann")
        assert await again.is_signed_in()
    async with listener.database() as database:
        assert len(await PeopleStore(database, listener.clock).listed()) == 1


async def test_who_has_no_role_is_told_who_they_are_and_signs_out(
    listener: Listener, browser: Browser
) -> None:
    await sign_in(browser, "ann")
    page = ""
    for path, status in (("/", 403), ("/people", 403), ("/o/acme/costs", 404)):
        answer, page = await browser.send("GET", path)
        assert answer.status == status
        assert "You are signed in as <strong>ann</strong>" in page
        assert re.search(r"<code>oidc-\w+</code>", page), "by which a role is given"
        assert 'href="/"' not in page, "the overview is as closed"
    found = re.search(r'action="(/sign-out[^"]*)"', page)
    assert found is not None
    assert (await browser.send("POST", found[1]))[0].status == 200
    assert not await browser.is_signed_in()


@pytest.mark.parametrize(
    ("to", "page"),
    [
        ("?to=%2Fo%2Facme%2Fcosts%3Fby%3Dmodel", "/o/acme/costs?by=model"),
        ("?to=%2F%2Felsewhere.example", "/"),
        ("?to=https%3A%2F%2Felsewhere.example", "/"),
        ("", "/"),
    ],
)
async def test_the_provider_leads_back_to_the_page_that_was_wanted(
    listener: Listener, browser: Browser, to: str, page: str
) -> None:
    _, form = await browser.send("GET", f"/sign-in{to}")
    (way,) = re.findall(r'href="(/sign-in/openid[^"]*)"', form)
    assert unquote(way) == f"/sign-in/openid{unquote(to) if page != '/' else ''}"
    begun, _ = await browser.send("GET", f"/sign-in/openid{to}")
    assert "acme" not in begun.headers["location"], "the provider is not told"
    status, onward = await sign_in(browser, "ann", to)
    assert status == 200
    assert f'content="0;url={page}"' in onward


async def test_signing_out_ends_the_session_here_and_leads_to_the_provider(
    listener: Listener, browser: Browser, issuer: str
) -> None:
    await sign_in(browser, "ann")
    session_id = browser.session_id
    answer, page = await browser.send("POST", "/sign-out")
    async with listener.database() as database:
        kept = await PeopleStore(database, listener.clock).session(session_id)
    onward, _ = await browser.send("GET", "/sign-out/there")
    there = onward.headers["location"]
    asked = parse_qs(urlsplit(there).query)
    (hint,) = asked.pop("id_token_hint")

    assert (answer.status, kept) == (200, None)
    assert 'href="/sign-out/there"' in page
    assert issuer not in page
    assert jwt.decode(hint, options={"verify_signature": False})["sub"] == "ann"
    assert there.startswith(f"{issuer}/oauth2/end_session?")
    assert asked == {
        "client_id": [CLIENT],
        "post_logout_redirect_uri": [f"{listener.url}/sign-in"],
    }
    assert any('gatewright_admin=""' in each for each in answer.headers.getall("set-cookie"))
    async with aiohttp.ClientSession() as session:
        async with session.get(there) as form:
            confirmed = re.search(r'action="([^"]+)"', text := await form.text())
            assert (form.status, confirmed is not None) == (200, True), text
        data = {"redirect_uri": asked["post_logout_redirect_uri"][0]}
        url = f"{issuer}/oauth2/end_session/confirm"
        async with session.post(url, data=data, allow_redirects=False) as back:
            assert back.headers["location"] == f"{listener.url}/sign-in"


async def test_a_provider_that_is_away_or_has_no_sign_out_holds_nobody_back(
    tmp_path: Path, sqlite_url: str
) -> None:
    import oidc_provider_mock

    secret = tmp_path / "oidc.secret"
    secret.touch(mode=0o600)
    secret.write_text(f"{CLIENT} and a half")
    with oidc_provider_mock.run_server_in_thread(require_nonce=True) as server:
        issuer = f"http://localhost:{server.server_port}"
        more = f'[oidc]\nissuer = "{issuer}"\nclient_id = "{CLIENT}"\n'
        more += 'client_secret = { file = "oidc.secret" }\n'
        listener = Listener(tmp_path, sqlite_url, more)
        async with listener, browsing(listener) as browser:
            assert (await sign_in(browser, "ann"))[0] == 200
            known = browser.session_id
    # Another process, which never spoke with the provider, and cannot any more.
    again = Listener(tmp_path, sqlite_url, more)
    async with again, browsing(again) as browser:
        browser.session.cookie_jar.update_cookies({COOKIE: known}, URL(again.url))
        assert browser.session_id == known
        answer, _ = await browser.send("POST", "/sign-out")
        assert (answer.status, answer.headers["location"]) == (303, "/sign-in")
        async with again.database() as database:
            assert await PeopleStore(database, again.clock).session(known) is None


async def test_what_the_provider_is_asked_holds_a_challenge_a_state_and_a_nonce(
    browser: Browser,
) -> None:
    seen = []
    for _ in range(2):
        begun, _ = await browser.send("GET", "/sign-in/openid")
        seen.append(parse_qs(urlsplit(begun.headers["location"]).query))
        cookie = begun.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert re.search("samesite=lax", cookie, re.IGNORECASE)

    for asked in seen:
        assert asked["response_type"] == ["code"]
        assert asked["code_challenge_method"] == ["S256"]
        assert asked["client_id"] == [CLIENT]
        assert asked["max_age"] == ["43200"]
    for name in ("state", "nonce", "code_challenge"):
        assert seen[0][name] != seen[1][name]


async def test_a_code_that_somebody_else_began_or_that_was_used_is_worth_nothing(
    listener: Listener, browser: Browser
) -> None:
    begun, _ = await browser.send("GET", "/sign-in/openid")
    back = urlsplit(await approve(begun.headers["location"], "ann"))
    async with browsing(listener) as other:
        without, _ = await other.send("GET", f"{back.path}?{back.query}")
        await other.send("GET", "/sign-in/openid")
        with_own, _ = await other.send("GET", f"{back.path}?{back.query}")
    own, _ = await browser.send("GET", f"{back.path}?{back.query}")
    again, _ = await browser.send("GET", f"{back.path}?{back.query}")

    assert [each.status for each in (without, with_own, own, again)] == [401, 401, 200, 401]


async def test_a_fresh_proof_by_the_provider_is_one_that_it_asked_for_just_now(
    listener: Listener, browser: Browser
) -> None:
    """Who left a browser signed in at the provider left no proof of anything there."""
    await sign_in(browser, "ann")
    async with listener.database() as database:
        store = PeopleStore(database, listener.clock)
        (person,) = await store.listed()
        await store.grant(person.name, Grant("security_admin", "*"))
        fresh = await store.session(browser.session_id)
        listener.clock.advance(STEP_UP_S + 1)
        refused, page = await browser.send("GET", "/new-person")
        old = await store.session(await store.begin(person.name, STEP_UP_S + 1))
        unknown = await store.session(await store.begin(person.name, None))
        begun, _ = await browser.send("GET", "/sign-in/openid/again")
        back = urlsplit(await approve(begun.headers["location"], "ann"))
        await browser.send("GET", f"{back.path}?{back.query}")
        proved = await store.session(browser.session_id)
    now_us = listener.clock.utc_us()
    answer, _ = await browser.send("GET", "/new-person")
    asked = parse_qs(urlsplit(begun.headers["location"]).query)

    assert (asked["prompt"], asked["max_age"]) == (["login"], ["0"])
    assert (refused.status, answer.status) == (403, 200)
    assert 'href="/sign-in/openid/again"' in page
    assert fresh is not None
    assert proved is not None
    assert now_us - proved.proved_us < STEP_UP_S * 1_000_000
    assert old is not None
    assert unknown is not None
    assert (now_us - old.proved_us) // 1_000_000 == STEP_UP_S + 1
    assert unknown.proved_us == 0


# --- providers that lie -------------------------------------------------------------------------


async def vouched(liar: Liar, clock: StoppedClock | None = None, late_s: float = 0.0) -> str:
    return (await _finished(liar, clock, late_s)).subject


async def _finished(
    liar: Liar, clock: StoppedClock | None = None, late_s: float = 0.0, iss: str = ""
) -> Vouched:
    clock = clock or StoppedClock()
    settings = OidcSettings(issuer=liar.issuer, client_id=CLIENT)
    client = OpenIdClient(settings, None, clock, "http://127.0.0.1/back", pepper=PEPPER)
    try:
        url, ticket = await client.begin()
        asked = parse_qs(urlsplit(url).query)
        liar.nonce, liar.challenge = asked["nonce"][0], asked["code_challenge"][0]
        clock.advance(late_s)
        return await client.finish(ticket, asked["state"][0], "code", iss)
    finally:
        await client.close()


async def test_an_honest_token_is_believed_and_the_verifier_fits_the_challenge(liar: Liar) -> None:
    assert await vouched(liar) == f"{liar.issuer}|ann"
    digest = hashlib.sha256(liar.verifier.encode()).digest()
    assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == liar.challenge


LIES: dict[str, Callable[[Liar, dict[str, Any]], str]] = {
    "another key": lambda liar, claims: jwt.encode(
        claims, liar.other_key, "RS256", headers={"kid": "1"}
    ),
    "an unknown key": lambda liar, claims: jwt.encode(
        claims, liar.key, "RS256", headers={"kid": "2"}
    ),
    "no signature": lambda _, claims: jwt.encode(claims, "", "none"),
    "a symmetric signature": lambda _, claims: jwt.encode(
        claims, b"x" * 64, "HS256", headers={"kid": "1"}
    ),
    "another audience": lambda liar, claims: liar.honest({**claims, "aud": "other"}),
    "another issuer": lambda liar, claims: liar.honest({**claims, "iss": "https://other.example"}),
    "another nonce": lambda liar, claims: liar.honest({**claims, "nonce": "old"}),
    "no nonce": lambda liar, claims: liar.honest(
        {name: value for name, value in claims.items() if name != "nonce"}
    ),
    "an expired one": lambda liar, claims: liar.honest({**claims, "exp": claims["iat"] - 3600}),
    "one for another party": lambda liar, claims: liar.honest({**claims, "azp": "other"}),
    "one for several that says not for whom": lambda liar, claims: liar.honest(
        {**claims, "aud": [CLIENT, "other"]}
    ),
    "nobody in particular": lambda liar, claims: liar.honest({**claims, "sub": ""}),
    "one from the future": lambda liar, claims: liar.honest(
        {**claims, "iat": claims["iat"] + 3600, "exp": claims["exp"] + 3600}
    ),
    "no token at all": lambda *_: "",
    "not a token": lambda *_: "a.b.c",
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_provider_that_lies_is_not_believed(liar: Liar, lie: str) -> None:
    liar.forge = lambda claims: LIES[lie](liar, claims)
    with pytest.raises(Unauthenticated) as caught:
        await vouched(liar)

    assert caught.value.message == "The identity provider did not vouch for this sign-in."


async def test_of_a_name_that_people_chose_only_what_can_be_kept_and_seen_is_taken(
    liar: Liar,
) -> None:
    liar.forge = lambda claims: liar.honest({**claims, "name": "A\x00n\ud800n\u202e\n" + "x" * 300})
    assert (await _finished(liar)).name == "Ann" + "x" * 197
    for subject in ("a\x00b", "\ud800", "a\nb"):
        liar.forge = lambda claims, subject=subject: liar.honest({**claims, "sub": subject})  # type: ignore[misc]
        with pytest.raises(Unauthenticated):
            await vouched(liar)


async def test_a_sign_in_that_took_too_long_is_begun_anew(liar: Liar) -> None:
    with pytest.raises(Unauthenticated):
        await vouched(liar, late_s=BEGUN_FOR_S + 1)


def _with(liar: Liar, more: dict[str, Any], claims: dict[str, Any]) -> str:
    return liar.honest(claims | more)


@pytest.mark.parametrize(
    ("auth_time", "ago_s"), [(-301, 301.0), (-1, 1.0), (0, 0.0), (3600, 0.0), (None, None)]
)
async def test_how_old_a_proof_is_is_told_by_the_providers_own_clock(
    liar: Liar, auth_time: int | None, ago_s: float | None
) -> None:
    for skew_s in (0, 1 - LEEWAY_S, LEEWAY_S - 5):

        def forge(claims: dict[str, Any], skew_s: int = skew_s) -> str:
            told = {**claims, "iat": claims["iat"] + skew_s}
            return liar.honest(
                told if auth_time is None else {**told, "auth_time": told["iat"] + auth_time}
            )

        liar.forge = forge
        assert (await _finished(liar)).proved_ago_s == ago_s
    if auth_time is None:
        for other in ("just now", True, [1]):
            more = {"auth_time": other}
            liar.forge = partial(_with, liar, more)
            assert (await _finished(liar)).proved_ago_s is None


async def test_a_key_that_the_provider_changed_is_used_and_its_old_one_is_not(liar: Liar) -> None:
    await vouched(liar)
    liar.key, liar.other_key = liar.other_key, liar.key
    assert await vouched(liar) == f"{liar.issuer}|ann"
    liar.forge = lambda claims: LIES["another key"](liar, claims)
    with pytest.raises(Unauthenticated):
        await vouched(liar)


async def test_a_providers_answers_may_come_in_pieces(liar: Liar) -> None:
    liar.pieces = 3
    assert await vouched(liar) == f"{liar.issuer}|ann"


async def test_an_answer_that_says_it_is_from_another_provider_is_not_taken(liar: Liar) -> None:
    assert (await _finished(liar, iss=liar.issuer)).subject
    with pytest.raises(Unauthenticated):
        await _finished(liar, iss="https://other.example")


@pytest.mark.parametrize("issuer", ["http://idp.example", "http://10.0.0.1/", "ftp://localhost.x"])
def test_a_provider_beyond_this_machine_is_spoken_to_over_tls_only(issuer: str) -> None:
    settings = Settings(
        source="a test",
        folder="",
        oidc=OidcSettings(issuer=issuer, client_id=CLIENT),
        admin_url="https://admin.example",
    )
    with pytest.raises(ConfigurationInvalid, match="must be https"):
        open_id_client(settings, StoppedClock())


@pytest.mark.parametrize(
    "ends_at", [None, "", 7, "javascript:alert(1)", "/here", "http://[", "ftp://x.example/"]
)
async def test_only_an_address_of_a_page_is_where_to_sign_out(liar: Liar, ends_at: object) -> None:
    liar.more = {} if ends_at is None else {"end_session_endpoint": ends_at}
    settings = OidcSettings(issuer=liar.issuer, client_id=CLIENT)
    client = OpenIdClient(settings, None, StoppedClock(), "http://127.0.0.1/back", pepper=PEPPER)
    try:
        assert await client.leave(Secret("a token")) == ""
    finally:
        await client.close()
