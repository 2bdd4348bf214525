"""One HTTP/1.1 connection to an upstream: one exchange at a time, one parser, one timer.

It is our own because a general client costs too much here: a request became 100 µs cheaper when
this replaced aiohttp and its timeout per request (benchmarks/README.md). It parses with llhttp,
through httptools, in strict mode, and accepts the end of a body only where HTTP says that it ends.
"""

import asyncio
import math
import sys
from collections.abc import Callable
from typing import cast

import httptools

from gateway.errors import UpstreamFailed, UpstreamMalformed, UpstreamTimeout
from gateway.providers.egress.kept_headers import KEPT_HEADERS
from gateway.providers.egress.pace import HASTY_BYTES, SLICE_BYTES, Pace
from gateway.providers.egress.transport_faults import broken
from gateway.providers.egress.unsent import unsent_bytes


HEAD_BYTES_MAX = 64 * 1024
TOO_LARGE = "the upstream's reply is too large"
BUFFERED_BYTES_MAX = 256 * 1024
"""With more than this unread by the caller, nothing more is read from the upstream."""

_INFORMATIONAL = range(100, 200)


class Connection(asyncio.Protocol):
    """Made by the pool; `send`, then `head`, then `read` until it is empty, then back or `cut`."""

    __slots__ = (
        *("_loop", "_on_idle_end", "_parser", "_transport", "_timer", "_timer_end_s"),
        *("_end_s", "_idle_s", "_waiter", "_waits_since_s", "_failure", "_take", "_pieces"),
        *("_head_bytes", "_taken_bytes", "_is_head_complete", "_is_in_use", "_is_paused"),
        *("_ahead", "_enough_bytes", "_hasty_bytes", "_is_sliced", "_loss", "_pace"),
        *("_turn", "_turn_s"),
        *("body_bytes", "body_bytes_max", "headers", "is_complete", "is_stream", "may_be_kept"),
        "status",
    )

    _transport: asyncio.Transport

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_idle_end: Callable[["Connection"], None],
        pace: Pace,
    ) -> None:
        self._loop = loop
        self._ahead, self._pace, self._on_idle_end = b"", pace, on_idle_end
        self._turn: asyncio.TimerHandle | None = None
        self._loss: tuple[Exception | None] | None = None  # Until earlier bytes are read.
        self._failure: UpstreamFailed | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_end_s = self._end_s = self._idle_s = math.inf
        self._waits_since_s = 0.0
        self._is_in_use = self._is_paused = False
        self._pieces: list[bytes] = []
        self._take: Callable[[bytes], bool] | None = None
        self.status = 0
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._head_bytes = self._taken_bytes = self.body_bytes = 0
        """Bytes of the body that have arrived."""
        self.body_bytes_max = sys.maxsize
        self._is_head_complete, self._is_sliced = False, True
        self.headers: dict[str, str] = {}
        """The few headers that the egress looks at, with names in lower case."""
        self.is_complete = False
        """Whether the reply has arrived completely."""
        self.may_be_kept = False
        self.is_stream = False
        """Whether it is processed piece by piece, and therefore only at the permitted speed."""
        self._enough_bytes, self._hasty_bytes, self._turn_s = BUFFERED_BYTES_MAX, 0, 0.0

    # --- what the egress does ---------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether it can still be used; an idle one has nothing unsent."""
        return self._failure is None and not self._transport.is_closing()

    @property
    def is_usable(self) -> bool:
        """Whether an exchange may begin; not after a body that the upstream did not take."""
        return self.is_open and not unsent_bytes(self._transport)

    def send(self, head: bytes, body: bytes) -> None:
        """Begin an exchange. asyncio 3.12 sends an empty piece for ever (python/cpython#155888)."""
        self._begin()
        self._is_in_use = True
        self._transport.writelines((head, body) if body else (head,))

    def expect_until(self, end_s: float, idle_s: float = math.inf) -> None:
        """Set the upstream's deadlines: `end_s` in all, and `idle_s` while its data is awaited.

        The timer checks again only when the earliest deadline may have passed. Deadlines mostly
        move on with time, so a busy connection sets its timer about once a minute.
        """
        self._end_s, self._idle_s = end_s, idle_s
        now_s = self._waits_since_s = self._loop.time()
        if min(end_s, now_s + idle_s) < self._timer_end_s:
            self._set_timer(min(end_s, now_s + idle_s))

    async def head(self) -> None:
        """Wait for the reply's status and headers.

        Raises:
            UpstreamFailed: they did not come.
        """
        while not self._is_head_complete:
            if self._failure is not None:
                raise self._failure
            await self._more()

    async def read(self) -> bytes:
        """What has arrived since the last call, or what arrives next; empty at the end.

        Raises:
            UpstreamFailed: everything that had arrived has been read, and nothing more will come.
        """
        while not self._pieces:
            if self.is_complete:
                return b""
            if self._failure is not None:
                raise self._failure
            # Like `_more`, but without a coroutine for every piece of a stream.
            self._waits_since_s = self._loop.time()
            self._waiter = waiter = self._loop.create_future()
            try:
                await waiter
            finally:
                self._waiter = None
        return self.take()

    async def flow(self, take: Callable[[bytes], bool]) -> None:
        """Pass on data as it arrives, until `take` has enough or nothing more comes.

        No task is woken for a piece: that costs as much as everything else done with it. The next
        `read` says how it ended; exceptions of `take` are raised here.
        """
        if self._pieces and take(self.take()):
            return
        if self.is_complete or self._failure is not None:
            return
        self._take = take
        try:
            await self._more()
        finally:
            self._take = None

    def take(self) -> bytes:
        """What has arrived since the last call; may be empty.

        Raises:
            UpstreamMalformed: the body is longer than `body_bytes_max`.
        """
        if self.body_bytes > self.body_bytes_max:
            raise UpstreamMalformed(TOO_LARGE)
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces = []
        self._taken_bytes = self.body_bytes
        if self._is_paused:
            self._is_paused = False
            if self._turn is None:
                self._let_come()
        return data

    def rest(self, end_s: float) -> None:
        """The exchange is over and complete: keep the connection until `end_s` at most."""
        self._is_in_use = False
        self.body_bytes_max = sys.maxsize
        if self._pieces or self._is_paused:
            self.take()  # Unread bytes, which would block the next exchange.
        self.expect_until(end_s)

    def cut(self) -> None:
        """Close at once, so that the upstream may stop working."""
        self._stop_timer()
        self._let_go()
        self._transport.abort()

    # --- what the event loop does -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if len(data) > HASTY_BYTES and self._is_sliced:
            self._ahead += data
            self._transport.pause_reading()
            self._go_on()
            return
        if not self._is_in_use or self.is_complete:
            # Unrequested bytes could be taken for the answer to the next request.
            self._fail(UpstreamMalformed("the upstream sent more than its reply"))
            return
        known_bytes = self.body_bytes
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(UpstreamMalformed("the upstream's reply is not HTTP"))
            return
        if self.body_bytes == known_bytes:  # A head, lines between chunks, or trailers.
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._fail(UpstreamMalformed("the upstream's headers are too large"))
                return
        else:
            self._head_bytes = 0
        if not self._is_head_complete:
            return
        if self._take is None:
            self._wake()
        else:
            self._hand_over(self._take)
        has_enough = self.body_bytes - self._taken_bytes > self._enough_bytes
        # After a reply's end reading goes on: unread bytes there would answer the next request.
        if has_enough and not (self._is_paused or self.is_complete):
            self._pause()

    def _pause(self) -> None:
        self._is_paused = True
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Process the next slice of data that came at once, then wait for the next turn."""
        self._turn, is_body = None, self._is_head_complete and not self.is_stream
        length = HASTY_BYTES if is_body else SLICE_BYTES
        piece, self._ahead = self._ahead[:length], self._ahead[length:]
        if piece:
            self.data_received(piece)
        if piece and not is_body:
            self._hasty_bytes += len(piece)
            self._turn_s = self._pace.next_s(self._loop.time(), piece, self._hasty_bytes)
        if self.is_complete or not self._is_sliced:
            # A complete answer that came with its head; or bytes behind a reply, to be refused.
            self._turn_s = 0.0
            if rest := self._let_go():
                self.data_received(rest)
        if not self._is_paused:
            self._let_come()

    def _let_come(self) -> None:
        """Schedule the next slice, or report how the connection ended; else resume reading."""
        if self._failure is None and (self._ahead or self._loop.time() < self._turn_s):
            self._turn = self._loop.call_at(self._turn_s, self._go_on)
        elif self._loss is not None:
            self._lost(*self._loss)
        elif self._failure is None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _let_go(self) -> bytes:
        """Cancel further turns; returns the bytes that were not processed."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        rest, self._ahead, self.is_stream, self._is_sliced = self._ahead, b"", False, False
        return rest

    def eof_received(self) -> None:
        """The transport closes by itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._ahead:
            self._loss = (exc,)  # Reported after all bytes that came before it.
        else:
            self._lost(exc)

    def _lost(self, exc: Exception | None) -> None:
        self._loss = None
        if self._is_in_use and not self.is_complete:
            ends_with_connection = self._is_head_complete and not (
                self.headers.keys() & {"content-length", "transfer-encoding"}
            )
            if exc is None and ends_with_connection and self._failure is None:
                self.is_complete = True
                self._wake()
                return
        self._fail(broken(type(exc).__name__ if exc else "closed by the upstream"))
        if not self._is_in_use:
            self._on_idle_end(self)

    # --- what the parser does ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.is_complete:
            # A second reply in the same read; the first one is complete.
            self.may_be_kept = False
            raise ValueError("more than one reply")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_head_complete:
            return  # A trailer, which changes nothing in the head.
        kept = KEPT_HEADERS.get(name.lower())
        if kept is not None:
            text = value.decode("latin-1")
            known = self.headers.get(kept)
            self.headers[kept] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._is_head_complete = self.status not in _INFORMATIONAL
        if not self._is_head_complete:
            return
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            self.is_stream, self._enough_bytes = True, SLICE_BYTES
        else:
            # One read may bring forty thousand chunks, each of which costs time.
            self._is_sliced = "transfer-encoding" in self.headers

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self.body_bytes += len(body)

    def on_message_complete(self) -> None:
        if not self._is_head_complete:
            self.headers = {}  # An interim answer, such as 100 or 103; the real one follows.
            return
        self.is_complete = True
        self.may_be_kept = self._parser.should_keep_alive()

    # --- waiting ----------------------------------------------------------------------------------

    async def _more(self) -> None:
        self._waits_since_s = self._loop.time()
        self._waiter = waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _hand_over(self, take: Callable[[bytes], bool]) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            return  # It has enough, and has not resumed yet.
        self._waits_since_s = self._loop.time()
        try:
            is_enough = self._pieces and take(self.take())
        except Exception as error:  # noqa: BLE001 - not handled here, but raised in who waits
            waiter.set_exception(error)
            return
        if is_enough or self.is_complete:
            waiter.set_result(None)

    def _fail(self, failure: UpstreamFailed) -> None:
        """The first failure counts; the reader gets it after everything that had arrived before."""
        self.may_be_kept = False
        if self._failure is None:
            self._failure = failure
        self._let_go()
        self._transport.abort()
        self._wake()

    def _set_timer(self, end_s: float) -> None:
        self._stop_timer()
        self._timer_end_s = end_s
        self._timer = self._loop.call_at(end_s, self._look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._timer_end_s = math.inf

    def _look(self) -> None:
        self._stop_timer()
        now_s = self._loop.time()
        # While nothing waits for its data, the upstream may be waiting for our caller.
        waits = self._waiter is not None and self._turn is None
        idle_since_s = self._waits_since_s if waits else now_s
        end_s = min(self._end_s, idle_since_s + self._idle_s)
        if now_s < end_s:
            self._set_timer(end_s)
        elif not self._is_in_use:
            self._transport.close()
        elif not self._is_head_complete:
            self._fail(UpstreamTimeout("the upstream did not answer in time"))
        else:
            self._fail(UpstreamTimeout("the upstream stopped sending"))
