"""Nobody sees a page without a session; a session comes from the token and ends by itself."""

import ast
import re
import secrets
from http.cookies import SimpleCookie
from pathlib import Path

import aiohttp
import pytest
from litestar import Litestar
from msgspec.structs import replace

from admin.access import COOKIE
from admin.app import BODY_BYTES_MAX, build_application
from admin.screens import ORGANISATION_COOKIE
from admin.sign_in.pages import Brake
from admin.sign_in.protection import ALWAYS_ENCRYPTED, SAFE_METHODS, SECURITY_HEADERS
from admin.sign_in.token_sessions import TokenSessions
from gateway.secrets.secret import Secret
from gateway.store.identity.people import PeopleStore, Proved
from gateway.store.identity.sessions import ABSOLUTE_S, IDLE_S
from tests.admin.listener import Browser, Listener, browsing
from tests.certificates import Authority


pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]

PUBLIC = {
    ("GET", "/sign-in"),
    ("HEAD", "/sign-in"),
    ("POST", "/sign-in"),
    ("GET", "/static/{digest:str}/{name:path}"),
    ("HEAD", "/static/{digest:str}/{name:path}"),
    ("GET", "/health/live"),
    ("HEAD", "/health/live"),
    ("GET", "/metrics"),
    ("HEAD", "/metrics"),
    ("GET", "/health/ready"),
    ("HEAD", "/health/ready"),
    # While nobody exists who could sign in, and only with the code that a terminal printed.
    ("GET", "/setup"),
    ("HEAD", "/setup"),
    ("POST", "/setup"),
    # Only with the code of a link that somebody who manages people handed over.
    ("GET", "/invitation"),
    ("HEAD", "/invitation"),
    ("POST", "/invitation"),
}


def _routes(application: Litestar) -> list[tuple[str, str]]:
    return [
        (str(method), route.path)
        for route in application.routes
        for method in sorted(getattr(route, "methods", ()))
        if method != "OPTIONS"
    ]


def _address(path: str) -> str:
    """Some address of a declared path."""
    return re.sub(r"\{[^}]*:int\}", "1", re.sub(r"\{[^}]*:(?:str|path)\}", "x", path))


def _cookie(answer: aiohttp.ClientResponse) -> str:
    return answer.headers.get("set-cookie", "")


async def test_the_token_opens_the_overview(browser: Browser) -> None:
    answer = await browser.sign_in()

    assert (answer.status, answer.headers["location"]) == (303, "/")
    assert await browser.is_signed_in()


async def test_a_wrong_token_gives_no_session_and_says_so(browser: Browser) -> None:
    answer, page = await browser.send("POST", "/sign-in", {"token": "wrong"})

    assert answer.status == 401
    assert "That is not correct" in page
    assert "set-cookie" not in answer.headers
    assert not await browser.is_signed_in()


async def test_a_form_without_a_token_is_refused_without_a_trace_of_frames(
    browser: Browser,
) -> None:
    answer, page = await browser.send("POST", "/sign-in", {"other": "x"})

    assert answer.status == 400
    assert "This form is not complete." in page


async def test_an_overlong_form_is_refused(browser: Browser) -> None:
    body, kind = "token=" + "x" * (BODY_BYTES_MAX + 1), "application/x-www-form-urlencoded"
    answer, _ = await browser.send("POST", "/sign-in", body=body, content_type=kind)

    assert answer.status == 413


