"""A request's head is bounded in size and time, before anybody is authenticated."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from gateway.api.protocol import READ_BYTES, bounded_protocol
from gateway.settings import Limits


pytestmark = pytest.mark.anyio

GOOD = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def _listening(limits: Limits) -> AsyncIterator[int]:
    config = uvicorn.Config(
        _hello, port=0, http=bounded_protocol(limits), lifespan="off", log_config=None
    )
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield int(server.servers[0].sockets[0].getsockname()[1])
    server.should_exit = True
    await serving


async def _talk(port: int, pieces: Callable[[], list[bytes]]) -> bytes:
    """Send pieces and read until the server closes; a reset counts as closing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    try:
        for piece in pieces():
            writer.write(piece)
            await writer.drain()
        received = await reader.read()
    except ConnectionError:
        pass
    finally:
        writer.close()
    return received


async def test_good_heads_are_served_again_and_again_on_one_connection() -> None:
    closing = GOOD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    async with _listening(Limits()) as port:
        answer = await _talk(port, lambda: [GOOD, GOOD, closing])

    assert answer.count(b"HTTP/1.1 200") == 3


async def test_head_over_the_limit_is_refused() -> None:
    head = b"GET / HTTP/1.1\r\nx-long: " + b"a" * 2000 + b"\r\n\r\n"
    async with _listening(Limits(header_bytes_max=1024)) as port:
        answer = await _talk(port, lambda: [head])

    assert answer.startswith(b"HTTP/1.1 400")


async def test_head_that_never_ends_is_cut_off() -> None:
    piece = b"a" * 4096
    async with _listening(Limits(header_bytes_max=1024)) as port:
        answer = await _talk(
            port, lambda: [b"GET / HTTP/1.1\r\nx-long: ", *[piece] * (READ_BYTES // 1024)]
        )

    assert b"200" not in answer


async def test_head_that_does_not_arrive_in_time_is_cut_off() -> None:
    async with _listening(Limits(header_receive_s=0.05)) as port:
        answer = await _talk(port, lambda: [b"GET / HTTP/1.1\r\nhost: he"])

    assert answer == b""


async def test_long_body_behind_a_short_head_is_not_counted_as_head() -> None:
    body = b"b" * (READ_BYTES * 4)
    head = b"POST / HTTP/1.1\r\nhost: here\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    async with _listening(Limits(header_bytes_max=1024)) as port:
        answer = await _talk(port, lambda: [head % len(body), body])

    assert answer.startswith(b"HTTP/1.1 200")
