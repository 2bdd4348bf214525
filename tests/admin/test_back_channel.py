"""Sign-outs that a provider tells the listener of: what is believed, and what never is."""

import base64
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs

from admin.sign_in.back_channel import AT_ONCE_MAX, BODY_BYTES_MAX, PATH
from admin.sign_in.logout_tokens import EVENT, FRESH_S, TOKEN_CHARS_MAX
from admin.sign_in.oidc import LEEWAY_S
from gateway.clock import StoppedClock, SystemClock
from gateway.errors import AuditUnavailable
from gateway.oversight.deeds import Deeds
from gateway.secrets.issuer_keys import KEYS_EVERY_S, KEYS_FOR_S
from gateway.secrets.secret import Secret
from gateway.store.identity.people import PeopleStore
from gateway.telemetry import Event
from tests.admin.listener import ON_BOTH, Browser, Listener, browsing
from tests.admin.provider_of_a_test import CLIENT, Liar
from tests.admin.test_access import PASSWORD
from tests.admin.test_deeds import deeds


pytestmark = [pytest.mark.anyio, pytest.mark.either]
Claims = dict[str, Any]
FORM = "application/x-www-form-urlencoded"


@pytest.fixture
async def listener(tmp_path: Path, listener_url: str, liar: Liar) -> AsyncIterator[Listener]:
    more = f'[oidc]\nissuer = "{liar.issuer}"\nclient_id = "{CLIENT}"\n'
    listener = Listener(tmp_path, listener_url, more)
    listener.clock = liar.clock = StoppedClock(SystemClock().utc_us())
    async with listener:
        yield listener


async def sign_in(browser: Browser, liar: Liar, subject: str = "ann", sid: str = "s1") -> int:
    """By the provider, which calls its own session so."""
    liar.forge = lambda claims: liar.honest({**claims, "sub": subject, "sid": sid})
    begun, _ = await browser.send("GET", "/sign-in/openid")
    asked = parse_qs(urlsplit(begun.headers["location"]).query)
    liar.nonce = asked["nonce"][0]
    query = urlencode({"state": asked["state"][0], "code": "code"})
    answer, _ = await browser.send("GET", f"/sign-in/openid/back?{query}")
    return answer.status


async def is_known(browser: Browser) -> bool:
    """Signed in, though without any role."""
    answer, _ = await browser.send("GET", "/")
    assert answer.status in (303, 403)
    return answer.status == 403


def logout(listener: Listener, liar: Liar) -> Claims:
    now_s = listener.clock.utc_us() // 1_000_000
    return {
        "iss": liar.issuer,
        "aud": CLIENT,
        "sub": "ann",
        "sid": "s1",
        "iat": now_s,
        "exp": now_s + 120,
        "jti": secrets.token_hex(8),
        "events": {EVENT: {}},
    }


def signed(liar: Liar, claims: Claims, **header: Any) -> str:
    given = {"kid": liar.key_id, "typ": "logout+jwt"} | header
    return jwt.encode(claims, liar.key, "RS256", headers=given)


async def tell(listener: Listener, token: str, **more: str) -> tuple[int, Any, Any]:
    """As a provider does, which is no browser: status, headers and what the JSON says."""
    return await post(listener, urlencode({"logout_token": token} | more))


async def post(listener: Listener, body: str, media_type: str = FORM) -> tuple[int, Any, Any]:
    async with browsing(listener) as stranger:
        answer, text = await stranger.send(
            "POST",
            PATH,
            body=body or " ",
            content_type=media_type,
            origin="",
            sec_fetch_site="",
            x_gatewright_csrf="",
        )
        return answer.status, answer.headers, msgspec.json.decode(text) if text else None


def without(claims: Claims, *names: str) -> Claims:
    return {name: value for name, value in claims.items() if name not in names}


def symmetric(liar: Liar, claims: Claims) -> str:
    """Signed with what everybody knows: the provider's public key as the secret of an HMAC."""
    secret = liar.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"1"}').rstrip(b"=")
    body = base64.urlsafe_b64encode(msgspec.json.encode(claims)).rstrip(b"=")
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    mark = base64.urlsafe_b64encode(algorithm.sign(header + b"." + body, secret)).rstrip(b"=")
    return b".".join((header, body, mark)).decode()


