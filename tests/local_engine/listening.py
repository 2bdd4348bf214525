"""The engine's listener on a port of its own, for tests of what comes over the wire.

Where a test's module takes `wire` from here, all of its tests run twice: in clear and over TLS.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from local_engine.serve.api.app import EngineApp
from local_engine.serve.connections.crowd import Crowd
from local_engine.serve.encryption import Encryption
from local_engine.serve.engine import Engine
from local_engine.serve.options import CertificateFiles, ConnectionBounds
from local_engine.serve.server import Listener
from tests.certificates import Authority


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
MAX_BODY_BYTES = 4 << 20


class _Over:
    """What listeners and callers of the test that runs speak: TLS where there is a certificate."""

    encryption: Encryption | None = None
    trusting: ssl.SSLContext | None = None


@pytest.fixture(params=[False, True], ids=["in clear", "over TLS"])
def is_encrypted(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The engine's own event loop."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(autouse=True)
def wire(tmp_path: Path, *, is_encrypted: bool) -> Iterator[None]:
    if is_encrypted:
        authority = Authority(tmp_path)
        pair = authority.issue()
        _Over.encryption = Encryption(CertificateFiles(certificate=pair.chain, key=pair.key))
        _Over.trusting = authority.trusting()
    yield
    _Over.encryption = _Over.trusting = None


class Open:
    """A listener that is open, and whom it knows."""

    def __init__(self, port: int, crowd: Crowd) -> None:
        self.port, self.crowd = port, crowd

    def ended(self, reason: str) -> float:
        """How many connections were ended for it."""
        name = f'gatewright_engine_connections_ended_total{{reason="{reason}"}} '
        lines = self.crowd.metrics.render().decode().splitlines()
        return next((float(line.split()[1]) for line in lines if line.startswith(name)), 0.0)


@asynccontextmanager
async def listening(application: Any, bounds: ConnectionBounds) -> AsyncIterator[Open]:
    """Any ASGI application behind the engine's listener; an `Engine` gets its own application."""
    crowd = Crowd(bounds.connections_max)
    if isinstance(application, Engine):
        engine = application
        application = EngineApp(
            max_body_bytes=MAX_BODY_BYTES,
            requests_max=bounds.requests_max,
            more_metrics=crowd.metrics.render,
        )
        application.attach("tiny", engine)
    server = Listener(application, bounds, crowd, MAX_BODY_BYTES, _Over.encryption)
    with socket.create_server(("127.0.0.1", 0)) as place:
        serving = asyncio.ensure_future(server.serve(sockets=[place]))
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            yield Open(place.getsockname()[1], crowd)
        finally:
            server.should_exit = True
            await serving
            await server.close()


async def connect(port: int, receive_bytes: int = 0) -> Ends:
    """A caller's connection, over TLS where the listener speaks it.

    `receive_bytes` is how much the kernel takes for a caller who does not read.
    """
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=_Over.trusting, limit=4096
    )
    if receive_bytes:
        caller = writer.get_extra_info("socket")
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    return reader, writer
