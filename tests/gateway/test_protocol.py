"""A request's head is bounded in size and time, before anybody is authenticated."""

import asyncio
import gc
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.api.caller_line import CallerLine
from gateway.api.deadlines import Deadlines
from gateway.api.exchange import Bounds, Exchange
from gateway.api.protocol import PIPELINED_MAX, READ_BYTES
from gateway.api.room import Room
from gateway.configuration.settings import Limits
from tests.gateway.listening import anyio_backend, ask, connect, is_encrypted, listening, wire


__all__ = ["anyio_backend", "is_encrypted", "wire"]
pytestmark = pytest.mark.anyio

POST = b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n%b"
LONG_ANSWER = b"z" * 8_000_000
GOOD = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def _bounds() -> Bounds:
    room, deadlines = Room(10**9), Deadlines(60.0)
    return Bounds(1_000_000, 1000, body_receive_s=5.0, room=room, deadlines=deadlines)


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    """Through an exchange, as the doors do it: whole, or with `stream` first as three pieces."""
    exchange = Exchange(scope, receive, send, _bounds())
    try:
        body = await exchange.read_body()
        if body == b"bad":
            with pytest.raises(ValueError, match="line break"):
                await exchange.answer(200, {"x-answer": "a\r\nx-forged: yes"}, b"")
            await exchange.answer(400, {"x-answer": "refused"}, b"refused")
        elif body == b"leave":
            _left.append(exchange)
            await asyncio.Event().wait()
        elif body.startswith(b"stream"):
            exchange.begin_stream({"x-answer": "streamed"})
            for piece in (body, b"", LONG_ANSWER if body == b"stream-long" else b"-", b"end"):
                await exchange.write(piece)
            await exchange.end_stream()
        else:
            await exchange.answer(200, {"x-answer": "whole"}, body + b".")
    except asyncio.CancelledError:
        if not exchange.caller_left:
            raise
    finally:
        exchange.close()


_left: list[Exchange] = []


async def _talk(port: int, pieces: Callable[[], list[bytes]]) -> bytes:
    """Send pieces and read until the server closes; a reset counts as closing."""
    reader, writer = await connect(port)
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
    async with listening(_hello, Limits()) as port:
        answer = await _talk(port, lambda: [GOOD, GOOD, closing])

    assert answer.count(b"HTTP/1.1 200") == 3


async def test_head_over_the_limit_is_refused() -> None:
    head = b"GET / HTTP/1.1\r\nx-long: " + b"a" * 2000 + b"\r\n\r\n"
    async with listening(_hello, Limits(header_bytes_max=1024)) as port:
        answer = await _talk(port, lambda: [head])

    assert answer.startswith(b"HTTP/1.1 400")


