"""A web hook that is answered badly is told as not taken, with the reason and nothing else."""

import asyncio

import pytest

from gateway.providers.egress.client import Egress
from gateway.providers.outlets.webhook import WebHook
from gateway.secrets.secret import Secret


pytestmark = pytest.mark.anyio

BEARER = "what-a-collector-knows-us-by"
REDIRECT = b"HTTP/1.1 307 Moved\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
LATER = b"HTTP/1.1 503 Busy\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n"
HUGE = b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n" + b"x" * 65536
ECHO = b"HTTP/1.1 401 No\r\ncontent-length: 28\r\n\r\n" + BEARER.encode()


async def told(answer: bytes) -> tuple[bool, WebHook]:
    """Whether it counts as taken where that is answered, and who was told."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    egress = Egress()
    hook = WebHook("metrics", f"http://127.0.0.1:{port}/v1/metrics", Secret(BEARER), egress)
    try:
        return await hook.post(b"{}"), hook
    finally:
        await egress.close()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("answer", "is_taken", "problem", "retry_after_s"),
    [
        (REDIRECT, False, "redirect", None),
        (LATER, False, "it answered with HTTP 503", 30.0),
        (HUGE, True, "", None),
        (ECHO, False, "it answered with HTTP 401", None),
        (b"", False, "connection", None),
    ],
)
async def test_what_is_not_taken_has_a_reason_without_a_secret(
    answer: bytes, is_taken: bool, problem: str, retry_after_s: float | None
) -> None:
    taken, hook = await told(answer)

    assert (taken, hook.retry_after_s) == (is_taken, retry_after_s)
    assert problem in hook.problem
    assert BEARER not in hook.problem
    assert "127.0.0.1" not in hook.problem
