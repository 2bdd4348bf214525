"""A complete data plane on a real socket, in its own thread, for tests that speak HTTP to it.

Its upstreams are `RecordingUpstream`s of the test: one stands for the in-house engine, the others
for a managed Claude and a managed GPT, so that a test can look at every byte that left.
"""

import asyncio
import secrets
import socket
import threading
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import uvicorn
from anyio import to_thread
from msgspec import structs

from gateway.api.encrypted import encrypted_protocol
from gateway.api.protocol import bounded_protocol
from gateway.app import DataPlane
from gateway.audit.projecting.export import segment_rows
from gateway.cli.init import prepare
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.identity import Peppers
from gateway.money.budgets import Limit, WindowKind
from gateway.pacing import rhythm
from gateway.secrets.certificates import kept_certificate
from gateway.secrets.credentials import pepper
from gateway.store.engine import open_database
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.money.leases import LeaseTable
from gateway.types import AuditRecord, Translation
from tests.newest_sqlite import newest_sqlite
from tests.upstreams import RecordingUpstream


Told = TypeVar("Told")
DEMO = Place("acme", "research", "assistant")
ENGINE_TARGET = "house-model"
CLAUDE_TARGET = "claude-opus-5-5"
CHEAP_CLAUDE_TARGET = "claude-haiku-5-5"
GPT_TARGET = "gpt-6.2-sol"

CONFIG = """
[data_plane]
port = 0
[database]
url = "{database_url}"
[audit]
directory = "var/audit"
worker = "{worker}"
free_bytes_min = 1
{more}
[providers.engine]
kind = "engine"
base_url = "{engine_url}"
jurisdiction = "in-house"
connect_timeout_s = 2.0
[providers.anthropic]
kind = "anthropic"
base_url = "{anthropic_url}"
jurisdiction = "us"
credential = {{ file = "var/upstream.key" }}
{managed}
[providers.openai]
kind = "openai"
base_url = "{openai_url}/v1"
jurisdiction = "us"
credential = {{ file = "var/upstream.key" }}
{managed}
[targets.house-model]
provider = "engine"
model = "fake-model"
catalogue = "in-house"
[targets.claude-opus-5-5]
provider = "anthropic"
model = "claude-opus-5-5"
[targets.claude-haiku-5-5]
provider = "anthropic"
model = "claude-haiku-5-5"
[targets."gpt-6.2-sol"]
provider = "openai"
model = "gpt-6.2-sol"
"""

BRISK = {
    "REVISIONS_S": 0.05,
    "FOLLOW_RETRY_S": 0.1,
    "HEALTH_S": 0.1,
    "PROJECTION_S": 0.1,
    "SINKS_S": 0.1,
    "GUARD_S": 0.1,
    "ALERTS_S": 0.5,
    "CHECKPOINTS_S": 0.5,
    "BATCHES_S": 0.1,
    "BACKGROUND_S": 0.1,
    "TURNS_S": 0.1,
    "PARCELS_S": 0.2,
    "CHECKUPS_S": 0.1,
    "CERTIFICATES_S": 0.1,
}
"""Shorter periods than in `pacing.rhythm`, for rounds that tests wait for."""

BRISK_PROCESS = "import gateway.pacing.rhythm\n" + "".join(
    f"gateway.pacing.rhythm.{name} = {period_s}\n" for name, period_s in BRISK.items()
)
"""The same for a worker in its own process: statements to run before it starts."""


@contextmanager
def brisk() -> Iterator[None]:
    """Workers that are built while it is entered make their rounds more often.

    Never less often than the module says: a test may have set a period of its own.
    """
    usual = {name: getattr(rhythm, name) for name in BRISK}
    for name, period_s in BRISK.items():
        setattr(rhythm, name, min(period_s, usual[name]))
    try:
        yield
    finally:
        for name, period_s in usual.items():
            setattr(rhythm, name, period_s)


class Upstreams:
    """The three recording upstreams of a gateway."""

    def __init__(self) -> None:
        self.engine = RecordingUpstream()
        self.anthropic = RecordingUpstream()
        self.openai = RecordingUpstream()

    @property
    def managed(self) -> tuple[RecordingUpstream, RecordingUpstream]:
        """The upstreams that data of class S3 and S4 must never reach."""
        return self.anthropic, self.openai

    async def __aenter__(self) -> Self:
        for upstream in (self.engine, *self.managed):
            await upstream.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for upstream in (self.engine, *self.managed):
            await upstream.stop()


