"""What an upstream leaves behind it: a body that it never took, a start that nobody waits for."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from msgspec import structs

from gateway.errors import UpstreamUnreachable
from gateway.providers.egress.client import Egress
from gateway.providers.egress.endpoint import parse_endpoint
from gateway.providers.egress.reply import EgressLimits
from gateway.providers.egress.resolver import GuardedResolver
from tests.certificates import Authority
from tests.gateway.providers.samples import HOME, make_call


pytestmark = pytest.mark.anyio

REFUSED = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\n{}"
LONG_BYTES = 32 * 1024 * 1024
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": bool(request.param)})


@asynccontextmanager
async def serving(serve: Serve, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Its port."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def shaking_late(
    tls: ssl.SSLContext, wait: Callable[[], Awaitable[object]], host: str, serve: Serve
) -> AsyncIterator[int]:
    """The port of a listener that accepts at once, and reads nothing before it has waited."""
    loop = asyncio.get_running_loop()
    listener = socket.create_server((host, 0), backlog=50)
    listener.setblocking(False)

    async def shake(accepted: socket.socket) -> None:
        await wait()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader, serve)
        with suppress(OSError, ssl.SSLError):
            await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=tls)

    async def accept() -> None:
        async with asyncio.TaskGroup() as callers:
            while True:
                accepted, _ = await loop.sock_accept(listener)
                callers.create_task(shake(accepted))

    accepting = asyncio.ensure_future(accept())
    try:
        yield listener.getsockname()[1]
    finally:
        accepting.cancel()
        await asyncio.wait([accepting])
        listener.close()


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["in clear", "over TLS"])
async def test_no_request_goes_out_behind_a_body_that_was_not_taken(
    tmp_path: Path, *, is_encrypted: bool
) -> None:
    """TLS calls sent what it has encrypted; the next caller would wait for its deadline."""
    connections = 0
    let_go = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(REFUSED)
        await let_go.wait()
        writer.transport.abort()

    authority = Authority(tmp_path)
    tls = authority.server("127.0.0.1") if is_encrypted else None
    async with serving(refuse, tls) as port:
        egress = Egress(EgressLimits(first_byte_s=5.0), tls=authority.trusting())
        scheme = "https" if is_encrypted else "http"
        endpoint = parse_endpoint("fake", f"{scheme}://127.0.0.1:{port}", HOME)
        route = egress.route(endpoint, "/v1/messages", {})
        for body in (b" " * LONG_BYTES, b"{}"):
            reply = await egress.open(route, structs.replace(make_call(), body=body))
            assert (reply.status, await reply.read()) == (413, b"{}")
            await reply.close()
        let_go.set()
        await egress.close()

    assert connections == 2


async def test_nothing_is_sent_once_the_egress_is_closed(tmp_path: Path) -> None:
    """A connection was being made then, and its request went out when it was there."""
    heard: list[bytes] = []
    accepted, may_shake = asyncio.Event(), asyncio.Event()
    authority = Authority(tmp_path)

    async def wait() -> None:
        accepted.set()
        await may_shake.wait()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ssl.SSLError):
            heard.append(await reader.read(100))
            writer.write(REFUSED)
        writer.close()

    tls = authority.server("127.0.0.1")
    async with shaking_late(tls, wait, "127.0.0.1", hear) as port:
        egress = Egress(tls=authority.trusting())
        endpoint = parse_endpoint("fake", f"https://127.0.0.1:{port}", HOME)
        route = egress.route(endpoint, "/v1/messages", {})
        asked = asyncio.ensure_future(egress.open(route, make_call()))
        async with asyncio.timeout(10):
            await accepted.wait()
            await egress.close()
            may_shake.set()
            with pytest.raises(UpstreamUnreachable):
                await asked
            await asyncio.sleep(0.2)  # What was sent all the same would be here.

    assert b"".join(heard) == b""


async def test_who_waits_for_a_turn_is_told_that_the_egress_is_closed() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with serving(say_nothing) as port:
        egress = Egress(EgressLimits(connections_per_host_max=1))
        endpoint = parse_endpoint("fake", f"http://127.0.0.1:{port}", HOME)
        route = egress.route(endpoint, "/v1/messages", {})
        asked = [asyncio.ensure_future(egress.open(route, make_call())) for _ in range(2)]
        await asyncio.sleep(0.1)
        await egress.close()
        async with asyncio.timeout(10):
            found = await asyncio.gather(*asked, return_exceptions=True)

    assert [type(each) for each in found] == [UpstreamUnreachable] * 2


async def test_a_name_with_many_addresses_leaves_time_to_shake_hands_with_one(
    tmp_path: Path,
) -> None:
    """An equal part for each of twenty is less than a continent away takes."""
    authority = Authority(tmp_path)

    async def far() -> None:
        await asyncio.sleep(0.5)

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(REFUSED)
        writer.close()

    async def many(host: str, port: int) -> Sequence[str]:
        del host, port
        return [f"127.0.0.{number}" for number in range(1, 21)]

    tls = authority.server("models.localhost")
    # All of these addresses are loopback's.
    async with shaking_late(tls, far, "0.0.0.0", refuse) as port:  # noqa: S104
        egress = Egress(resolver=GuardedResolver(many), tls=authority.trusting())
        endpoint = parse_endpoint("fake", f"https://models.localhost:{port}", HOME)
        route = egress.route(endpoint, "/v1/messages", {}, connect_timeout_s=6.0)
        reply = await egress.open(route, make_call())
        assert reply.status == 413
        await reply.close()
        await egress.close()
