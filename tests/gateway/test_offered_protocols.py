"""Who offers to speak another protocol is read as everybody else is, or not served at all."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from gateway.configuration.settings import Limits
from tests.gateway.listening import anyio_backend, connect, is_encrypted, listening, wire


__all__ = ["anyio_backend", "is_encrypted", "wire"]
pytestmark = pytest.mark.anyio

HIDDEN = b"GET /hidden HTTP/1.1\r\nhost: here\r\n\r\n"
LINES = b"POST /seen HTTP/1.1\r\nhost: here\r\nconnection: upgrade\r\n"
LENGTH = b"content-length: %d\r\n" % len(HIDDEN)
CAPITALS = LINES + b"UPGRADE: h2c\r\n" + LENGTH + b"\r\n"
OFFERING = LINES + b"Upgrade: h2c\r\n" + LENGTH + b"\r\n"
FIRST = b"GET /first HTTP/1.1\r\nhost: here\r\n\r\n"


async def _asked(pieces: Sequence[bytes]) -> tuple[list[tuple[str, bytes]], bytes]:
    """What a listener hears in pieces that come one after the other: paths and bodies; its answers.

    It is asked until it closes, or for as long as a last request takes that ends the connection.
    """
    heard: list[tuple[str, bytes]] = []

    async def hears(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        heard.append((scope["path"], body))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"heard"})

    last = b"GET /last HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n"
    async with listening(hears, Limits()) as port, asyncio.timeout(20):
        reader, writer = await connect(port)
        answers = b""
        with suppress(ConnectionError):  # Where one was refused, nobody takes those behind it.
            for piece in (*pieces, last):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.03)  # So that each is a read of its own.
            while said := await reader.read(65536):
                answers += said
        writer.close()
    return heard, answers


@pytest.mark.parametrize(
    "pieces",
    [
        [CAPITALS, HIDDEN],
        [CAPITALS + HIDDEN],
        [
            OFFERING[: OFFERING.index(b"grade: h2c")],
            OFFERING[OFFERING.index(b"grade: h2c") :],
            HIDDEN,
        ],
        [OFFERING[: OFFERING.index(b"2c\r\n")], OFFERING[OFFERING.index(b"2c\r\n") :], HIDDEN],
        [FIRST + OFFERING, HIDDEN],
        [b"CONNECT here:80 HTTP/1.1\r\nhost: here\r\n" + LENGTH + b"\r\n", HIDDEN],
    ],
    ids=["in capitals", "whole", "a torn name", "a torn value", "behind another", "CONNECT"],
)
async def test_a_body_behind_an_offer_is_never_taken_for_a_request(pieces: list[bytes]) -> None:
    heard, answers = await _asked(pieces)

    assert [path for path, _ in heard if path not in ("/first", "/seen", "/last")] == []
    assert [body for path, body in heard if path == "/seen"] in ([], [HIDDEN])
    assert answers.count(b"HTTP/1.1 200") <= len(heard)


async def test_what_an_offer_says_is_never_part_of_the_line_before_it() -> None:
    body = b"a" + HIDDEN
    head = LINES + b"content-length: 1\r\nUpgrade: "

    heard, _ = await _asked([head, b"0\r\n\r\n" + body])

    assert ("/seen", body[:10]) not in heard
    assert [body for path, body in heard if path == "/seen"] in ([], [b"a"])


@pytest.mark.parametrize("torn", [1, 2, 3])
async def test_a_body_keeps_its_lines_wherever_its_head_is_torn(torn: int) -> None:
    body = b"--part\r\nUpgrade: not an offer\r\n\r\n--part--"
    head = b"POST /seen HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n" % len(body)

    heard, _ = await _asked([head[:-torn], head[-torn:] + body])

    assert heard == [("/seen", body), ("/last", b"")]


@pytest.mark.parametrize("where", [b"Upgrade:", b"content-length"], ids=["before it", "behind it"])
async def test_an_offer_in_a_line_of_its_own_hinders_nobody(where: bytes) -> None:
    at = OFFERING.index(where)

    heard, _ = await _asked([OFFERING[:at], OFFERING[at:], HIDDEN])

    assert heard == [("/seen", HIDDEN), ("/last", b"")]
