"""The load generator describes bad answers: whoever reads a table no longer has a log."""

import argparse
import asyncio
from collections.abc import Iterator

import pytest

from benchmarks.load import NO_ANSWER, load


pytestmark = pytest.mark.anyio

GOOD = b'{"choices": []}'
REFUSED = b'{"error": {"type": "server_error", "code": "audit_unavailable", "message": "Not now."}}'


def head(status: int, length: int) -> bytes:
    return f"HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n".encode()


async def seen_of(answers: list[bytes]) -> dict[str, int]:
    """The report of one connection that gets these answers, and is closed after them."""
    left: Iterator[bytes] = iter(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while answer := next(left, b""):
            await reader.readuntil(b"\r\n\r\n{}")
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        options = argparse.Namespace(
            headers="{}",
            path="/",
            connections=1,
            chunks=0,
            port=port,
            seconds=5.0,
            rate=0.0,
            tls=False,
        )
        report = await load(options, b"{}")
    assert report.bad == sum(report.wrong.values())
    assert report.answers >= len(answers)
    return report.wrong


async def test_bad_answers_are_counted_by_status_and_the_errors_own_words() -> None:
    good = head(200, len(GOOD)) + GOOD
    refused = head(503, len(REFUSED)) + REFUSED
    wrong = await seen_of([good, refused, refused, head(502, 3) + b"<p>", head(200, 2) + b"{}"])

    wrong.pop(NO_ANSWER, None)
    assert wrong == {
        "503 server_error audit_unavailable Not now.": 2,
        "502": 1,
        "200 cut or of another form": 1,
    }


async def test_a_connection_that_is_closed_is_no_good_answer() -> None:
    assert await seen_of([head(200, len(GOOD)) + GOOD[:-1]]) == {NO_ANSWER: 1}
