"""A whole admin listener on a real socket, in a thread of its own, and a browser-like client."""

import asyncio
import io
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import aiohttp
import pytest
import uvicorn
from anyio import to_thread
from litestar import Litestar

from admin.access import COOKIE, CSRF_HEADER, csrf_of
from admin.app import build_application
from gateway.audit.projecting.projector import Projector
from gateway.cli.init import prepare
from gateway.clock import StoppedClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.identity import Peppers
from gateway.money.budgets import Limit
from gateway.secrets.credentials import admin_token, pepper
from gateway.store.engine import Database, open_database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.money.leases import LeaseTable
from gateway.types import AuditRecord
from tests.admin.handlers_known import built
from tests.databases import BOTH
from tests.gateway.audit.samples import running


ON_BOTH = pytest.mark.parametrize("listener_url", BOTH, indirect=True)
"""Of a test whose SQL is not the same on both databases."""
CONFIG = """
[database]
url = "{database_url}"
[providers.engine]
kind = "engine"
base_url = "http://127.0.0.1:1"
jurisdiction = "in-house"
[providers.managed]
kind = "openai"
jurisdiction = "us"
credential = {{ env = "GATEWRIGHT_TEST_ABSENT_KEY" }}
[targets.house]
provider = "engine"
model = "house"
catalogue = "in-house"
[targets.claude]
provider = "managed"
model = "gpt-6.2-sol"
"""


class Listener:
    """An asynchronous context manager: serving while it is entered."""

    def __init__(
        self,
        folder: Path,
        database_url: str,
        more: str = "",
        *,
        data_plane_url: str = "http://127.0.0.1:1",
    ) -> None:
        self.folder = folder
        self.clock = StoppedClock()
        self.config_file = folder / "gatewright.toml"
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        first = f'admin_url = "{self.url}"\ndata_plane_url = "{data_plane_url}"\n'
        text = f"{first}{CONFIG.format(database_url=database_url)}{more}"
        self.config_file.write_text(text)
        self.settings: Settings
        self.application: Litestar
        self.token = ""
        self._server: uvicorn.Server
        self._thread: threading.Thread

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()
        return f"http://{host}:{port}"

    async def __aenter__(self) -> Self:
        try:
            return await self._start()
        except BaseException:
            self._socket.close()
            raise

    async def _start(self) -> Self:
        await prepare(self.folder)
        self.settings = load_settings(self.config_file)
        self.token = admin_token(self.settings).reveal()
        self.application = built(lambda: build_application(self.settings, self.clock))
        self._server = uvicorn.Server(
            uvicorn.Config(self.application, log_config=None, access_log=False, lifespan="on")
        )
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the admin listener did not start"
            await asyncio.sleep(0.01)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.should_exit = True
        await to_thread.run_sync(self._thread.join)
        self._socket.close()

    @asynccontextmanager
    async def database(self) -> AsyncIterator[Database]:
        database = open_database(self.settings.database_url)
        try:
            yield database
        finally:
            await database.close()

    async def issue_key(self, name: str, organisation: str = "acme") -> str:
        """A key's id."""
        async with self.database() as database:
            store = KeyStore(database, Peppers({1: pepper(self.settings)}), self.clock)
            new = NewKey(Place(organisation, "research", "assistant"), name, "a test")
            return (await store.issue(new)).key_id

    async def revoke_key(self, key_id: str) -> None:
        async with self.database() as database:
            await KeyStore(database, Peppers({1: pepper(self.settings)}), self.clock).revoke(key_id)

    async def limit(self, account: str, limit_microusd: int) -> None:
        async with self.database() as database:
            await LeaseTable(database, self.clock).set_limit(Limit(account, limit_microusd, "day"))

    async def record(self, *records: AuditRecord) -> None:
        """Write records as a worker does, and project them into the database."""
        directory = self.folder / "records"
        async with self.database() as database, running(directory) as log:
            for record in records:
                await log.append(record)
            await Projector(directory, DatabaseAuditSink(database)).catch_up()


class Browser:
    """Keeps cookies, follows nothing, and says where its forms were sent from."""

    def __init__(self, listener: Listener, session: aiohttp.ClientSession) -> None:
        self._listener = listener
        self._session = session

    @property
    def session(self) -> aiohttp.ClientSession:
        """For requests that need more than `send` gives."""
        return self._session

    @property
    def session_id(self) -> str:
        """What the cookie holds; empty while nobody is signed in."""
        for cookie in self._session.cookie_jar:
            if cookie.key == COOKIE:
                return cookie.value
        return ""

    async def send(
        self,
        method: str,
        path: str,
        form: dict[str, str] | None = None,
        body: str = "",
        **headers: str,
    ) -> tuple[aiohttp.ClientResponse, str]:
        """The answer and its text; underscores in a header's name become dashes."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if method == "POST":
            mark = csrf_of(self.session_id)
            given = {
                "origin": self._listener.url,
                "sec-fetch-site": "same-origin",
                CSRF_HEADER: mark,
            } | given
        async with self._session.request(
            method,
            f"{self._listener.url}{path}",
            data=io.BytesIO(body.encode()) if body else form,
            headers={name: value for name, value in given.items() if value},
            allow_redirects=False,
        ) as answer:
            return answer, await answer.text()

    async def fetch(self, path: str) -> tuple[int, str, bytes]:
        """Status, media type and bytes of a file."""
        async with self._session.get(f"{self._listener.url}{path}") as answer:
            return answer.status, answer.content_type, await answer.read()

    async def sign_in(self, token: str = "") -> aiohttp.ClientResponse:
        form = {"token": token or self._listener.token}
        answer, _ = await self.send("POST", "/sign-in", form)
        return answer

    async def sign_in_as(self, name: str, password: str) -> aiohttp.ClientResponse:
        answer, _ = await self.send("POST", "/sign-in", {"name": name, "password": password})
        return answer

    async def is_signed_in(self) -> bool:
        answer, _ = await self.send("GET", "/")
        return answer.status == 200


@asynccontextmanager
async def browsing(listener: Listener) -> AsyncIterator[Browser]:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        yield Browser(listener, session)