async def test_head_that_never_ends_is_cut_off() -> None:
    piece = b"a" * 4096
    async with listening(_hello, Limits(header_bytes_max=1024)) as port:
        answer = await _talk(
            port, lambda: [b"GET / HTTP/1.1\r\nx-long: ", *[piece] * (READ_BYTES // 1024)]
        )

    assert b"200" not in answer


async def test_head_that_does_not_arrive_in_time_is_cut_off() -> None:
    async with listening(_hello, Limits(header_receive_s=0.05)) as port:
        answer = await _talk(port, lambda: [b"GET / HTTP/1.1\r\nhost: he"])

    assert answer == b""


async def test_long_body_behind_a_short_head_is_not_counted_as_head() -> None:
    body = b"b" * (READ_BYTES * 4)
    head = b"POST / HTTP/1.1\r\nhost: here\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    async with listening(_hello, Limits(header_bytes_max=1024)) as port:
        answer = await _talk(port, lambda: [head % len(body), body])

    assert answer.startswith(b"HTTP/1.1 200")


def _post(body: bytes, *, closing: bool = False) -> bytes:
    whole = POST % (len(body), body)
    return whole.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1) if closing else whole


async def test_whole_and_streamed_answers_follow_each_other_on_one_connection() -> None:
    async with listening(_echo, Limits()) as port:
        sent = [_post(b"a"), _post(b"stream"), _post(b"b", closing=True)]
        answer = await _talk(port, lambda: sent)

    first, streamed, last = answer.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert first.endswith(b"content-length: 2\r\n\r\na.")
    assert streamed.endswith(
        b"transfer-encoding: chunked\r\n\r\n6\r\nstream\r\n1\r\n-\r\n3\r\nend\r\n0\r\n\r\n"
    )
    assert last.endswith(b"content-length: 2\r\nconnection: close\r\n\r\nb.")
    assert answer.count(b"date: ") == 3


async def test_a_request_leaves_nothing_that_only_the_cycle_collector_could_free() -> None:
    async with listening(_echo, Limits()) as port:
        gc.collect()
        gc.disable()
        try:
            bodies = [*[b"a", b"stream"] * 7, b"b"]
            await _talk(port, lambda: [_post(body, closing=body == b"b") for body in bodies])
            await _talk(port, lambda: [_post(b"a") * 50])
            # While this one talks the one before is ended wholly, also over TLS.
            await _talk(port, lambda: [_post(b"a", closing=True)])
            # `type`, because some objects of other libraries do not like to be asked.
            left = [each for each in gc.get_objects() if type(each) is CallerLine]
        finally:
            gc.enable()

    # That of a connection's last request goes with the connection.
    assert len(left) <= 3


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    bodies = [b"one", b"stream", b"two", b"three"]
    async with listening(_echo, Limits()) as port:
        sent = b"".join(_post(body, closing=body == b"three") for body in bodies)
        answer = await _talk(port, lambda: [sent])

    places = [answer.index(text) for text in (b"one.", b"stream", b"two.", b"three.")]
    assert places == sorted(places)


async def test_more_pipelined_requests_than_may_wait_end_the_connection() -> None:
    served = 0

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        nonlocal served
        served += 1
        await _hello(scope, receive, send)

    async with listening(counted, Limits()) as port:
        async with asyncio.timeout(10):
            few = await _talk(port, lambda: [GOOD * PIPELINED_MAX + _post(b"", closing=True)])
            served = 0
            many = await _talk(port, lambda: [GOOD * 5000])

    assert few.count(b"HTTP/1.1 200") == PIPELINED_MAX + 1
    assert b"HTTP/1.1 400" not in many
    assert served <= 1


@pytest.mark.parametrize("bad", [b"nonsense\r\n\r\n", GOOD.replace(b"here", b"here\r\nhost: b")])
async def test_what_is_wrong_behind_a_request_is_no_answer_to_it(bad: bytes) -> None:
    async with listening(_echo, Limits()) as port:
        async with asyncio.timeout(10):
            reader, writer = await connect(port)
            writer.write(_post(b"leave", closing=False))
            await asyncio.sleep(0.05)
            writer.write(bad)
            answer = await reader.read()
            writer.close()

    assert answer == b""


async def test_a_body_for_which_there_is_no_memory_is_not_its_callers_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HttpToolsProtocol, "on_body", Mock(side_effect=MemoryError))
    async with listening(_echo, Limits()) as port:
        answer = await _talk(port, lambda: [_post(b"x" * 100, closing=False)])
    assert answer.startswith(b"HTTP/1.1 503")
    assert b'"code":"unavailable"' in answer


async def test_a_body_in_pieces_and_one_that_asks_first_take_the_long_way() -> None:
    head = POST.split(b"%d")[0] + b"6\r\nexpect: 100-continue\r\nconnection: close\r\n\r\n"
    async with listening(_echo, Limits()) as port:
        reader, writer = await connect(port)
        writer.write(head)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        for piece in (b"abc", b"def"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        answer = await reader.read()
        writer.close()

    assert answer.endswith(b"abcdef.")


async def _refusing(scope: Any, receive: Any, send: Any) -> None:
    """Answers without having read a body, or asked for one."""
    exchange = Exchange(scope, receive, send, _bounds())
    await exchange.answer(401, {}, b"no.")


EXPECTING = POST.split(b"%d")[0] + b"6\r\nexpect: 100-continue\r\n\r\n"


async def test_who_is_refused_instead_of_asked_for_the_body_is_told_that_the_connection_ends() -> (
    None
):
    """It may leave the body out, and what it sends next would be read as that body."""
    async with listening(_refusing, Limits()) as port:
        reader, writer = await connect(port)
        writer.write(EXPECTING)
        answer = await reader.read()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 401")
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.endswith(b"no.")


async def test_a_body_that_is_sent_without_being_asked_for_leaves_the_connection_good() -> None:
    async with listening(_refusing, Limits()) as port:
        reader, writer = await connect(port)
        for body in (b"abcdef", b"abc", b"abcdef"):
            writer.write(EXPECTING + body)
            answer = await reader.readuntil(b"no.")
            assert b"connection: close" not in answer
            writer.write(b"def"[: 6 - len(body)])
        writer.close()


async def test_a_connection_that_rests_too_long_is_closed_and_one_that_works_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.api.protocol.KEEP_ALIVE_S", 0.1)
    async with listening(_echo, Limits()) as port:
        reader, writer = await connect(port)
        writer.write(_post(b"leave"))
        other, asking = await connect(port)
        for _ in range(3):
            asking.write(_post(b"a"))
            assert (await other.readuntil(b"a.")).startswith(b"HTTP/1.1 200")
        assert await other.read() == b""

        assert not reader.at_eof()
        asking.close()
        writer.close()
        while not _left[-1].caller_left:
            await asyncio.sleep(0.005)


async def test_a_head_in_pieces_is_counted_whole() -> None:
    async with listening(_echo, Limits(header_bytes_max=1024)) as port:
        reader, writer = await connect(port)
        for piece in (
            b"POST / HTTP/1.1\r\nx-a: ",
            b"a" * 600,
            b"\r\nx-b: ",
            b"b" * 600,
            b"\r\n\r\n",
        ):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)
        answer = await reader.read()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 400")


