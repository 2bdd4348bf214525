"""One exchange: a bounded body in, pieces out, and a caller who may leave at any moment."""

import asyncio
import gzip
import random
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import structs

from gateway.api.deadlines import Deadlines
from gateway.api.exchange import Bounds, Exchange
from gateway.api.inflating import PIECE_BYTES, READ_BYTES, check_encoding, inflated
from gateway.api.room import Room
from gateway.errors import BodyTooLarge, EncodingRefused, RequestInvalid, Unavailable


pytestmark = pytest.mark.anyio


class Wire:
    """The other side of ASGI: messages that come, and those that were sent."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.coming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for message in messages:
            self.coming.put_nowait(message)
        self.sent: list[dict[str, Any]] = []

    def exchange(self, *headers: tuple[bytes, bytes], deadline_s: float = 60.0) -> Exchange:
        async def send(message: Any) -> None:
            self.sent.append(message)

        scope: Any = {"type": "http", "method": "POST", "headers": list(headers)}
        receive: Callable[[], Awaitable[Any]] = self.coming.get
        bounds = Bounds(
            10, 1000, body_receive_s=0.05, room=Room(10**9), deadlines=Deadlines(deadline_s)
        )
        return Exchange(scope, receive, send, bounds)


def piece(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


GONE: dict[str, Any] = {"type": "http.disconnect"}


async def test_a_body_is_joined_from_its_pieces() -> None:
    exchange = Wire(piece(b"abc", more=True), piece(b"", more=True), piece(b"def")).exchange()

    assert await exchange.read_body() == b"abcdef"
    exchange.close()


@pytest.mark.parametrize(
    "messages",
    [
        (piece(b"x" * 11),),
        (piece(b"x" * 11, more=True),),
        (piece(b"x" * 6, more=True), piece(b"x" * 5)),
    ],
)
async def test_a_body_over_the_limit_is_refused_as_soon_as_it_shows(
    messages: tuple[dict[str, Any], ...],
) -> None:
    with pytest.raises(BodyTooLarge):
        await Wire(*messages).exchange().read_body()


@pytest.mark.parametrize("length", [b"11", b"99999999999999999999"])
async def test_a_length_over_the_limit_is_refused_unread(length: bytes) -> None:
    wire = Wire(piece(b"x"))

    with pytest.raises(BodyTooLarge):
        await wire.exchange((b"content-length", length)).read_body()

    assert wire.coming.qsize() == 1


@pytest.mark.parametrize("begun", [(), (piece(b"x", more=True),)])
async def test_a_body_that_does_not_come_in_time_is_refused(
    begun: tuple[dict[str, Any], ...],
) -> None:
    with pytest.raises(RequestInvalid, match="in time"):
        await Wire(*begun).exchange().read_body()


@pytest.mark.parametrize("encodings", [(b"br",), (b"zstd",), (b"gzip, gzip",), (b"gzip", b"gzip")])
async def test_an_encoding_that_cannot_be_bounded_is_refused_unread(
    encodings: tuple[bytes, ...],
) -> None:
    wire = Wire(piece(b"x"))

    with pytest.raises(EncodingRefused, match="gzip, deflate"):
        await wire.exchange(*((b"content-encoding", each) for each in encodings)).read_body()
    assert wire.coming.qsize() == 1


@pytest.mark.parametrize(
    "body", [b"x", gzip.compress(b"ab")[:-4], gzip.compress(b"a") + gzip.compress(b"b")]
)
async def test_a_broken_cut_or_doubled_compressed_body_is_refused(body: bytes) -> None:
    with pytest.raises(RequestInvalid, match="content-encoding"):
        await inflated(body, b"gzip", 100)


@pytest.mark.parametrize("encoding", [b"gzip", b"x-gzip", b"deflate"])
async def test_a_body_may_come_compressed(encoding: bytes) -> None:
    compress = zlib.compress if encoding == b"deflate" else gzip.compress
    check_encoding(encoding)
    assert await inflated(compress(b'{"model":"m"}'), encoding, 100) == b'{"model":"m"}'


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
async def test_a_compressed_body_is_inflated_up_to_the_limit_and_not_a_piece_further(
    encoding: bytes,
) -> None:
    compress = gzip.compress if encoding == b"gzip" else zlib.compress
    plain = bytes(3 * PIECE_BYTES)
    assert await inflated(compress(plain), encoding, len(plain)) == plain
    bomb = compress(bytes(40 * PIECE_BYTES))
    tracemalloc.start()
    with pytest.raises(BodyTooLarge, match="inflated"):
        await inflated(bomb, encoding, PIECE_BYTES)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most_bytes < 4 * PIECE_BYTES


@pytest.mark.parametrize("digits", [b"0" * 5000 + b"1", b"00"])
async def test_a_length_may_have_any_number_of_zeros_before_it(digits: bytes) -> None:
    exchange = Wire(piece(b"x")).exchange((b"content-length", digits))

    assert await exchange.read_body() == b"x"
    exchange.close()


async def test_a_length_of_more_digits_than_python_reads_is_too_long() -> None:
    with pytest.raises(BodyTooLarge):
        await Wire().exchange((b"content-length", b"9" * 5000)).read_body()


async def test_blocks_that_hold_nothing_leave_others_their_turns() -> None:
    """Of the dearest kind, with a code of its own each, ten megabytes take five seconds."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    packed = zlib.compress(b"x")
    nothing = b"\x00\x00\x00\xff\xff" * (8 * READ_BYTES // 5)
    waiting = asyncio.ensure_future(others())
    assert await inflated(packed[:2] + nothing + packed[2:], b"deflate", 10) == b"x"
    waiting.cancel()

    assert turns > 7


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
@pytest.mark.parametrize("behind", [b"", b"more", bytes(2 * READ_BYTES)])
async def test_a_body_of_many_reads_is_one_stream_to_its_last_byte(
    encoding: bytes, behind: bytes
) -> None:
    compress = gzip.compress if encoding == b"gzip" else zlib.compress
    plain = random.Random(5).randbytes(5 * READ_BYTES)
    body = compress(plain)
    cuts = (body[: 2 * READ_BYTES], body[:-1], body + b"x")
    assert len(body) > len(plain)

    if behind:
        with pytest.raises(RequestInvalid):
            await inflated(body + behind, encoding, 2 * len(plain))
    else:
        assert await inflated(body, encoding, len(plain)) == plain
        for cut in cuts:
            with pytest.raises(RequestInvalid):
                await inflated(cut, encoding, len(plain))


@pytest.mark.parametrize("before", [(), (piece(b"x", more=True),)])
async def test_leaving_while_sending_cancels(before: tuple[dict[str, Any], ...]) -> None:
    exchange = Wire(*before, GONE).exchange()

    with pytest.raises(asyncio.CancelledError):
        await exchange.read_body()

    assert exchange.caller_left


async def test_leaving_while_being_served_cancels_the_work() -> None:
    wire = Wire(piece(b"x"))
    exchange = wire.exchange()

    async def serve() -> None:
        await exchange.read_body()
        wire.coming.put_nowait(GONE)
        await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(serve())

    assert exchange.caller_left


async def test_the_end_of_an_answer_is_not_taken_for_leaving() -> None:
    wire = Wire(piece(b"x"))
    exchange = wire.exchange()
    await exchange.read_body()
    await exchange.answer(200, {"x": "y"}, b"done")
    wire.coming.put_nowait(GONE)
    for _ in range(5):
        await asyncio.sleep(0)

    assert not exchange.caller_left
    assert wire.sent[0]["headers"] == [(b"x", b"y"), (b"content-length", b"4")]
    assert wire.sent[1]["body"] == b"done"


async def test_the_head_of_a_stream_leaves_with_its_first_piece() -> None:
    wire = Wire(piece(b"x"))
    exchange = wire.exchange()
    await exchange.read_body()
    exchange.begin_stream({"a": "b"})
    assert not exchange.started

    await exchange.write(b"one")
    await exchange.write(b"two")
    await exchange.end_stream()

    assert [message.get("body", b"head") for message in wire.sent] == [b"head", b"one", b"two", b""]
    assert exchange.started


async def test_who_has_not_read_long_after_the_deadline_has_left() -> None:
    wire = Wire(piece(b"x"))
    exchange = wire.exchange(deadline_s=0.01)

    async def serve() -> None:
        await exchange.read_body()
        await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(serve())

    assert exchange.caller_left
    exchange.close()


async def test_a_bomb_is_held_piece_by_piece_and_put_down_where_there_is_no_room() -> None:
    taken: list[int] = []

    class Watched(Room):
        def take(self, length_bytes: int) -> None:
            taken.append(length_bytes)
            super().take(length_bytes)

    wire = Wire(piece(gzip.compress(bytes(5_000_000))))
    exchange = wire.exchange((b"content-encoding", b"gzip"))
    bounds = structs.replace(exchange._bounds, body_bytes_max=10**7, room=Watched(1_000_000))
    exchange._bounds = bounds
    with pytest.raises(Unavailable):
        await exchange.read_body()
    exchange.close()

    assert max(taken) <= PIECE_BYTES
    bounds.room.take(1_000_000)  # All of it was given back.
