"""A listener of our protocol on a port of its own, for tests of what comes over the wire.

Where a test's module takes `wire` from here, all of its tests run twice: in clear, and over TLS on
the event loop that the gateway runs on.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from gateway.api.encrypted import encrypted_protocol, end_connections
from gateway.api.protocol import bounded_protocol
from gateway.clock import SystemClock
from gateway.configuration.settings import Limits, Listener, Settings
from gateway.secrets.certificates import KeptCertificate
from tests.certificates import Authority, Pair


class _Over:
    """What listeners and callers of the test that runs speak: TLS where there is a certificate."""

    certificate: KeptCertificate | None = None
    trusting: ssl.SSLContext | None = None


@pytest.fixture(params=[False, True], ids=["in clear", "over TLS"])
def is_encrypted(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def anyio_backend(*, is_encrypted: bool) -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": is_encrypted})


@pytest.fixture(autouse=True)
def wire(tmp_path: Path, *, is_encrypted: bool) -> Iterator[None]:
    if is_encrypted:
        authority = Authority(tmp_path)
        _Over.certificate = kept(authority.issue())
        _Over.trusting = authority.trusting()
    yield
    _Over.certificate = _Over.trusting = None


def kept(
    pair: Pair,
    client_ca: Path | None = None,
    clock: Any = None,
    client_crl: Path | None = None,
) -> KeptCertificate:
    """A data plane's certificate, as a listener has it."""
    listener = Listener(
        tls_certificate_file=str(pair.chain),
        tls_key_file=str(pair.key),
        tls_client_ca_file=str(client_ca or ""),
        tls_client_crl_file=str(client_crl or ""),
    )
    settings = Settings(source="x.toml", folder="/", data_plane=listener)
    return KeptCertificate(settings, "data_plane", clock or SystemClock())


@asynccontextmanager
async def listening(
    application: Any,
    limits: Limits,
    connections_max: int = 0,
    certificate: KeptCertificate | None = None,
) -> AsyncIterator[int]:
    """Its port."""
    http: Any = bounded_protocol(limits, connections_max)
    if (found := certificate or _Over.certificate) is not None:
        http = encrypted_protocol(http, found)
    config = uvicorn.Config(application, port=0, http=http, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    if found is not None:
        found.when_fewer_may_come(partial(end_connections, server.server_state))
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield int(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        await serving


async def connect(port: int, **more: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A caller's connection, over TLS where the test's listeners speak it."""
    return await asyncio.open_connection("127.0.0.1", port, ssl=_Over.trusting, **more)


async def ask(caller: socket.socket, data: bytes) -> None:
    """Send `data` over a bare socket, for tests that count what comes back and do not read it."""
    loop = asyncio.get_running_loop()
    caller.setblocking(False)
    if _Over.trusting is not None:
        come, gone = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = _Over.trusting.wrap_bio(come, gone, server_hostname="127.0.0.1")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await loop.sock_sendall(caller, gone.read())
                come.write(await loop.sock_recv(caller, 65536))
        tls.write(data)
        data = gone.read()
    await loop.sock_sendall(caller, data)