def unlike(**claims: Any) -> Callable[[Liar, Claims], str]:
    return lambda liar, honest: signed(liar, honest | claims)


def lacking(*names: str) -> Callable[[Liar, Claims], str]:
    return lambda liar, honest: signed(liar, without(honest, *names))


def moved(**seconds: int) -> Callable[[Liar, Claims], str]:
    """Of another moment, relative to now."""

    def forge(liar: Liar, honest: Claims) -> str:
        return signed(liar, honest | {name: honest["iat"] + by for name, by in seconds.items()})

    return forge


STALE = "not of this moment"
MISSING = "a claim is missing"
UNSIGNED = "not signed as it has to be"
OTHER_KIND = "a token of another kind"
NO_EVENT = "no event of a sign-out"
NAMELESS = "a claim that says nothing"
HOSTILE: dict[str, tuple[Callable[[Liar, Claims], str], str]] = {
    "another key under the name of the right one": (
        lambda liar, claims: jwt.encode(claims, liar.other_key, "RS256", headers={"kid": "1"}),
        "not signed by the provider",
    ),
    "a changed claim": (
        lambda liar, claims: signed(liar, claims).replace(
            signed(liar, claims).split(".")[1], signed(liar, {**claims, "sub": "b"}).split(".")[1]
        ),
        "not signed by the provider",
    ),
    "an unknown key": (
        lambda liar, claims: signed(liar, claims, kid="2"),
        "signed with a key that the provider does not name",
    ),
    "no signature": (lambda _, claims: jwt.encode(claims, "", "none"), UNSIGNED),
    "a public key as a secret": (symmetric, UNSIGNED),
    "another issuer": (unlike(iss="https://other.example"), "from another issuer"),
    "another audience": (unlike(aud="other"), "for another audience"),
    "other audiences": (unlike(aud=["other", "more"]), "for another audience"),
    "a nonce": (unlike(nonce="n"), OTHER_KIND),
    "a nonce that is nothing": (unlike(nonce=None), OTHER_KIND),
    "an access token": (lambda liar, claims: signed(liar, claims, typ="at+jwt"), OTHER_KIND),
    "an identity token": (
        lambda liar, claims: liar.honest(without(claims, "events") | {"nonce": liar.nonce}),
        MISSING,
    ),
    "an old one": (moved(iat=-FRESH_S - LEEWAY_S - 2), STALE),
    "one from the future": (moved(iat=LEEWAY_S + 2, exp=500), STALE),
    "an expired one": (moved(iat=-200, exp=-LEEWAY_S - 2), STALE),
    "one that is not good yet": (moved(nbf=LEEWAY_S + 2), STALE),
    "one whose time is no number": (unlike(iat="now"), STALE),
    "one whose time is yes": (unlike(iat=True), STALE),
    "one whose time has no end": (unlike(exp=float("inf")), STALE),
    "one whose time is beyond any": (unlike(exp=10**400), STALE),
    "one whose time is none": (unlike(exp=float("nan")), STALE),
    "no end": (lacking("exp"), MISSING),
    "no time": (lacking("iat"), MISSING),
    "no number": (lacking("jti"), MISSING),
    "no events": (lacking("events"), MISSING),
    "another event": (unlike(events={"https://other.example/event": {}}), NO_EVENT),
    "an event that is a text": (unlike(events={EVENT: "yes"}), NO_EVENT),
    "events in a list": (unlike(events=[EVENT]), NO_EVENT),
    "nobody": (lacking("sub", "sid"), MISSING),
    "somebody who is a number": (unlike(sub=7), NAMELESS),
    "a session without a name": (unlike(sid=""), NAMELESS),
    "a session of endless name": (unlike(sid="s" * 600), NAMELESS),
    "a session with a NUL": (unlike(sid="s1\x00"), NAMELESS),
    "a session with half a pair": (unlike(sid="s1\ud800"), NAMELESS),
    "a number with half a pair": (unlike(jti="\udfff"), NAMELESS),
    "a long token": (unlike(more="m" * (TOKEN_CHARS_MAX * 3 // 4)), "not a token"),
    "nothing": (lambda *_: "", "not a token"),
    "words": (lambda *_: "a.b.c", "not a token"),
    "letters of elsewhere": (lambda *_: "ä.b.c", "not a token"),
    "a list": (lambda *_: "W10.W10.W10", "not a token"),
}


async def test_a_token_that_is_not_the_providers_word_for_now_ends_nothing(
    listener: Listener, browser: Browser, liar: Liar
) -> None:
    """One listener for all of them: what one leaves behind must not help the next."""
    assert await sign_in(browser, liar) == 200
    for name, (forge, reason) in HOSTILE.items():
        seen = len(await deeds(listener))
        claims = logout(listener, liar)
        status, headers, said = await tell(listener, forge(liar, claims))

        wanted = {"error": "invalid_request", "error_description": reason}
        assert (status, said) == (400, wanted), name
        assert headers["cache-control"] == "no-store", name
        assert headers["content-type"].startswith("application/json"), name
        assert await is_known(browser), name
        assert len(await deeds(listener)) == seen, name
        # The same without what is wrong with it is believed: nothing else kept it from being so.
        claims |= {"sub": "bob"}
        assert (await tell(listener, signed(liar, claims)))[0] == 200, name
    assert (await tell(listener, signed(liar, logout(listener, liar))))[0] == 200
    assert not await is_known(browser)


MISSHAPEN: tuple[tuple[Callable[[str], tuple[str, str]], str], ...] = (
    (lambda token: (urlencode({"token": token}), FORM), "not one token"),
    (lambda token: (urlencode([("logout_token", token)] * 2), FORM), "not one token"),
    (lambda token: (f'{{"logout_token":"{token}"}}', "application/json"), "not a form"),
    (lambda token: (f"logout_token={token}", "text/plain"), "not a form"),
    (lambda token: (f"logout_token={token}&x=%ff", FORM), "not a form"),
    (lambda token: (f"logout_token={token}" + "&x=" * 20, FORM), "not a form"),
    (lambda token: (f"logout_token={token}&x=%00", FORM), "not a form that is read here"),
    (
        lambda token: (f"logout_token={token}&x={'x' * BODY_BYTES_MAX}", FORM),
        "not a form that is read here",
    ),
)


async def test_what_is_no_form_with_one_token_is_refused_before_it_is_looked_into(
    listener: Listener, browser: Browser, liar: Liar
) -> None:
    await sign_in(browser, liar)
    asked = len(liar.asked)
    for make, reason in MISSHAPEN:
        body, media_type = make(signed(liar, logout(listener, liar)))
        status, headers, said = await post(listener, body, media_type)

        wanted = {"error": "invalid_request", "error_description": reason}
        assert (status, said) == (400, wanted), body[-30:]
        assert headers["cache-control"] == "no-store"
        assert len(liar.asked) == asked
    assert await is_known(browser)


@ON_BOTH
async def test_a_sign_out_ends_the_session_it_names_and_is_on_record(
    listener: Listener, browser: Browser, liar: Liar
) -> None:
    async with browsing(listener) as second, browsing(listener) as bob:
        await sign_in(browser, liar, "ann", "s1")
        await sign_in(second, liar, "ann", "s2")
        await sign_in(bob, liar, "bob", "s3")
        # Somebody else's session under ann's name is neither's.
        mixed = logout(listener, liar) | {"sid": "s3"}
        assert (await tell(listener, signed(liar, mixed)))[0] == 200
        assert [await is_known(each) for each in (browser, second, bob)] == [True, True, True]

        status, headers, said = await tell(listener, signed(liar, logout(listener, liar)))
        assert (status, said, headers["cache-control"]) == (200, None, "no-store")
        assert [await is_known(each) for each in (browser, second, bob)] == [False, True, True]
        by_sid = without(logout(listener, liar), "sub") | {"sid": "s3", "aud": [CLIENT, "more"]}
        assert (await tell(listener, signed(liar, by_sid)))[0] == 200
        assert [await is_known(each) for each in (second, bob)] == [True, False]
        of_all = without(logout(listener, liar), "sid")
        assert (await tell(listener, signed(liar, of_all, typ="JWT")))[0] == 200
        assert not await is_known(second)
    ended = [each for each in await deeds(listener) if each.action == "session.ended"]
    assert [(each.actor, each.status) for each in ended] == [("oidc-provider", "ok")] * 4
    named = [msgspec.json.decode(each.detail["before"]) for each in ended]
    assert [len(each["people"]) for each in named] == [0, 1, 1, 1]
    assert [each["session"] for each in named] == ["one", "one", "one", "all"]


@ON_BOTH
async def test_a_session_that_the_provider_gave_no_name_ends_with_any_of_its_person(
    listener: Listener, browser: Browser, liar: Liar
) -> None:
    await sign_in(browser, liar, "ann", "")
    assert (await tell(listener, signed(liar, logout(listener, liar) | {"sid": "s9"})))[0] == 200
    assert not await is_known(browser)


@ON_BOTH
async def test_a_session_by_password_is_none_of_the_providers(
    listener: Listener, browser: Browser, liar: Liar
) -> None:
    async with listener.database() as database:
        store, subject = PeopleStore(database, listener.clock), f"{liar.issuer}|ann"
        await store.add("ann", password=Secret(PASSWORD), subject=subject)
    async with browsing(listener) as by_provider:
        await sign_in(by_provider, liar)
        await browser.sign_in_as("ann", PASSWORD)
        of_all = without(logout(listener, liar), "sid")
        assert (await tell(listener, signed(liar, of_all)))[0] == 200
        assert [await is_known(each) for each in (by_provider, browser)] == [False, True]


@ON_BOTH
async def test_a_token_is_taken_once_and_stays_refused_when_it_is_forgotten(
    listener: Listener, browser: Browser, liar: Liar
) -> None:
    token = signed(liar, logout(listener, liar) | {"exp": 2**33})
    assert (await tell(listener, token))[0] == 200
    await sign_in(browser, liar, "ann", "s2")
    for late_s, reason in (
        (1, "This sign-out was heard before."),
        (FRESH_S + LEEWAY_S - 2, "This sign-out was heard before."),
        (LEEWAY_S + 2, STALE),
    ):
        listener.clock.advance(late_s)
        status, _, said = await tell(listener, token)
        assert (status, said["error_description"]) == (400, reason)
        # What is forgotten is forgotten when the next one comes.
        other = logout(listener, liar) | {"sub": "bob"}
        assert (await tell(listener, signed(liar, other)))[0] == 200
    assert await is_known(browser)


async def test_a_key_that_the_provider_changed_is_asked_for_and_an_old_one_not_believed_for_long(
    listener: Listener, browser: Browser, liar: Liar
) -> None:
    # Of another session: a word of the same second would end the sign-in that follows.
    other = logout(listener, liar) | {"sid": "s0"}
    assert (await tell(listener, signed(liar, other)))[0] == 200
    assert await sign_in(browser, liar) == 200
    old = liar.key
    liar.key, liar.key_id = liar.other_key, "2"
    listener.clock.advance(KEYS_EVERY_S + 1)
    claims = logout(listener, liar) | {"sub": "bob"}
    assert (await tell(listener, signed(liar, claims)))[0] == 200
    stolen = jwt.encode(logout(listener, liar), old, "RS256", headers={"kid": "1"})
    assert (await tell(listener, stolen))[0] == 400
    assert await is_known(browser)
    # A key withdrawn is not believed for ever, where its successor has the same name.
    liar.key = old
    listener.clock.advance(KEYS_FOR_S + 1)
    assert (await tell(listener, signed(liar, logout(listener, liar))))[0] == 200
    assert not await is_known(browser)


async def test_whatever_strangers_send_the_provider_is_asked_for_its_keys_only_so_often(
    listener: Listener, liar: Liar
) -> None:
    for number in range(20):
        token = signed(liar, logout(listener, liar), kid=f"made up {number}")
        assert (await tell(listener, token))[0] == 400
    assert liar.asked.count("/keys") == 1
    listener.clock.advance(KEYS_EVERY_S + 1)
    for number in range(20):
        token = signed(liar, logout(listener, liar), kid=f"made up {number}")
        assert (await tell(listener, token))[0] == 400
    assert liar.asked.count("/keys") == 2
    assert (await tell(listener, signed(liar, logout(listener, liar))))[0] == 200


async def test_a_provider_that_is_away_vouches_for_nothing(
    listener: Listener, browser: Browser, liar: Liar
) -> None:
    await sign_in(browser, liar)
    token = signed(liar, logout(listener, liar))
    liar.stop()
    status, _, said = await tell(listener, token)
    assert (status, said["error"]) == (400, "invalid_request")
    assert await is_known(browser)


async def test_a_strangers_token_does_not_cost_the_provider_its_own_while_it_is_away(
    listener: Listener, browser: Browser, liar: Liar
) -> None:
    await sign_in(browser, liar)
    assert (await tell(listener, signed(liar, logout(listener, liar) | {"sub": "bob"})))[0] == 200
    token = signed(liar, logout(listener, liar))
    liar.stop()
    listener.clock.advance(KEYS_EVERY_S + 1)
    assert (await tell(listener, signed(liar, logout(listener, liar), kid="made up")))[0] == 400
    assert (await tell(listener, token))[0] == 200
    assert not await is_known(browser)


async def test_strangers_get_so_many_answers_a_second_and_the_provider_is_heard_all_the_same(
    listener: Listener, browser: Browser, liar: Liar
) -> None:
    await sign_in(browser, liar)
    with capture_logs() as logs:
        found = [(await tell(listener, "a.b.c"))[0] for _ in range(AT_ONCE_MAX + 2)]
    assert found == [400] * AT_ONCE_MAX + [429] * 2
    assert (
        len([each for each in logs if each["event"] == Event.ADMIN_LOGOUT_REFUSED]) == AT_ONCE_MAX
    )
    token = signed(liar, logout(listener, liar))
    assert (await tell(listener, token))[0] == 200
    assert not await is_known(browser)
    status, headers, said = await tell(listener, token)
    assert (status, headers["retry-after"], said["error"]) == (429, "1", "invalid_request")
    listener.clock.advance(1.0)
    assert (await tell(listener, token))[0] == 400


async def test_what_cannot_be_recorded_ends_nothing_and_may_be_sent_again(
    listener: Listener, browser: Browser, liar: Liar, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object, **__: object) -> None:
        raise AuditUnavailable("the disk is full")

    await sign_in(browser, liar)
    token = signed(liar, logout(listener, liar))
    with monkeypatch.context() as patched:
        patched.setattr(Deeds, "record", full)
        status, _, said = await tell(listener, token)
    assert (status, said["error"]) == (400, "server_error")
    assert "disk" not in said["error_description"]
    assert await is_known(browser)
    assert (await tell(listener, token))[0] == 200
    assert not await is_known(browser)


async def test_where_no_provider_is_configured_nobody_listens(
    tmp_path: Path, sqlite_url: str
) -> None:
    (folder := tmp_path / "plain").mkdir()
    async with Listener(folder, sqlite_url) as plain, browsing(plain) as stranger:
        answer, _ = await stranger.send("POST", PATH, {"logout_token": "a.b.c"})
        assert answer.status == 404


async def test_who_signs_in_anew_leaves_no_session_behind(
    listener: Listener, browser: Browser, liar: Liar
) -> None:
    await sign_in(browser, liar)
    former = browser.session_id
    await sign_in(browser, liar)
    by_provider = browser.session_id
    await browser.sign_in()
    async with listener.database() as database:
        store = PeopleStore(database, listener.clock)
        assert await store.session(former) is None
        assert await store.session(by_provider) is None
    assert await browser.is_signed_in()
