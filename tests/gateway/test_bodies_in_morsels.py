"""A body of very many chunks is looked at in morsels, and one behind its answer has an end."""

import asyncio
from typing import Any

import pytest

from gateway.api.morsels import LINES_MAX, WHOLE_BYTES, morsel_bytes
from gateway.api.protocol import bounded_protocol
from gateway.configuration.settings import Limits
from tests.gateway.listening import anyio_backend, connect, is_encrypted, listening, wire


__all__ = ["anyio_backend", "is_encrypted", "wire"]
pytestmark = pytest.mark.anyio

HEAD = b"POST / HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n"
CLOSING = b"connection: close\r\n"
CHUNKS = 60_000


async def _count(scope: Any, receive: Any, send: Any) -> None:
    """Says how long the body was, and what it began and ended with."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    told = b"%d %b %b." % (len(body), body[:2], body[-2:])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": told})


async def _refuse(scope: Any, receive: Any, send: Any) -> None:
    del scope, receive
    await send({"type": "http.response.start", "status": 401, "headers": []})
    await send({"type": "http.response.body", "body": b"nobody"})


async def test_a_body_in_very_many_chunks_is_whole_and_the_next_request_is_read() -> None:
    many = b"".join(b"1\r\n%d\r\n" % (number % 10) for number in range(CHUNKS)) + b"0\r\n\r\n"
    few = b"5\r\nhello\r\n0\r\n\r\n"
    async with listening(_count, Limits()) as port:
        reader, writer = await connect(port)
        writer.write(HEAD + b"\r\n" + many + HEAD + CLOSING + b"\r\n" + few)
        answers = await reader.read()
        writer.close()

    assert answers.count(b"HTTP/1.1 200") == 2
    assert b"%d 01 89." % CHUNKS in answers
    assert answers.index(b"89.") < answers.index(b"5 he lo.")


async def test_others_have_their_turn_between_the_morsels(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    http = bounded_protocol(Limits())
    look_at = http._look_at

    def noted(self: Any, data: bytes) -> None:
        looked_at.append(len(data))
        look_at(self, data)

    monkeypatch.setattr("gateway.api.protocol.BoundedProtocol._look_at", noted)
    async with listening(_count, Limits()) as port:
        reader, writer = await connect(port)
        writer.write(HEAD + CLOSING + b"\r\n")
        await asyncio.sleep(0.05)
        writer.write(b"1\r\n.\r\n" * CHUNKS + b"0\r\n\r\n")
        assert b"%d .. ..." % CHUNKS in await reader.read()
        writer.close()
    assert max(looked_at) <= WHOLE_BYTES + len(HEAD + CLOSING)


async def _go_on_sending(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"4000\r\n" + b"a" * 0x4000 + b"\r\n")
        await writer.drain()
        await asyncio.sleep(0)


async def test_who_goes_on_sending_behind_a_refusal_is_cut_off() -> None:
    limits = Limits(body_bytes_max=100_000, body_receive_s=30.0)
    async with listening(_refuse, limits) as port:
        reader, writer = await connect(port)
        writer.write(HEAD + b"\r\n")
        assert (await reader.read(4096)).startswith(b"HTTP/1.1 401")
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(_go_on_sending(writer), 10)
        writer.close()


def test_a_morsel_has_a_thousand_lines_and_a_large_chunk_is_no_morsel() -> None:
    assert morsel_bytes(b"a" * 300_000) == 300_000
    assert morsel_bytes(b"1\r\n.\r\n" * 40_000) == WHOLE_BYTES
    wide = (b"20\r\n" + b"a" * 32 + b"\r\n") * 6_000
    assert wide[: morsel_bytes(wide)].count(b"\r\n") == pytest.approx(LINES_MAX, rel=0.01)
