"""What a caller may take of the engine's listener, over real sockets, in clear and over TLS."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.dialects.upstream_errors import decode_error
from local_engine.serve.api.app import EngineApp
from local_engine.serve.connections import http
from local_engine.serve.connections.crowd import connections_permitted
from local_engine.serve.options import ConnectionBounds
from tests.local_engine.listening import (
    Ends,
    Open,
    anyio_backend,
    connect,
    is_encrypted,
    listening,
    wire,
)
from tests.local_engine.models import tiny_spec, write_model_directory
from tests.local_engine.served import Served, served


__all__ = ["anyio_backend", "is_encrypted", "wire"]
pytestmark = pytest.mark.anyio

GOOD = b"GET /health/ready HTTP/1.1\r\nhost: here\r\n\r\n"
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nhost: here\r\n"
LONG_ANSWER = b"a" * (24 << 20)
ENDS_WITHIN_S = 20.0
"""A bound on tests that fail; nothing is awaited for as long where all is well."""


@pytest.fixture
async def place(tiny_model: Path) -> AsyncIterator[Served]:
    async with served(tiny_model, max_running=1, max_waiting=16) as found:
        yield found


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    """Answers without looking at the body, as who has no key is answered."""
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def _chat(**fields: Any) -> bytes:
    asked = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], **fields}
    body = json.dumps(asked).encode()
    return CHAT + b"content-length: %d\r\n\r\n%b" % (len(body), body)


async def _said(reader: asyncio.StreamReader) -> tuple[int, dict[bytes, bytes], bytes]:
    """One answer with a length: its status, headers and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.rstrip().split(b"\r\n")
    headers = dict(line.lower().split(b": ", 1) for line in lines)
    body = await reader.readexactly(int(headers.get(b"content-length", b"0")))
    return int(first.split()[1]), headers, body


async def _rest_of(reader: asyncio.StreamReader) -> bytes:
    """All until the end."""
    found = b""
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            found += piece
    return found


async def _drip(ends: Ends, drop: bytes) -> bytes:
    """What is said until the connection ends, on which something drips in."""
    reader, writer = ends
    found = b""
    with suppress(ConnectionError):
        while not reader.at_eof():
            writer.write(drop)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    found += await reader.read(4096)
    writer.close()
    return found


async def _is_open(ends: Ends) -> bool:
    try:
        async with asyncio.timeout(0.05):
            await ends[0].read(1)
    except TimeoutError:
        return True
    except ConnectionError:
        pass
    return False


async def _opened(door: Open, number: int, said: bytes = b"") -> list[Ends]:
    ends = [await connect(door.port) for _ in range(number)]
    for _, writer in ends:
        writer.write(said)
    await asyncio.sleep(0.1)
    return ends


async def _closed(*ends: Ends) -> None:
    for _, writer in ends:
        writer.close()


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (b"", b""),
        (GOOD[:20], b""),
        (b"GET /health/ready HTTP/1.1\r\nx-slow: ", b"a"),
        (GOOD + GOOD[:-4], b"e"),
    ],
    ids=["silent", "half a head", "byte by byte", "the second head"],
)
async def test_a_head_that_does_not_come_in_time_ends_its_connection(
    first: bytes, drop: bytes
) -> None:
    async with (
        asyncio.timeout(ENDS_WITHIN_S),
        listening(_hello, ConnectionBounds(header_receive_s=0.3)) as door,
    ):
        ends = await connect(door.port)
        ends[1].write(first)
        said = await _drip(ends, drop)
        assert said.count(b"HTTP/1.1 200") == first.count(b"\r\n\r\n")
        assert door.ended("header") == 1


