"""What our own HTTP client believes, and what it does not: byte for byte, on a real socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from gateway.errors import (
    GatewrightError,
    UpstreamMalformed,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.providers.egress.client import Egress, Route
from gateway.providers.egress.connection import BUFFERED_BYTES_MAX, HEAD_BYTES_MAX, Connection
from gateway.providers.egress.endpoint import parse_endpoint
from gateway.providers.egress.pace import FREE_BYTES, HASTY_BYTES, PACE_BYTES_S, SLICE_BYTES, Pace
from gateway.providers.egress.reply import EgressLimits, EgressReply
from tests.gateway.providers.samples import HOME, make_call


pytestmark = pytest.mark.anyio

GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"


class RawUpstream:
    """Answers the n-th request with the n-th list of bytes; None closes the connection."""

    def __init__(self, *answers: list[bytes | None]) -> None:
        self._answers = list(answers)
        self.connections = 0
        self.requests = 0
        self.sent_bytes = 0
        self.port = 0
        self.handlers: list[asyncio.Task[None] | None] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.handlers.append(asyncio.current_task())
        self.writers.append(writer)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._answer(reader, writer):
                    pass
            writer.close()
            await writer.wait_closed()
        except (asyncio.CancelledError, ConnectionError):
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length or b"0"))
        self.requests += 1
        for piece in self._answers.pop(0) if self._answers else [GOOD]:
            if piece is None:
                return False
            writer.write(piece)
            self.sent_bytes += len(piece)
            await writer.drain()
            await asyncio.sleep(0)
        return True

    def route(self, egress: Egress) -> Route:
        endpoint = parse_endpoint("raw", f"http://127.0.0.1:{self.port}", HOME)
        return egress.route(endpoint, "/v1/chat/completions", {})


@asynccontextmanager
async def running(*answers: list[bytes | None]) -> AsyncIterator[RawUpstream]:
    upstream = RawUpstream(*answers)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    upstream.port = server.sockets[0].getsockname()[1]
    try:
        yield upstream
    finally:
        server.close()
        for handler in upstream.handlers:
            if handler is not None:
                handler.cancel()
                await asyncio.wait([handler])


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    made = Egress(EgressLimits(connections_per_host_max=1, first_byte_s=5.0, idle_s=5.0))
    yield made
    await made.close()


async def fetch(egress: Egress, upstream: RawUpstream) -> bytes:
    reply = await egress.open(upstream.route(egress), make_call())
    try:
        return await reply.read()
    finally:
        await reply.close()


async def flow_to_its_end(reply: EgressReply) -> None:
    await reply.flow(lambda _: False)
    await anext(reply.chunks())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


async def test_a_reply_in_single_bytes_is_the_same_reply(egress: Egress) -> None:
    async with running([GOOD[at : at + 1] for at in range(len(GOOD))]) as upstream:
        assert await fetch(egress, upstream) == b"hello"


async def test_interim_answers_are_passed_over(egress: Egress) -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\ncontent-encoding: gzip\r\n\r\n"
    async with running([b"HTTP/1.1 100 Continue\r\n\r\n", interim, GOOD]) as upstream:
        assert await fetch(egress, upstream) == b"hello"


async def test_a_body_without_a_length_ends_with_its_connection(egress: Egress) -> None:
    async with running([b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo", None]) as upstream:
        assert await fetch(egress, upstream) == b"hello"
        assert await fetch(egress, upstream) == b"hello"
        assert upstream.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-le",
    ],
    ids=["short of its length", "without the last chunk", "in its head"],
)
async def test_a_reply_that_was_cut_is_never_taken_for_a_whole_one(
    egress: Egress, answer: bytes
) -> None:
    async with running([answer, None]) as upstream:
        with pytest.raises(UpstreamUnreachable):
            await fetch(egress, upstream)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: other\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000,
    ],
    ids=["two lengths", "unequal lengths", "a bad chunk", "an upgrade", "a huge head"],
)
async def test_a_reply_that_could_be_read_in_two_ways_is_refused(
    egress: Egress, answer: bytes
) -> None:
    async with running([answer]) as upstream:
        with pytest.raises(UpstreamMalformed):
            await fetch(egress, upstream)
        assert await fetch(egress, upstream) == b"hello"
        assert upstream.connections == 2


async def test_a_second_content_encoding_counts_too(egress: Egress) -> None:
    twice = b"\r\ncontent-encoding: identity\r\ncontent-encoding: gzip\r\n"
    async with running([GOOD.replace(b"\r\n", twice, 1)]) as upstream:
        with pytest.raises(UpstreamMalformed):
            await fetch(egress, upstream)


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"gzip", b"chunked, identity", b"xchunked"])
async def test_what_is_coded_below_its_chunks_is_no_body(egress: Egress, coding: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: %b\r\n\r\n5\r\nhello\r\n0\r\n\r\n" % coding
    async with running([answer]) as upstream:
        with pytest.raises(UpstreamMalformed):
            await fetch(egress, upstream)
    async with running([answer.replace(coding, b"Chunked")]) as upstream:
        assert await fetch(egress, upstream) == b"hello"


async def test_bytes_behind_a_reply_never_answer_the_next_request(egress: Egress) -> None:
    poison = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison"
    async with running([GOOD + poison]) as upstream:
        assert await fetch(egress, upstream) == b"hello"
        assert await fetch(egress, upstream) == b"hello"
        assert upstream.connections == 2


async def test_what_arrives_while_nobody_asked_ends_the_connection(egress: Egress) -> None:
    async with running([GOOD, b"HTTP/1.1 200 OK\r\n"]) as upstream:
        assert await fetch(egress, upstream) == b"hello"
        await until(lambda: upstream.sent_bytes > len(GOOD))
        assert await fetch(egress, upstream) == b"hello"
        assert upstream.connections == 2


@pytest.mark.parametrize(
    ("kind", "length"), [(b"application/json", BUFFERED_BYTES_MAX), (b"text/event-stream", 9000)]
)
async def test_bytes_behind_a_reply_that_was_not_taken_yet_never_answer_who_waits(
    egress: Egress, kind: bytes, length: int
) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
    answer = head % (kind, length + 1) + b"a" * (length + 1)
    async with running([answer]) as upstream:
        first = await egress.open(upstream.route(egress), make_call())
        second = asyncio.ensure_future(fetch(egress, upstream))  # There is one connection.
        await until(lambda: first._connection.is_complete)
        await asyncio.sleep(0.05)
        upstream.writers[0].write(GOOD.replace(b"hello", b"theft"))
        await asyncio.sleep(0.05)

        with contextlib.suppress(UpstreamMalformed):
            await first.read()
        await first.close()

        assert await second == b"hello"
        assert upstream.connections == 2


async def test_a_length_with_more_digits_than_python_reads_is_that_length(egress: Egress) -> None:
    answer = GOOD.replace(b": 5", b": " + b"0" * 5000 + b"5")
    async with running([answer]) as upstream:
        assert await fetch(egress, upstream) == b"hello"


async def test_a_connection_the_upstream_wants_closed_is_not_used_again(egress: Egress) -> None:
    closing = GOOD.replace(b"content-length", b"connection: close\r\ncontent-length")
    async with running([closing]) as upstream:
        await fetch(egress, upstream)
        await fetch(egress, upstream)
        assert upstream.connections == 2


async def test_a_connection_whose_upstream_answered_before_it_had_read_all_is_not_used_again(
    egress: Egress,
) -> None:
    class Hasty(RawUpstream):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self.connections:
                await super().serve(reader, writer)
                return
            self.connections += 1
            await reader.readuntil(b"\r\n\r\n")
            writer.write(GOOD)
            await is_over.wait()
            writer.transport.abort()

    is_over = asyncio.Event()
    upstream = Hasty()
    async with await asyncio.start_server(upstream.serve, "127.0.0.1", 0) as server:
        upstream.port = server.sockets[0].getsockname()[1]
        long = msgspec.structs.replace(make_call(), body=b"x" * 32 * 1024 * 1024)
        reply = await egress.open(upstream.route(egress), long)
        assert await reply.read() == b"hello"
        assert await fetch(egress, upstream) == b"hello"
        assert upstream.connections == 2
        is_over.set()
        await egress.close()


async def test_a_connection_that_rested_too_long_is_closed() -> None:
    egress = Egress(EgressLimits(keep_alive_s=0.01))
    async with running() as upstream:
        await fetch(egress, upstream)
        await asyncio.sleep(0.1)
        await fetch(egress, upstream)
        assert upstream.connections == 2
        await egress.close()


async def test_who_finds_every_connection_taken_waits_for_one(egress: Egress) -> None:
    async with running() as upstream:
        first = await egress.open(upstream.route(egress), make_call())
        second = asyncio.create_task(fetch(egress, upstream))
        await asyncio.sleep(0.01)
        assert upstream.requests == 1
        await first.read()
        assert await second == b"hello"
        assert upstream.connections == 1


async def test_who_waits_too_long_for_a_connection_is_told_so(egress: Egress) -> None:
    async with running() as upstream:
        first = await egress.open(upstream.route(egress), make_call())
        with pytest.raises(UpstreamTimeout):
            await egress.open(upstream.route(egress), make_call(deadline_s=0.02))
        await first.close()
        assert await fetch(egress, upstream) == b"hello"


async def test_a_caller_who_does_not_read_holds_the_upstream_back(egress: Egress) -> None:
    size = 16 * 1024 * 1024
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size
    piece = b"x" * (64 * 1024)
    async with running([head, *[piece] * (size // len(piece))]) as upstream:
        reply = await egress.open(upstream.route(egress), make_call())
        before = -1
        while before != upstream.sent_bytes:
            before = upstream.sent_bytes
            await asyncio.sleep(0.05)
        assert BUFFERED_BYTES_MAX < before < size
        assert len(await reply.read()) == size


async def test_who_leaves_a_long_answer_unread_holds_nobody_else_back(egress: Egress) -> None:
    size = BUFFERED_BYTES_MAX + 1
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size
    async with running([head, b"x" * (size - 1), b"x"]) as upstream:
        reply = await egress.open(upstream.route(egress), make_call())
        await until(lambda: reply._connection.is_complete)
        await reply.close()
        assert await fetch(egress, upstream) == b"hello"
        assert upstream.connections == 1


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def test_a_body_flows_whole_and_in_order_whoever_stops_it(egress: Egress) -> None:
    pieces = [b"4\r\n%04d\r\n" % number for number in range(200)]
    async with running([CHUNKED, *pieces, b"0\r\n\r\n"]) as upstream:
        reply = await egress.open(upstream.route(egress), make_call())
        taken: list[bytes] = []

        def take(piece: bytes) -> bool:
            taken.append(piece)
            return len(taken) % 3 == 0

        chunks = reply.chunks()
        with contextlib.suppress(StopAsyncIteration):
            while True:
                await reply.flow(take)
                await asyncio.sleep(0)  # What arrives meanwhile waits.
                taken.append(await anext(chunks))
        await reply.close()

        assert b"".join(taken) == b"".join(b"%04d" % number for number in range(200))
        assert await fetch(egress, upstream) == b"hello"
        assert upstream.connections == 1


async def test_the_length_of_a_body_is_known_however_it_came(egress: Egress) -> None:
    ending = b"5\r\nhello\r\n0\r\n\r\n"
    async with running([GOOD], [CHUNKED + ending], [CHUNKED, ending]) as upstream:
        for _ in range(3):
            reply = await egress.open(upstream.route(egress), make_call())
            assert await reply.read() == b"hello"
            assert reply.body_bytes == 5


async def test_a_trailer_changes_nothing_that_the_head_said(egress: Egress) -> None:
    name = b"x-ratelimit-remaining-requests"
    head = b"HTTP/1.1 429 Slow\r\n%b: 3\r\ntransfer-encoding: chunked\r\n\r\n" % name
    async with running([head + b"5\r\nhello\r\n0\r\n%b: 9\r\n\r\n" % name]) as upstream:
        reply = await egress.open(upstream.route(egress), make_call())
        assert await reply.read() == b"hello"
        assert reply.rate_limits == {name.decode(): "3"}
        assert await fetch(egress, upstream) == b"hello"
        assert upstream.connections == 1


async def test_trailers_without_end_are_refused(egress: Egress) -> None:
    async with running([CHUNKED, b"1\r\na\r\n0\r\nx: ", b"y" * 70_000, b"y"]) as upstream:
        with pytest.raises(UpstreamMalformed):
            await fetch(egress, upstream)


class Nowhere(asyncio.Transport):
    """Keeps what is sent, piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.sent += list_of_data


