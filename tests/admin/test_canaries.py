"""Marked secrets and personal data go through the control plane; they are only where they belong.

Everything that an administrator types, holds or is shown once is marked; then pages are used as
they are meant to be, used wrongly, and broken from inside. Afterwards nothing of it is in a log, in
an answer to somebody else, in an export, in the database or in a file, but where it was put.
"""

import io
import logging
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from admin.access import csrf_of
from gateway.oversight.access import ROLES, Grant
from gateway.secrets.secret import Secret
from gateway.store.identity.people import PeopleStore
from tests.admin.compliance.archive import SAID, converse
from tests.admin.listener import Browser, Listener, browsing
from tests.debug_log import debug_log
from tests.identifiers import aadhaar, card


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
AT, API = "/o/acme", "/api/organisations/acme"


def canary(name: str) -> str:
    return f"canary{name}{secrets.token_hex(8)}"


RIGHT, WRONG, GUESSED, JOINED = (canary(name) for name in ("right", "wrong", "guessed", "joined"))
CLIENT, HOOK, VAULT, SINK = (canary(name) for name in ("client", "hook", "vault", "sink"))
SEALED, NEXT, UPSTREAM = (canary(name) for name in ("sealed", "next", "upstream"))
SOUGHT, SUBJECT, PASTED, FAULT = (canary(name) for name in ("sought", "subject", "pasted", "fault"))
DRAFTED = f"{canary('drafted')} {aadhaar(7)} {card(7)}"
NOWHERE = (RIGHT, WRONG, GUESSED, JOINED, CLIENT, HOOK, VAULT, SINK, SEALED, NEXT, UPSTREAM)
"""Secrets: no page ever shows one of these, and nothing keeps one but the files they came in."""
TYPED = (SOUGHT, SUBJECT, PASTED, FAULT)
"""What was asked with: pages may show it to who typed it, and nothing keeps it."""
FILES = {"oidc.secret": CLIENT, "hook.secret": HOOK, "vault.secret": VAULT, "sink.secret": SINK}
SETTINGS = """
[secrets]
pepper = { file = "var/pepper.key" }
[vault]
url = "http://127.0.0.1:1"
role = "gatewright"
credential = { file = "vault.secret" }
[oidc]
issuer = "http://127.0.0.1:1"
client_id = "gatewright"
client_secret = { file = "oidc.secret" }
[alerts]
url = "http://127.0.0.1:1/hook"
credential = { file = "hook.secret" }
[sinks.lake]
kind = "http"
url = "http://127.0.0.1:1/lake"
credential = { file = "sink.secret" }
"""
POLICY = f"""name = "acme"
version = 1
description = "{DRAFTED}"
"""


@pytest.fixture
def log() -> Iterator[io.BytesIO]:
    with debug_log() as written:
        yield written


@pytest.fixture
async def listener(
    log: io.BytesIO, tmp_path: Path, listener_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Listener]:
    assert not log.getvalue()
    monkeypatch.setenv("GATEWRIGHT_TEST_ABSENT_KEY", UPSTREAM)
    for name, value in FILES.items():
        path = tmp_path / name
        path.touch(mode=0o600)
        path.write_text(value)
    async with Listener(tmp_path, listener_url, SETTINGS) as running:
        yield running