async def test_an_old_client_gets_its_answer_and_the_end() -> None:
    async with listening(_echo, Limits()) as port:
        old = _post(b"x").replace(b"HTTP/1.1", b"HTTP/1.0")
        answer = await _talk(port, lambda: [old])

    assert answer.endswith(b"connection: close\r\n\r\nx.")


async def test_a_stream_for_an_old_client_has_no_chunks_and_ends_with_the_connection() -> None:
    async with listening(_echo, Limits()) as port:
        old = _post(b"stream").replace(b"HTTP/1.1", b"HTTP/1.0")
        answer = await _talk(port, lambda: [old])

    assert b"transfer-encoding" not in answer
    assert answer.endswith(b"connection: close\r\n\r\nstream-end")


async def test_an_offer_of_another_protocol_hinders_nobody() -> None:
    body = b"a body\r\n\r\n\r\nupgrade: is not a head"
    offer = (
        b"connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\nUpgrade: h2c"
    )
    offering = _post(body).replace(b"host: here", b"host: here\r\n" + offer)
    head, _, rest = offering.partition(b"a body")
    torn = head.index(b"HTTP2-Settings: ")
    async with listening(_echo, Limits()) as port:
        reader, writer = await connect(port)
        for pieces in ([offering], [head, b"a body" + rest], [head[:torn], head[torn:] + body]):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.02)
            async with asyncio.timeout(5):
                answer = await reader.readuntil(b"\r\n\r\n")
                length = len(body) + 1
                assert b"content-length: %d\r\n" % length in answer
                assert await reader.readexactly(length) == body + b"."
        writer.close()


async def test_a_caller_who_reads_late_gets_every_byte() -> None:
    async with listening(_echo, Limits()) as port:
        reader, writer = await connect(port, limit=4096)
        writer.write(_post(b"stream-long", closing=True))
        await asyncio.sleep(0.2)
        answer = await reader.read()
        writer.close()

    assert answer.count(b"z") == len(LONG_ANSWER)
    assert answer.endswith(b"3\r\nend\r\n0\r\n\r\n")


async def test_a_header_cannot_end_itself() -> None:
    async with listening(_echo, Limits()) as port:
        answer = await _talk(port, lambda: [_post(b"bad", closing=True)])

    assert answer.startswith(b"HTTP/1.1 400")
    assert b"x-forged" not in answer


async def test_a_caller_who_leaves_is_noticed_at_once() -> None:
    _left.clear()
    async with listening(_echo, Limits()) as port:
        _, writer = await connect(port)
        writer.write(_post(b"leave"))
        while not _left:
            await asyncio.sleep(0.01)
        writer.close()
        async with asyncio.timeout(10):
            while not _left[0].caller_left:
                await asyncio.sleep(0.01)