async def test_who_shakes_no_hands_is_one_who_sends_no_head() -> None:
    async with (
        asyncio.timeout(ENDS_WITHIN_S),
        listening(_hello, ConnectionBounds(header_receive_s=0.3)) as door,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        assert await _rest_of(reader) == b""
        assert door.ended("header") == 1
        writer.close()


@pytest.mark.parametrize("drop", [b"", b"a"], ids=["stalls", "drips"])
async def test_a_body_that_does_not_come_in_time_is_told_so_and_holds_no_place(
    place: Served, drop: bytes
) -> None:
    bounds = ConnectionBounds(body_receive_s=0.3, connections_max=2)
    async with asyncio.timeout(ENDS_WITHIN_S), listening(place.engine, bounds) as door:
        ends = await connect(door.port)
        ends[1].write(CHAT + b'content-length: 9999\r\n\r\n{"model": ')
        head, _, body = (await _drip(ends, drop)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408")
        assert b"connection: close" in head
        assert json.loads(body)["error"]["code"] == "request_timeout"
        assert door.ended("body") == 1

        again = await connect(door.port)
        again[1].write(_chat(max_tokens=2))
        assert (await _said(again[0]))[0] == 200
        await _closed(again)


async def test_a_body_in_slow_pieces_that_comes_in_time_is_read(place: Served) -> None:
    async with (
        asyncio.timeout(ENDS_WITHIN_S),
        listening(place.engine, ConnectionBounds()) as door,
    ):
        reader, writer = await connect(door.port)
        for piece in _chat(max_tokens=2).partition(b"hello"):
            writer.write(piece)
            await asyncio.sleep(0.05)
        assert (await _said(reader))[0] == 200
        await _closed((reader, writer))


@pytest.mark.parametrize("of", ["a body", "blank lines"])
async def test_what_drips_in_behind_an_answer_keeps_no_connection_open(of: str) -> None:
    first, drop = {
        "a body": (b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 9999\r\n\r\n", b"b"),
        "blank lines": (GOOD, b"\r\n"),
    }[of]
    bounds = ConnectionBounds(body_receive_s=0.3, keep_alive_s=0.3 if of == "blank lines" else 60.0)
    async with asyncio.timeout(ENDS_WITHIN_S), listening(_hello, bounds) as door:
        ends = await connect(door.port)
        ends[1].write(first)
        assert (await _drip(ends, drop)).startswith(b"HTTP/1.1 200")


async def test_a_body_that_arrives_behind_its_answer_leaves_the_connection_good() -> None:
    bounds = ConnectionBounds(body_receive_s=0.3)
    async with asyncio.timeout(ENDS_WITHIN_S), listening(_hello, bounds) as door:
        reader, writer = await connect(door.port)
        writer.write(b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 4\r\n\r\n")
        assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        writer.write(b"body")
        await asyncio.sleep(0.6)
        writer.write(GOOD)
        assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await _closed((reader, writer))


async def test_a_body_that_is_too_long_is_told_so_and_not_read_for_ever(place: Served) -> None:
    async with (
        asyncio.timeout(ENDS_WITHIN_S),
        listening(place.engine, ConnectionBounds()) as door,
    ):
        ends = await connect(door.port)
        ends[1].write(CHAT + b"content-length: %d\r\n\r\n" % (1 << 40))
        answer = await _drip(ends, b" " * (1 << 18))
        assert answer.startswith(b"HTTP/1.1 413")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_too_large"
        assert door.ended("body") == 1


async def test_a_connection_that_rests_too_long_is_closed() -> None:
    bounds = ConnectionBounds(keep_alive_s=0.3, header_receive_s=60.0)
    async with asyncio.timeout(ENDS_WITHIN_S), listening(_hello, bounds) as door:
        reader, writer = await connect(door.port)
        writer.write(GOOD)
        assert (await _rest_of(reader)).startswith(b"HTTP/1.1 200")
        await _closed((reader, writer))


async def test_one_that_is_served_for_longer_than_anything_else_may_take_is_not() -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.5)
        await _hello(scope, receive, send)

    bounds = ConnectionBounds(header_receive_s=0.1, body_receive_s=0.1, keep_alive_s=0.1)
    async with asyncio.timeout(ENDS_WITHIN_S), listening(slow, bounds) as door:
        reader, writer = await connect(door.port)
        writer.write(GOOD)
        await asyncio.sleep(0.05)
        writer.write(GOOD[:10])
        assert (await _rest_of(reader)).startswith(b"HTTP/1.1 200")
        await _closed((reader, writer))


async def test_the_oldest_that_asked_for_nothing_makes_room() -> None:
    bounds = ConnectionBounds(connections_max=6)
    async with asyncio.timeout(ENDS_WITHIN_S), listening(_hello, bounds) as door:
        silent = await _opened(door, 6, GOOD[:10])
        ((reader, writer),) = await _opened(door, 1, GOOD)
        assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert [await _is_open(each) for each in silent] == [False] + [True] * 5
        assert door.ended("crowded") == 1
        await _closed(*silent, (reader, writer))


async def test_who_rests_between_requests_goes_after_them_and_the_longest_first() -> None:
    bounds = ConnectionBounds(connections_max=6)
    async with asyncio.timeout(ENDS_WITHIN_S), listening(_hello, bounds) as door:
        resting = await _opened(door, 5, GOOD)
        for reader, _ in resting:
            assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        silent = await _opened(door, 2)
        assert [await _is_open(each) for each in silent] == [False, True]
        newer = await _opened(door, 1, GOOD)
        assert not await _is_open(silent[1])
        newer += await _opened(door, 1, GOOD)
        assert [await _is_open(each) for each in resting] == [False] + [True] * 4
        await _closed(*silent, *resting, *newer)


async def test_nobody_who_is_served_makes_room_and_the_newcomer_is_sent_away() -> None:
    go_on = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        await _hello(scope, receive, send)

    async with (
        asyncio.timeout(ENDS_WITHIN_S),
        listening(slow, ConnectionBounds(connections_max=4)) as door,
    ):
        served_now = await _opened(door, 4, GOOD)
        newcomers: list[Ends] = []
        with suppress(ConnectionError):  # Over TLS he is sent away before hands are shaken.
            newcomers = await _opened(door, 1, GOOD)
        assert not any([await _is_open(each) for each in newcomers])
        go_on.set()
        for reader, _ in served_now:
            assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await _closed(*served_now, *newcomers)


async def test_when_all_places_are_taken_the_next_is_busy_and_an_operator_is_answered(
    place: Served,
) -> None:
    bounds = ConnectionBounds(connections_max=8)
    async with asyncio.timeout(ENDS_WITHIN_S), listening(place.engine, bounds) as door:
        place.fragile.may_run.clear()
        taken = await _opened(door, bounds.requests_max, _chat(max_tokens=2))
        silent = await _opened(door, 8 - bounds.requests_max)

        ((reader, writer),) = await _opened(door, 1, _chat(max_tokens=2))
        status, headers, body = await _said(reader)
        assert (status, json.loads(body)["error"]["code"]) == (503, "busy")
        understood = decode_error(status, body, float(headers[b"retry-after"]))
        assert understood.retryable
        assert understood.retry_after_s == 1.0

        for path in (b"GET /health/live", b"GET /health/ready", b"GET /metrics", b"POST /drain"):
            ((asker, asking),) = await _opened(door, 1, path + b" HTTP/1.1\r\nhost: here\r\n\r\n")
            status, _, body = await _said(asker)
            assert status == 200, path
            if path.endswith(b"metrics"):
                assert b'gatewright_engine_requests_refused_total{code="busy"} 1.0' in body
                assert b"gatewright_engine_connections_max 8.0" in body
            await _closed((asker, asking))

        place.fragile.may_run.set()
        for each, _ in taken:
            assert (await _said(each))[0] == 200
        await _closed(*taken, *silent, (reader, writer))


async def test_long_bodies_have_room_together_and_short_ones_in_any_case(place: Served) -> None:
    app = EngineApp(max_held_body_bytes=250_000)
    app.attach("tiny", place.engine)
    long, short = _chat(max_tokens=2, user="x" * 100_000), _chat(max_tokens=2)
    async with asyncio.timeout(ENDS_WITHIN_S), listening(app, ConnectionBounds()) as door:
        place.fragile.may_run.clear()
        served_now = await _opened(door, 1, long)
        half_sent = await _opened(door, 1, long[:-1])
        served_now += await _opened(door, 2, short)
        while app._room._left_bytes > 100_000:
            await asyncio.sleep(0.01)

        (late,) = await _opened(door, 1, long)
        status, headers, body = await _said(late[0])
        assert (status, json.loads(body)["error"]["code"]) == (503, "busy")
        assert headers[b"retry-after"] == b"1"

        await _closed(*half_sent, late)
        while app._room._left_bytes < 100_000:
            await asyncio.sleep(0.01)
        served_now += await _opened(door, 1, long)
        place.fragile.may_run.set()
        for reader, _ in served_now:
            assert (await _said(reader))[0] == 200
        again = await _opened(door, 2, long)
        for reader, _ in again:
            assert (await _said(reader))[0] == 200
        await _closed(*served_now, *again)


async def test_a_reader_that_stops_in_mid_stream_gives_its_blocks_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model_directory(tmp_path / "long", tiny_spec(context_window=1 << 15))
    asked = {
        "stream": True,
        "logprobs": True,
        "top_logprobs": 20,
        "return_token_ids": True,
        "max_tokens": 30_000,
        "ignore_eos": True,
    }
    async with (
        asyncio.timeout(60.0),
        served(tmp_path / "long", max_running=1) as place,
        listening(place.engine, ConnectionBounds(unread_s=0.5)) as door,
    ):
        reader, writer = await connect(door.port, receive_bytes=4096)
        writer.write(_chat(**asked))
        await reader.readuntil(b"data: ")
        assert place.scheduler.num_running == 1
        # From here on nothing is read.
        while place.scheduler.has_work:
            await asyncio.sleep(0.02)
        place.scheduler.check()
        assert place.scheduler.blocks.pool.num_free == place.scheduler.limits.num_blocks
        metrics = place.engine.metrics.render(place.engine.stats()).decode()
        assert 'requests_total{finish_reason="abort"} 1.0' in metrics
        assert 'finish_reason="length"' not in metrics
        writer.close()


@pytest.mark.parametrize("is_taken", [False, True])
async def test_who_takes_a_whole_answer_by_drops_does_not_keep_it_in_memory(
    *, is_taken: bool
) -> None:
    async def long(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": LONG_ANSWER})

    bounds = ConnectionBounds(unread_s=0.5)
    async with asyncio.timeout(60.0), listening(long, bounds) as door:
        reader, writer = await connect(door.port, receive_bytes=65536)
        writer.write(GOOD.replace(b"here", b"here\r\nconnection: close"))
        num_bytes = 0
        with suppress(ConnectionError):
            for _ in range(30):  # Longer than may be, and so much of it as is taken.
                await asyncio.sleep(0.1)
                for _ in range(100 if is_taken else 1):
                    num_bytes += len(await reader.read(4096 if is_taken else 1))
            while piece := await reader.read(1 << 20):
                num_bytes += len(piece)
        assert (num_bytes > len(LONG_ANSWER)) == is_taken
        assert door.ended("unread") == (0 if is_taken else 1)
        writer.close()


async def test_what_is_no_request_is_told_so_as_clients_read_it() -> None:
    async with (
        asyncio.timeout(ENDS_WITHIN_S),
        listening(_hello, ConnectionBounds()) as door,
    ):
        long = b"GET / HTTP/1.1\r\nhost: here\r\nx: %b\r\n\r\n" % (b"a" * http.HEAD_BYTES_MAX)
        for sent in (b"junk\r\n\r\n", long):
            reader, writer = await connect(door.port)
            writer.write(sent)
            status, headers, body = await _said(reader)
            assert (status, json.loads(body)["error"]["code"]) == (400, "invalid_http")
            assert headers[b"connection"] == b"close"
            assert await _rest_of(reader) == b""
            await _closed((reader, writer))


async def test_a_head_that_never_ends_is_cut_off() -> None:
    async with (
        asyncio.timeout(ENDS_WITHIN_S),
        listening(_hello, ConnectionBounds(header_receive_s=60.0)) as door,
    ):
        ends = await connect(door.port)
        ends[1].write(b"GET / HTTP/1.1\r\nhost: here\r\nx: ")
        assert await _drip(ends, b"a" * 65536) == b""
        assert door.ended("header") == 1


async def test_pipelined_requests_are_answered_in_their_order_and_not_any_number() -> None:
    async def path(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(0.01)
        await send({"type": "http.response.body", "body": b"<%b>" % scope["raw_path"]})

    asked = [b"GET /%d HTTP/1.1\r\nhost: here\r\n\r\n" % each for each in range(10)]
    async with (
        asyncio.timeout(ENDS_WITHIN_S),
        listening(path, ConnectionBounds(body_receive_s=0.3)) as door,
    ):
        reader, writer = await connect(door.port)
        writer.write(b"".join(asked))
        said = b""
        while said.count(b"<") < 10:
            said += await reader.read(4096)
        order = [said.index(b"</%d>" % each) for each in range(10)]
        assert order == sorted(order)
        writer.write(b"".join(asked * 2))
        assert (await _rest_of(reader)).count(b"<") < 20
        await _closed((reader, writer))


async def test_an_offer_of_another_protocol_hinders_nobody(place: Served) -> None:
    """Java's own client makes one in the first request of a connection."""
    offer = b"connection: Upgrade, HTTP2-Settings\r\nhttp2-settings: AAEAAEAAAAIAAAAB\r\n"
    async with (
        asyncio.timeout(ENDS_WITHIN_S),
        listening(place.engine, ConnectionBounds(body_receive_s=2.0)) as door,
    ):
        reader, writer = await connect(door.port)
        asked = _chat(max_tokens=2)
        writer.write(asked.replace(b"host", offer + b"upgrade: h2c\r\nhost", 1))
        assert (await _said(reader))[0] == 200
        writer.write(asked)
        assert (await _said(reader))[0] == 200
        await _closed((reader, writer))


_HIDDEN = b"GET /hidden HTTP/1.1\r\nhost: here\r\n\r\n"
_LENGTH = b"content-length: %d\r\n" % len(_HIDDEN)
_CAPITALS = b"POST /seen HTTP/1.1\r\nhost: here\r\nconnection: upgrade\r\nUPGRADE: h2c\r\n"
_OFFERING = _CAPITALS.replace(b"UPGRADE", b"Upgrade")


@pytest.mark.parametrize(
    "pieces",
    [
        [_CAPITALS + _LENGTH + b"\r\n", _HIDDEN],
        [_CAPITALS + _LENGTH + b"\r\n" + _HIDDEN],
        [_OFFERING[:-10], _OFFERING[-10:] + _LENGTH + b"\r\n", _HIDDEN],
        [_OFFERING[:-5], _OFFERING[-5:] + _LENGTH + b"\r\n", _HIDDEN],
        [GOOD + _OFFERING + _LENGTH + b"\r\n", _HIDDEN],
        [b"CONNECT here:80 HTTP/1.1\r\nhost: here\r\n" + _LENGTH + b"\r\n", _HIDDEN],
    ],
    ids=["capitals", "whole", "a torn name", "a torn value", "pipelined", "CONNECT"],
)
async def test_a_body_behind_an_offer_is_never_taken_for_a_request(pieces: list[bytes]) -> None:
    heard: list[str] = []

    async def hears(scope: Any, receive: Any, send: Any) -> None:
        heard.append(scope["path"])
        await _hello(scope, receive, send)

    last = b"GET /last HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n"
    async with asyncio.timeout(ENDS_WITHIN_S), listening(hears, ConnectionBounds()) as door:
        reader, writer = await connect(door.port)
        with suppress(ConnectionError):
            for piece in (*pieces, last):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.03)
            while await reader.read(65536):
                pass
        await _closed((reader, writer))

    assert "/hidden" not in heard


_CHUNKS = b"1\r\na\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\n\r\na",
        b"POST / HTTP/1.1\r\nhost: here\r\nhost: there\r\ncontent-length: 1\r\n\r\na",
        b"POST / HTTP/2.0\r\nhost: here\r\ncontent-length: 1\r\n\r\na",
        b"POST / HTTP/0.9\r\nhost: here\r\ncontent-length: 1\r\n\r\na",
        b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n" + _CHUNKS,
        b"POST / HTTP/1.1\r\nhost: here\r\ntransfer-encoding: gzip, chunked\r\n\r\n" + _CHUNKS,
    ],
    ids=["no host", "two hosts", "HTTP/2", "HTTP/0.9", "chunks of an old client", "gzip below"],
)
async def test_a_request_that_a_server_in_front_may_read_otherwise_is_refused(sent: bytes) -> None:
    async with asyncio.timeout(ENDS_WITHIN_S), listening(_hello, ConnectionBounds()) as door:
        reader, writer = await connect(door.port)
        writer.write(sent)
        assert (await _said(reader))[0] == 400
        await _closed((reader, writer))


@pytest.mark.parametrize("torn", [1, 2, 3])
async def test_a_body_keeps_its_lines_wherever_its_head_is_torn(torn: int) -> None:
    async def echoes(scope: Any, receive: Any, send: Any) -> None:
        said = (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": said})

    body = b"a\r\nUpgrade: is no offer\r\n\r\nb"
    head = b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n" % len(body)
    async with asyncio.timeout(ENDS_WITHIN_S), listening(echoes, ConnectionBounds()) as door:
        reader, writer = await connect(door.port)
        writer.write(head[:-torn])
        await writer.drain()
        await asyncio.sleep(0.03)
        writer.write(head[-torn:] + body)
        assert (await reader.readuntil(b"b\r\n0\r\n\r\n")).count(body) == 1
        await _closed((reader, writer))


async def test_what_is_said_behind_a_body_is_no_header() -> None:
    async def tenants(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        named = [value for name, value in scope["headers"] if name == b"x-gatewright-tenant"]
        await send({"type": "http.response.body", "body": repr(named).encode()})

    head = b"POST / HTTP/1.1\r\nhost: here\r\nx-gatewright-tenant: ours\r\n"
    body = b"2\r\nhi\r\n0\r\nx-gatewright-tenant: theirs\r\n\r\n"
    async with (
        asyncio.timeout(ENDS_WITHIN_S),
        listening(tenants, ConnectionBounds()) as door,
    ):
        reader, writer = await connect(door.port)
        writer.write(head + b"transfer-encoding: chunked\r\n\r\n" + body)
        assert b"[b'ours']" in await reader.readuntil(b"0\r\n\r\n")
        await _closed((reader, writer))


async def test_a_listener_ends_while_somebody_has_not_asked_yet() -> None:
    async with asyncio.timeout(ENDS_WITHIN_S):
        async with listening(_hello, ConnectionBounds(header_receive_s=600.0)) as door:
            reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
            while not door.crowd._unheard:
                await asyncio.sleep(0.01)
        assert await _rest_of(reader) == b""
        writer.close()


def test_files_are_left_for_what_is_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(files: int) -> int:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
        return connections_permitted(1024)

    assert limited(1000) == 750
    assert limited(65536) == limited(resource.RLIM_INFINITY) == 1024