class Drive:
    """Uses the control plane, and keeps every answer."""

    def __init__(self, listener: Listener, browser: Browser) -> None:
        self.listener, self.browser = listener, browser
        self.answers: list[tuple[str, int, str]] = []
        self.shown: set[str] = set()
        """What was shown once, on purpose."""

    async def send(self, method: str, path: str, form: Any = None, body: str = "") -> str:
        answer, text = await self.browser.send(method, path, form, body)
        self.answers.append((f"{method} {path.partition('?')[0]}", answer.status, text))
        return text

    async def sign_in(self) -> None:
        for typed in (WRONG, GUESSED):
            await self.send("POST", "/sign-in", {"name": "root", "password": typed})
            # Whoever is in a hurry types a password into the wrong field.
            await self.send("POST", "/sign-in", {"name": typed, "password": "x"})
            await self.send("POST", "/sign-in", {"token": typed})
        await self.send("POST", "/sign-in", {"name": "root", "password": RIGHT})
        await self.send("POST", "/prove", {"password": WRONG})
        await self.send("POST", "/prove", {"password": RIGHT})
        assert await self.browser.is_signed_in()

    async def secrets(self) -> None:
        name = "/api/credentials/open-ai"
        await self.send("POST", name, body=f'{{"value":"{SEALED}"}}')
        await self.send("POST", f"{name}/next", body=f'{{"value":"{NEXT}","expected_version":1}}')
        await self.send("POST", name, body=f'{{"value":"{SEALED}","expected_version":99}}')
        await self.send("POST", "/models/credentials/set", {"name": "B A D", "value": SEALED})
        await self.send("POST", "/models/credentials/set", {"name": "other", "value": SEALED})

    async def keys(self) -> None:
        order = '{"workspace":"research","project":"bot","name":"new"}'
        issued = await self.send("POST", f"{API}/keys", body=order)
        form = {"workspace": "research", "project": "bot", "name": "typed", "expires_days": "9"}
        page = await self.send("POST", f"{AT}/keys/new", form)
        made = await self.send("POST", "/new-person", {"name": "newcomer", "title": "New"})
        code = re.search(r"/invitation#([\w.-]+)", made)
        assert code is not None
        self.shown |= {each for text in (issued, page) for each in re.findall(r"gw_live_\w+", text)}
        self.shown.add(code[1])
        assert len(self.shown) == 3
        async with browsing(self.listener) as other:
            form = {"code": code[1], "password": "short"}
            await other.send("POST", "/invitation", form)
            await other.send("POST", "/invitation", form | {"password": JOINED})

    async def questions(self) -> None:
        for query in (f"find?find={SOUGHT}", f"traffic?q={SOUGHT}", f"audit?q={SOUGHT}"):
            await self.send("GET", f"{AT}/{query}")
        await self.send("GET", f"{AT}/keys?q=nothing%3A{SOUGHT}")
        await self.send("POST", f"{API}/compliance/subjects", body=f'{{"user":"{SUBJECT}"}}')
        body = f'{{"messages":[{{"role":"user","content":"{PASTED}"}}]'
        for whole in (body, body + "}"):
            await self.send("POST", f"{AT}/policies/simulator", {"body": whole})
        form = {"text": POLICY, "revision": "0"}
        await self.send("POST", f"{AT}/policies/organisation/edit", form)
        await self.send(
            "POST", f"{API}/policies/organisation/check", body=f'{{"text":"{DRAFTED}"}}'
        )

    async def readings(self) -> str:
        """What is carried away, and what describes the installation."""
        paths = (
            *("/api/system/configuration", "/api/system/diagnostics", "/api/credentials"),
            *("/api/credentials/open-ai/versions", "/api/people", "/api/openapi.json"),
            *(f"{AT}/audit/export?form=ndjson", f"{AT}/traffic/export", f"{AT}/costs/export.csv"),
            *("/system/configuration", "/models/credentials", "/audit", f"{AT}/audit", "/"),
        )
        return "".join([await self.send("GET", path) for path in paths])

    async def crashes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def crash(*given: object, **named: object) -> Any:
            raise RuntimeError(f"{FAULT} {given} {named}")

        name = "/api/credentials/open-ai"
        order = '{"workspace":"research","project":"bot","name":"new"}'
        broken: tuple[tuple[str, str, str, Any, str], ...] = (
            (
                "gateway.store.identity.people.PeopleStore.by_password",
                *("POST", "/prove", {"password": RIGHT}, ""),
            ),
            (
                "gateway.store.sealing.sealed_secrets.SealedSecretTable.seal",
                *("POST", name, None, f'{{"value":"{SEALED}","expected_version":1}}'),
            ),
            ("gateway.store.identity.keys.KeyStore.issue", "POST", f"{API}/keys", None, order),
            (
                "admin.compliance.office.Office.search",
                *("POST", f"{API}/compliance/subjects", None, f'{{"user":"{SUBJECT}"}}'),
            ),
            ("admin.finding.finder.Finder.find", "GET", f"{AT}/find?find={SOUGHT}", None, ""),
            (
                "admin.people.reader.PeopleReader.detail",
                *("GET", f"/person/{quote(SOUGHT)}", None, ""),
            ),
        )
        for place, method, path, form, body in broken:
            with monkeypatch.context() as patched:
                patched.setattr(place, crash)
                await self.send(method, path, form, body)
            assert self.answers[-1][1] == 500, (place, self.answers[-1])

    async def reveal(self) -> None:
        (wanted,) = await converse(self.listener, ["zora"])
        form = {"request_id": wanted, "reason": "a complaint", "ticket": "T-1", "minutes": "10"}
        answer, _ = await self.browser.send("POST", f"{AT}/compliance/reveals", form)
        one = answer.headers["location"]
        await self.send("POST", f"{one}/content")
        async with browsing(self.listener) as second:
            await second.sign_in_as("second", RIGHT)
            await second.send("POST", f"{one}/approve")
        answer, page = await self.browser.send("POST", f"{one}/content")
        assert f"{SAID}zora" in page
        await self.send("GET", one)