_LINE = b"POST / HTTP/1.1\r\n"
_HOST, _CLOSE, _CHUNKED = (
    b"host: here\r\n",
    b"connection: close\r\n",
    b"transfer-encoding: chunked\r\n",
)
_LENGTH = b"content-length: 1\r\n"
_CHUNKS = b"\r\n1\r\na\r\n0\r\n\r\n"
_OTHER_MEANINGS = {
    "no host": _LINE + _LENGTH + b"\r\na",
    "two hosts": _LINE + _HOST * 2 + _LENGTH + b"\r\na",
    "two hosts of an old client": b"POST / HTTP/1.0\r\n" + _HOST * 2 + _LENGTH + b"\r\na",
    "HTTP/2": b"POST / HTTP/2.0\r\n" + _HOST + _LENGTH + b"\r\na",
    "HTTP/0.9": b"POST / HTTP/0.9\r\n" + _HOST + _LENGTH + b"\r\na",
    "gzip below chunks": _LINE + _HOST + b"transfer-encoding: gzip, chunked\r\n" + _CHUNKS,
    "chunks twice": _LINE + _HOST + _CHUNKED * 2 + _CHUNKS,
    "chunks of an old client": b"POST / HTTP/1.0\r\n" + _HOST + _CHUNKED + _CHUNKS,
    "chunks in disguise": _LINE + _HOST + b"transfer-encoding: \x0bchunked\r\n" + _CHUNKS,
    "chunks and a length": _LINE + _HOST + _CHUNKED + _LENGTH + _CHUNKS,
    "two lengths": _LINE + _HOST + _LENGTH * 2 + b"\r\na",
    "a length with a sign": _LINE + _HOST + b"content-length: +1\r\n\r\na",
    "a name with a blank": _LINE + _HOST + b"content-length : 1\r\n\r\na",
    "a folded line": _LINE + _HOST + b"x-a: b\r\n content-length: 1\r\n" + _LENGTH + b"\r\na",
    "lines without CR": (_LINE + _HOST + _LENGTH + b"\r\na").replace(b"\r\n", b"\n"),
    "a CR alone": _LINE + b"host: here\rx: y\r\n" + _LENGTH + b"\r\na",
    "a NUL": _LINE + _HOST + b"x: a\x00b\r\n" + _LENGTH + b"\r\na",
    "a chunk longer than it says": _LINE + _HOST + _CHUNKED + b"\r\n1\r\nab\r\n0\r\n\r\n",
    "a chunk with another end": _LINE + _HOST + _CHUNKED + b"\r\n1\na\n0\n\n",
}


@pytest.mark.parametrize("sent", _OTHER_MEANINGS.values(), ids=_OTHER_MEANINGS)
async def test_a_request_that_a_server_in_front_may_read_otherwise_is_refused(sent: bytes) -> None:
    async with listening(_echo, Limits()) as port:
        async with asyncio.timeout(10):
            answer = await _talk(port, lambda: [sent])

    assert answer.startswith(b"HTTP/1.1 400")
    assert b"x-answer" not in answer


@pytest.mark.parametrize(
    "sent",
    [
        b"POST / HTTP/1.0\r\n" + _LENGTH + b"\r\na",
        _LINE + _HOST + _CLOSE + b"Transfer-Encoding: Chunked\r\n" + _CHUNKS,
        _LINE + b"Host:\r\n" + _CLOSE + _LENGTH + b"\r\na",
    ],
)
async def test_what_is_unusual_and_has_one_meaning_is_served(sent: bytes) -> None:
    async with listening(_echo, Limits()) as port:
        answer = await _talk(port, lambda: [sent])

    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"a.")


async def test_what_is_said_behind_a_body_is_no_header() -> None:
    heard: list[dict[bytes, bytes]] = []

    async def listen(scope: Any, receive: Any, send: Any) -> None:
        await _hello(scope, receive, send)
        heard.append(dict(scope["headers"]))

    trailers = b"authorization: Bearer another\r\nx-team: another\r\n"
    sent = _LINE + _HOST + _CLOSE + _CHUNKED + b"x-own: yes\r\n"
    whole = sent + _CHUNKS.replace(b"0\r\n", b"0\r\n" + trailers)
    async with listening(listen, Limits()) as port:
        answer = await _talk(port, lambda: [whole])

    assert answer.startswith(b"HTTP/1.1 200")
    assert heard[0][b"x-own"] == b"yes"
    assert not heard[0].keys() & {b"authorization", b"x-team"}