async def test_no_empty_piece_is_sent_which_newer_pythons_would_send_for_ever() -> None:
    transport = Nowhere()
    connection = Connection(asyncio.get_running_loop(), lambda _: None, Pace())
    connection.connection_made(transport)

    connection.send(b"head", b"")
    connection.send(b"head", b"body")

    assert transport.sent == [b"head", b"head", b"body"]


async def test_ends_of_chunks_that_come_by_themselves_are_no_headers() -> None:
    connection = Connection(asyncio.get_running_loop(), lambda _: None, Pace())
    connection.connection_made(Nowhere())
    connection.send(b"", b"")
    connection.data_received(CHUNKED)
    for _ in range(HEAD_BYTES_MAX // 2):
        connection.data_received(b"1\r\na")
        connection.data_received(b"\r\n")
        assert connection.take() == b"a"
    assert connection.is_usable


async def test_what_a_taker_raises_is_raised_where_it_was_awaited(egress: Egress) -> None:
    async with running([CHUNKED, b"1\r\na\r\n", b"1\r\nb\r\n"]) as upstream:
        reply = await egress.open(upstream.route(egress), make_call())

        def take(piece: bytes) -> bool:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await reply.flow(take)
        await reply.close()


async def test_what_flows_is_bounded_in_bytes_and_silence() -> None:
    egress = Egress(EgressLimits(idle_s=0.2, reply_bytes_max=3))
    async with running([CHUNKED, b"4\r\nabcd\r\n"], [CHUNKED, b"1\r\na\r\n"]) as upstream:
        for error in (UpstreamMalformed, UpstreamTimeout):
            reply = await egress.open(upstream.route(egress), make_call())
            with pytest.raises(error):
                await flow_to_its_end(reply)
            await reply.close()
    await egress.close()


async def test_a_question_without_content_is_asked_again_on_a_fresh_connection(
    egress: Egress,
) -> None:
    async with running([GOOD], [None], [GOOD]) as upstream:
        for _ in range(2):
            reply = await egress.ask(upstream.route(egress), 1.0)
            assert await reply.read() == b"hello"
        assert (upstream.connections, upstream.requests) == (2, 3)


async def test_a_question_is_not_asked_again_on_another_connection_that_was_kept() -> None:
    """Where one died unnoticed, others may have: of two that are kept, the second is not tried."""
    egress = Egress(EgressLimits(connections_per_host_max=2, first_byte_s=5.0, idle_s=5.0))
    async with running([GOOD], [GOOD], [None]) as upstream:
        both = [await egress.ask(upstream.route(egress), 1.0) for _ in range(2)]
        for reply in both:
            await reply.read()
        await (await egress.ask(upstream.route(egress), 1.0)).read()
        assert (upstream.connections, upstream.requests) == (3, 4)
    await egress.close()


async def test_a_request_with_content_is_never_sent_twice(egress: Egress) -> None:
    async with running([GOOD], [None]) as upstream:
        await fetch(egress, upstream)
        with pytest.raises(GatewrightError):
            await fetch(egress, upstream)
        assert upstream.requests == 2


async def test_a_header_that_could_end_its_line_is_no_header(egress: Egress) -> None:
    endpoint = parse_endpoint("raw", "http://127.0.0.1:9", HOME)
    with pytest.raises(ValueError, match="header"):
        egress.route(endpoint, "/v1/messages", {"authorization": "Bearer x\r\nhost: other"})


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def _streamed(*pieces: bytes | None) -> tuple[bytes, float, int]:
    """A stream that comes at once: what arrived, how long it took, the longest piece."""
    loop = asyncio.get_running_loop()
    egress = Egress(EgressLimits(idle_s=0.2))
    async with running([STREAM, b"1\r\n.\r\n", *pieces]) as upstream:
        reply = await egress.open(upstream.route(egress), make_call(stream=True))
        await anext(reply.chunks())
        began_s, said, longest = loop.time(), [], 0
        try:
            async for piece in reply.chunks():
                said.append(piece)
                longest = max(longest, len(piece))
        finally:
            await reply.close()
            await egress.close()
    return b"".join(said), loop.time() - began_s, longest


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def test_a_stream_faster_than_any_model_comes_whole_and_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = b"".join(b"data: %d\n\n" % number for number in range(8_000))
    monkeypatch.setattr("gateway.providers.egress.pace.FREE_BYTES", 0)
    said, took_s, longest = await _streamed(_chunk(words) + b"0\r\n\r\n")

    assert said == words
    assert took_s > 0.4, "a hundred kilobytes, and sixteen thousand ends of lines"
    assert longest <= HASTY_BYTES
    monkeypatch.undo()
    said, took_s, _ = await _streamed(_chunk(words) + b"0\r\n\r\n")
    assert (said, took_s < 0.4) == (words, True), "an answer that was held back as a whole"


@pytest.mark.parametrize("ending", [b"0\r\n\r\n", None], ids=["whole", "cut"])
@pytest.mark.parametrize("waits", [False, True])
async def test_a_stream_that_comes_at_once_is_read_in_slices_from_its_first_byte(
    egress: Egress, ending: bytes | None, *, waits: bool
) -> None:
    """With its head in one write; and where its reader comes after all of it, and its end."""
    words = b":\n\n" * 80_000
    async with running([STREAM + _chunk(words), ending]) as upstream:
        reply = await egress.open(upstream.route(egress), make_call(stream=True))
        pieces = []
        if waits:
            pieces.append(await anext(reply.chunks()))
            await until(lambda: upstream.sent_bytes > len(words))
        with contextlib.suppress(UpstreamUnreachable):
            while piece := await anext(reply.chunks(), b""):
                pieces.append(piece)
        await reply.close()

    assert b"".join(pieces) == words
    assert len(pieces[0]) <= SLICE_BYTES
    assert max(map(len, pieces)) <= SLICE_BYTES + HASTY_BYTES


async def test_between_slices_of_a_body_in_tiny_chunks_others_have_their_turns(
    egress: Egress,
) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    async with running([head + _chunk(b"a") * 40_000 + b"0\r\n\r\n"]) as upstream:
        reply = await egress.open(upstream.route(egress), make_call())
        reading = asyncio.ensure_future(reply.read())
        known, most = len(reply._connection._pieces), 0
        while not reading.done():
            await asyncio.sleep(0)
            pieces = len(reply._connection._pieces)
            known, most = pieces, max(most, pieces - known)
        assert await reading == b"a" * 40_000
    assert 0 < most <= HASTY_BYTES // len(_chunk(b"a")) + 1


async def test_a_hasty_stream_that_breaks_off_is_told_to_its_last_byte() -> None:
    words = b"a" * 200_000
    with pytest.raises(UpstreamUnreachable):
        await _streamed(b"%x\r\n" % (len(words) + 1) + words, None)


async def test_a_second_reply_behind_a_hasty_stream_is_no_answer_to_anybody(egress: Egress) -> None:
    hasty = _chunk(b"a" * 100_000) + b"0\r\n\r\n" + GOOD.replace(b"hello", b"later") * 1000
    async with running([STREAM, b"1\r\n.\r\n", hasty]) as upstream:
        reply = await egress.open(upstream.route(egress), make_call(stream=True))
        said = b"".join([piece async for piece in reply.chunks()])
        await reply.close()
        assert said == b"." + b"a" * 100_000
        assert await fetch(egress, upstream) == b"hello"
        assert upstream.connections == 2


async def test_hasty_streams_share_one_pace_and_a_whole_answer_has_none() -> None:
    pace = Pace()
    turns = [pace.next_s(10.0, b"a" * (PACE_BYTES_S // 64), FREE_BYTES + 1) for _ in range(64)]
    assert turns[-1] == pytest.approx(11.0)
    assert pace.next_s(20.0, b"\n\n", FREE_BYTES + 1) > 20.0 + 40 / PACE_BYTES_S
    loop, body = asyncio.get_running_loop(), b"x" * 8_000_000
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
    egress = Egress(EgressLimits())
    async with running([head + body]) as upstream:
        began_s = loop.time()
        assert await fetch(egress, upstream) == body
        assert loop.time() - began_s < 4.0
    await egress.close()