async def test_what_is_tried_as_a_name_is_not_remembered_however_long(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand names of two megabytes would be more memory than there is."""
    remembered: list[str] = []

    def may_try(_: Brake, name: str) -> bool:
        remembered.append(name)
        return True

    monkeypatch.setattr(Brake, "may_try", may_try)
    answer, _ = await browser.send("POST", "/sign-in", {"name": "n" * 1_000_000, "password": "p"})

    assert answer.status == 401
    assert [len(name) for name in remembered] == [64]


async def test_a_token_that_was_replaced_ends_the_sessions_that_it_began(
    tmp_path: Path, sqlite_url: str
) -> None:
    """As the operations page says it is done after a leak: another token, and a restart."""
    async with Listener(tmp_path, sqlite_url) as before, browsing(before) as browser:
        await browser.sign_in()
        assert await browser.is_signed_in()
        cookie = f"{COOKIE}={browser.session_id}"
    (tmp_path / "var" / "admin.token").write_text(secrets.token_urlsafe(32))
    async with Listener(tmp_path, sqlite_url) as after, browsing(after) as browser:
        assert after.token != before.token
        answer, _ = await browser.send("GET", "/", cookie=cookie)

    assert (answer.status, answer.headers["location"]) == (303, "/sign-in")


def test_an_id_says_which_token_it_comes_from_under_which_pepper() -> None:
    token, pepper = Secret("a token of some length"), b"p" * 32
    session_id = TokenSessions(token, pepper).new_id()

    assert TokenSessions(token, pepper).is_ours(session_id), "also after a restart"
    assert not TokenSessions(Secret("another of some length"), pepper).is_ours(session_id)
    assert not TokenSessions(token, b"q" * 32).is_ours(session_id)
    for other in ("", ".", session_id[:-1], f"x{session_id}", session_id.partition(".")[0], "é.é"):
        assert not TokenSessions(token, pepper).is_ours(other)


async def test_the_cookie_is_closed_to_scripts_and_other_sites(browser: Browser) -> None:
    morsel = SimpleCookie(_cookie(await browser.sign_in()))[COOKIE]

    assert morsel["httponly"]
    assert morsel["samesite"].lower() == "strict"
    assert morsel["path"] == "/"
    assert not morsel["domain"]
    assert not morsel["expires"]


async def test_behind_a_proxy_that_speaks_tls_the_cookie_is_secure(
    listener: Listener, browser: Browser
) -> None:
    form = {"token": listener.token}
    plain, _ = await browser.send("POST", "/sign-in", form)
    proxied, _ = await browser.send("POST", "/sign-in", form, x_forwarded_proto="https")

    assert "secure" not in _cookie(plain).lower()
    assert "secure" in _cookie(proxied).lower()


async def test_where_people_come_by_https_no_cookie_ever_goes_in_plain(
    listener: Listener, browser: Browser
) -> None:
    """Whatever a proxy says of the connection, or does not say."""
    settings = replace(listener.settings, admin_url="https://admin.gatewright.example")
    encrypted = build_application(settings, listener.clock).state[ALWAYS_ENCRYPTED]
    form, state = {"token": listener.token}, listener.application.state
    assert (encrypted, state[ALWAYS_ENCRYPTED]) == (True, False)
    state[ALWAYS_ENCRYPTED] = encrypted
    for protocol in ("", "http", "https"):
        answer, _ = await browser.send("POST", "/sign-in", form, x_forwarded_proto=protocol)
        assert "secure" in _cookie(answer).lower(), protocol


async def test_every_cookie_of_a_page_is_kept_off_plain_connections(
    listener: Listener, browser: Browser
) -> None:
    await listener.issue_key("a first one")
    await browser.sign_in()
    listener.application.state[ALWAYS_ENCRYPTED] = True
    # What cookies there are is read from the sources: some are set on a way of their own.
    made = [
        call
        for file in (ROOT / "admin").rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Cookie"
    ]
    said = [
        {each.arg: ast.unparse(each.value) for each in call.keywords}.get("secure") for call in made
    ]
    page, _ = await browser.send("GET", "/")

    assert said == ["came_encrypted(request)"] * 4
    assert ORGANISATION_COOKIE in _cookie(page)
    assert "secure" in _cookie(page).lower()


@pytest.mark.parametrize(
    ("admin_url", "is_strict"),
    [("https://admin.gatewright.example", True), ("", False)],
    ids=["a public name", "its own address"],
)
async def test_a_listener_with_a_certificate_takes_no_form_from_a_page_in_clear(
    listener: Listener, browser: Browser, admin_url: str, *, is_strict: bool
) -> None:
    pair = Authority(listener.folder).issue()
    own = replace(
        listener.settings.admin,
        tls_certificate_file=str(pair.chain),
        tls_key_file=str(pair.key),
    )
    settings = replace(listener.settings, admin_url=admin_url, admin=own)
    state = build_application(settings, listener.clock).state
    listener.application.state.update(state)

    form = {"token": listener.token}
    in_clear, _ = await browser.send("POST", "/sign-in", form)
    encrypted, _ = await browser.send(
        "POST", "/sign-in", form, origin=listener.url.replace("http:", "https:")
    )

    assert (in_clear.status, encrypted.status) == (403, 303)
    assert "secure" in _cookie(encrypted).lower()
    assert ("strict-transport-security" in encrypted.headers) == is_strict


async def test_an_idle_session_ends(listener: Listener, browser: Browser) -> None:
    await browser.sign_in()
    listener.clock.advance(IDLE_S - 1)
    assert await browser.is_signed_in()
    listener.clock.advance(IDLE_S + 1)

    assert not await browser.is_signed_in()


async def test_a_session_in_constant_use_ends_too(listener: Listener, browser: Browser) -> None:
    await browser.sign_in()
    pauses = round(ABSOLUTE_S / (IDLE_S - 1))
    for _ in range(pauses):
        listener.clock.advance(IDLE_S - 1)
        assert await browser.is_signed_in()
    listener.clock.advance(IDLE_S - 1)

    assert not await browser.is_signed_in()


async def test_a_clock_that_goes_back_makes_no_session_last_longer(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    listener.clock.jump(-20.0)
    assert await browser.is_signed_in()
    listener.clock.jump(-3600.0)
    assert not await browser.is_signed_in()


async def test_signing_out_ends_the_session_for_whoever_copied_the_cookie(
    listener: Listener, browser: Browser
) -> None:
    copied = SimpleCookie(_cookie(await browser.sign_in()))[COOKIE].value
    async with browsing(listener) as thief:
        before, _ = await thief.send("GET", "/", cookie=f"{COOKIE}={copied}")
        answer, _ = await browser.send("POST", "/sign-out")
        after, _ = await thief.send("GET", "/", cookie=f"{COOKIE}={copied}")

    assert answer.headers["location"] == "/sign-in"
    assert (before.status, after.status) == (200, 303)


async def test_no_route_but_the_public_ones_answers_without_a_session(
    listener: Listener, browser: Browser
) -> None:
    answered = set()
    for method, path in _routes(listener.application):
        form: dict[str, str] | None = {} if method == "POST" else None
        answer, _ = await browser.send(method, _address(path), form)
        is_sent_away = answer.headers.get("location", "").partition("?")[0] == "/sign-in"
        # Who was sending a form gets the page itself, so that the form can come along.
        if not (is_sent_away or answer.status == 401):
            answered.add((method, path))

    assert answered == PUBLIC


async def test_every_answer_carries_the_security_headers(
    listener: Listener, browser: Browser
) -> None:
    asked = [*_routes(listener.application), ("GET", "/nothing-here"), ("PUT", "/sign-in")]
    for is_signed_in in (False, True):
        if is_signed_in:
            await browser.sign_in()
        for method, path in asked:
            form: dict[str, str] | None = {} if method == "POST" else None
            answer, _ = await browser.send(method, _address(path), form)
            for name, value in SECURITY_HEADERS.items():
                assert answer.headers.getall(name) == [value], (method, path, name)


async def test_a_form_of_another_origin_changes_nothing(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    for headers in (
        {"origin": "https://elsewhere.example"},
        {"origin": "null"},
        {"origin": listener.url, "sec_fetch_site": "same-site"},
        {"origin": "", "sec_fetch_site": "cross-site"},
    ):
        answer, page = await browser.send("POST", "/sign-out", {}, **headers)
        assert answer.status == 403, headers
        assert "sent from another site" in page
        assert await browser.is_signed_in()


async def test_every_route_that_changes_something_refuses_other_origins(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    changing = [each for each in _routes(listener.application) if each[0] not in SAFE_METHODS]
    assert changing
    for method, path in changing:
        elsewhere = "https://elsewhere.example"
        answer, _ = await browser.send(method, _address(path), {}, origin=elsewhere)
        assert answer.status == 403, path


async def test_a_client_that_is_no_browser_can_sign_in(
    browser: Browser, listener: Listener
) -> None:
    form = {"token": listener.token}
    answer, _ = await browser.send("POST", "/sign-in", form, origin="", sec_fetch_site="")

    assert answer.status == 303


async def test_a_password_that_is_changed_while_it_is_proved_opens_nothing(
    listener: Listener, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever changes it ends all sessions; one that began right after would go on."""
    old, new = secrets.token_hex(12), secrets.token_hex(12)
    async with listener.database() as database:
        await PeopleStore(database, listener.clock).add("ann", password=Secret(old))
    proved = PeopleStore.by_password

    async def slowly(self: PeopleStore, name: str, password: Secret[str]) -> Proved | None:
        found = await proved(self, name, password)
        await self.set_password("ann", Secret(new))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(PeopleStore, "by_password", slowly)
        answer = await browser.sign_in_as("ann", old)
    assert (answer.status, _cookie(answer)) == (401, "")
    assert (await browser.sign_in_as("ann", new)).status == 303