@pytest.mark.parametrize(
    ("opening", "piece"),
    [
        (b"0\r\n", b"x: " + b"y" * 4091 + b"\r\n"),
        (b"0\r\nx: ", b"y" * 4096),
        (b"1;x=", b"y" * 4096),
    ],
    ids=["trailers", "a trailer", "a chunk's extension"],
)
async def test_what_never_ends_behind_or_between_pieces_of_a_body_is_cut_off(
    opening: bytes, piece: bytes
) -> None:
    """Of a caller who was refused, and has his answer, too: the parser would keep all of it."""

    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    head = _LINE + _HOST + _CHUNKED + b"\r\n1\r\na\r\n" + opening
    async with listening(refuse, Limits(header_bytes_max=1024)) as port:
        async with asyncio.timeout(10):
            answer = await _talk(port, lambda: [head, *[piece] * (READ_BYTES // 1024)])

    assert b"200" not in answer


async def _drip(port: int, first: bytes, drop: bytes, limit_s: float) -> bool:
    """Whether a connection ends within `limit_s`, on which something drips after an answer."""
    reader, writer = await connect(port)
    writer.write(first)
    assert (await reader.read(4096)).startswith(b"HTTP/1.1 200")
    try:
        async with asyncio.timeout(limit_s):
            while not reader.at_eof():
                writer.write(drop)
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(4096), 0.02)
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    finally:
        writer.close()
    return True


async def _answer_at_once(scope: Any, receive: Any, send: Any) -> None:
    """Without looking at the body, as who has no key is answered."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@pytest.mark.parametrize("of", ["a head", "blank lines", "a body"])
async def test_what_drips_in_behind_an_answer_keeps_no_connection_open(
    of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.api.protocol.KEEP_ALIVE_S", 0.6 if of == "blank lines" else 60.0)
    first, drop = {
        "a head": (GOOD + b"GET / HTTP/1.1\r\nhost: he", b"r"),
        "blank lines": (GOOD, b"\r\n"),
        "a body": (b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 9999\r\n\r\n", b"b"),
    }[of]
    limits = Limits(header_receive_s=0.3, body_receive_s=0.3)
    async with listening(_answer_at_once, limits) as port:
        assert await _drip(port, first, drop, 10.0)


async def test_a_body_that_arrives_behind_its_answer_leaves_the_connection_good() -> None:
    head = b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 4\r\n\r\n"
    async with listening(_answer_at_once, Limits(body_receive_s=0.3)) as port:
        reader, writer = await connect(port)
        writer.write(head)
        assert (await reader.read(4096)).startswith(b"HTTP/1.1 200")
        writer.write(b"body")
        await asyncio.sleep(0.6)
        writer.write(GOOD)
        assert (await reader.read(4096)).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_half_a_head_behind_a_request_that_is_served_does_not_cut_it_off() -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.5)
        await _hello(scope, receive, send)

    async with listening(slow, Limits(header_receive_s=0.1)) as port:
        reader, writer = await connect(port)
        writer.write(GOOD)
        await asyncio.sleep(0.05)
        writer.write(b"GET / HTTP/1.1\r\nhost: he")
        assert (await reader.read(4096)).startswith(b"HTTP/1.1 200")
        writer.close()


@pytest.mark.parametrize("is_read", [False, True])
async def test_who_takes_nothing_of_his_answer_holds_it_for_no_longer(
    monkeypatch: pytest.MonkeyPatch, *, is_read: bool
) -> None:
    monkeypatch.setattr("gateway.api.protocol.UNREAD_S", 2.0)
    async with listening(_echo, Limits()) as port:
        with socket.create_connection(("127.0.0.1", port)) as caller:
            await ask(caller, _post(b"stream-long", closing=True))
            loop, received = asyncio.get_running_loop(), 0
            with suppress(ConnectionError):
                for _ in range(30):  # Longer than may be, and so much of it as is taken.
                    await asyncio.sleep(0.1)
                    if is_read:
                        received += len(await loop.sock_recv(caller, 300_000))
                while piece := await loop.sock_recv(caller, 1_000_000):
                    received += len(piece)
    assert (received > len(LONG_ANSWER)) == is_read


@pytest.mark.parametrize("is_taken", [False, True])
async def test_who_takes_a_whole_answer_by_drops_does_not_keep_it_in_memory(
    monkeypatch: pytest.MonkeyPatch, *, is_taken: bool
) -> None:
    monkeypatch.setattr("gateway.api.protocol.UNREAD_S", 0.5)
    monkeypatch.setattr("gateway.api.protocol._UNREAD_MS", None)

    async def long(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": LONG_ANSWER * 4})

    async with listening(long, Limits()) as port:
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            await ask(caller, GOOD.replace(b"here", b"here\r\nconnection: close"))
            loop, received = asyncio.get_running_loop(), 0
            with suppress(ConnectionError):
                for _ in range(20):
                    await asyncio.sleep(0.1)
                    for _ in range(40 if is_taken else 1):
                        received += len(await loop.sock_recv(caller, 65536 if is_taken else 1))
                while piece := await loop.sock_recv(caller, 1_000_000):
                    received += len(piece)
    assert (received > len(LONG_ANSWER) * 4) == is_taken