async def test_nothing_that_an_administrator_holds_is_found_where_it_was_not_put(
    listener: Listener,
    browser: Browser,
    log: io.BytesIO,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    # SQLite's driver tells every parameter where somebody has it told, and nothing of ours does;
    # the server's log of addresses is turned off, but pytest hears it all the same.
    caplog.set_level(logging.INFO, logger="aiosqlite")
    caplog.set_level(logging.WARNING, logger="uvicorn.access")
    await listener.issue_key("first")
    async with listener.database() as database:
        people = PeopleStore(database, listener.clock)
        for name in ("root", "second"):
            await people.add(name, password=Secret(RIGHT))
            for role in ROLES:
                await people.grant(name, Grant(role, "*"))
    drive = Drive(listener, browser)

    await drive.sign_in()
    await drive.secrets()
    await drive.keys()
    await drive.questions()
    await drive.reveal()
    carried = await drive.readings()
    await drive.crashes(monkeypatch)
    await drive.sign_in()
    session = (browser.session_id, csrf_of(browser.session_id))
    await drive.send("GET", "/sign-in/openid")

    files = {
        str(path.relative_to(listener.folder)): path.read_bytes()
        for path in listener.folder.rglob("*")
        if path.is_file() and path.name not in {*FILES, "admin.token"}
    }
    database_files = [files.pop(name) for name in [*files] if name.startswith("gateway.db")]
    logs = log.getvalue() + caplog.text.encode()
    errors = "".join(text for _, status, text in drive.answers if status >= 400).encode()
    every = "".join(text for _, _, text in drive.answers).encode()
    assert b"request:crashed" in logs
    assert logs.count(b"admin:refused") >= 6
    assert len(carried) > 10_000

    kept = {
        **files,
        "logs": logs,
        "database": b"".join(database_files),
        "carried": carried.encode(),
    }
    content = f"{SAID}zora"
    for secret in (*NOWHERE, listener.token, *drive.shown, session[0], content, *TYPED):
        held = [name for name, text in kept.items() if secret.encode() in text]
        assert not held, (secret, held)
    for secret in (*NOWHERE, listener.token, session[0], content):
        assert secret.encode() not in every, secret
    for secret in (*drive.shown, FAULT):
        assert secret.encode() not in errors, secret
    # A draft is kept as it was typed, for whoever edits it; a mark is a part of every own page.
    for typed, places in ((DRAFTED, {**files, "logs": logs}), (session[1], {"logs": logs})):
        found = [name for name, text in places.items() if typed.encode() in text]
        assert not found, (typed, found)