class RunningGateway:
    """An asynchronous context manager: started when entered, drained and stopped when left."""

    def __init__(
        self,
        folder: Path,
        database_url: str,
        upstreams: Upstreams,
        *,
        more: str = "",
        managed: str = "",
        worker: str = "w0",
    ) -> None:
        self.folder = folder
        self.upstream_key = f"up-{secrets.token_hex(8)}"
        folder.joinpath("var").mkdir(parents=True, exist_ok=True)
        key_file = folder / "var" / "upstream.key"
        if not key_file.exists():
            key_file.touch(mode=0o600)
            key_file.write_text(self.upstream_key)
        self.upstream_key = key_file.read_text()
        self.config_file = folder / f"{worker}.toml"
        self.config_file.write_text(
            CONFIG.format(
                database_url=database_url,
                engine_url=upstreams.engine.url,
                anthropic_url=upstreams.anthropic.url,
                openai_url=upstreams.openai.url,
                worker=worker,
                more=more,
                managed=managed,
            )
        )
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._socket = socket.socket()
        self.settings: Settings
        self.plane: DataPlane

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()
        return structs.replace(self.settings.data_plane, host=host, port=port).url

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The gateway's own event loop, for counting what lives on it."""
        return self.plane._audit._loop

    async def does(self, work: Coroutine[object, object, Told]) -> Told:
        """The result of `work`, run on the gateway's own loop, to which its locks belong."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    @property
    def audit_folder(self) -> Path:
        return self.settings.path(self.settings.audit.directory)

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            self._socket.close()
            raise
        return self

    async def _start(self) -> None:
        self._lay_sqlite()
        await prepare(self.folder, self.config_file.name)
        self.settings = load_settings(self.config_file)
        with brisk():
            self.plane = DataPlane(self.settings)
        self._socket.bind(("127.0.0.1", 0))
        http: Any = bounded_protocol(self.settings.limits)
        if certificate := kept_certificate(self.settings, "data_plane", SystemClock()):
            http = encrypted_protocol(http, certificate)
        config = uvicorn.Config(
            self.plane.application(),
            interface="asgi3",
            loop="uvloop",
            http=http,
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the gateway did not start")
            await asyncio.sleep(0.01)

    def _lay_sqlite(self) -> None:
        """Put a file at the newest schema in place if there is none."""
        kind, _, file = load_settings(self.config_file).database_url.partition(":///")
        if kind.startswith("sqlite") and not Path(file).exists():
            Path(file).write_bytes(newest_sqlite())

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._thread is not None
        self._server.should_exit = True
        await to_thread.run_sync(self._thread.join)
        self._socket.close()

    async def issue_key(
        self,
        place: Place = DEMO,
        *,
        models: Iterable[str] | None = None,
        translation: Translation = "warn",
    ) -> str:
        """A key that every worker of this database knows when this returns."""
        database = open_database(self.settings.database_url)
        peppers = Peppers({1: pepper(self.settings)})
        try:
            store = KeyStore(database, peppers, SystemClock())
            scope = frozenset(models) if models is not None else None
            key = await store.issue(
                NewKey(place, "test", "a test", models=scope, translation=translation)
            )
        finally:
            await database.close()
        while key.key_id not in self.plane.snapshots.current().keys.records:
            await asyncio.sleep(0.01)
        return key.reveal()

    async def reaches_all(self) -> None:
        """Wait for an answered probe of the engine.

        A probe has no longer than a caller's first byte: if a test makes that short, a busy machine
        is enough for a probe to fail, and until the next one the engine counts as down.
        """
        while self.plane.snapshots.board.unavailable:
            await asyncio.sleep(0.01)

    async def revoke_key(self, key: str) -> None:
        database = open_database(self.settings.database_url)
        try:
            peppers = Peppers({1: pepper(self.settings)})
            await KeyStore(database, peppers, SystemClock()).revoke(key.split("_")[2])
        finally:
            await database.close()

    def budget_left(self, accounts: tuple[str, ...]) -> int | None:
        """Micro-dollars left on the tightest of these accounts, as its worker knows it."""
        return self.plane._ledger.left_microusd(accounts)

    async def limit(self, account: str, limit_microusd: int, window: WindowKind = "total") -> None:
        """Set a budget and wait until the worker obeys it."""
        database = open_database(self.settings.database_url)
        try:
            limit = Limit(account, limit_microusd, window)
            await LeaseTable(database, SystemClock()).set_limit(limit)
        finally:
            await database.close()
        while self.budget_left((account,)) is None:
            await asyncio.sleep(0.01)

    async def records(self, request_id: str = "") -> list[AuditRecord]:
        """The records on disk, read back from the segments in order."""
        rows = [row.projected.record async for row in segment_rows(self.audit_folder)]
        return [record for record in rows if request_id in ("", record.request_id)]
