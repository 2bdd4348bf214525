"""One HTTP exchange over ASGI: a bounded body in, an answer out, a caller who may leave.

It knows no dialect: it sends the bytes and headers that it is given. Where the connection offers a
`Line`, the exchange uses it and saves ASGI's messages; everywhere else it speaks plain ASGI.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from litestar.types import Receive, Scope, Send
from msgspec import Struct

from gateway.admission.bounds import check_values
from gateway.api.deadlines import Deadlines
from gateway.api.inflating import check_encoding, inflated
from gateway.api.room import UNCOUNTED_BYTES, Room
from gateway.errors import BodyTooLarge, RequestInvalid


Header = tuple[bytes, bytes]
REQUEST_TIMEOUT = "The request's body did not arrive in time."
DIGITS_MAX = 20
"""Digits of a length that the parser lets through, after any number of zeros."""

LINE = "gatewright.line"
"""The key under which `api.protocol` puts a request's line into its scope."""


class Line(Protocol):
    """The caller's connection during one exchange, without ASGI's messages in between."""

    def on_departure(self, tell: Callable[[], None] | None) -> None:
        """Set what to call when the connection is lost; nothing with None."""

    def body(self) -> bytes | None:
        """The body, if all of it is here already."""

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> bool:
        """Send a complete answer; False if it must go another way."""

    def start(self, headers: Mapping[str, str]) -> bool:
        """Begin a chunked answer with status 200; False if it must go another way."""

    def push(self, data: bytes) -> bool:
        """Send a piece of the answer that was started; True if the caller is too slow for it."""

    async def drain(self) -> None:
        """Wait until the caller has taken what was pushed."""

    def end(self) -> None:
        """End the answer that was started."""

    def cut(self) -> None:
        """Close the connection in the middle of the answer, once what was pushed is sent."""


class Bounds(Struct, frozen=True):
    """The limits of every exchange of a listener."""

    body_bytes_max: int
    values_max: int
    """Keys and list elements in a body."""
    body_receive_s: float
    room: Room
    deadlines: Deadlines
    """The work's deadlines, and a little more: whoever has not read the answer by then counts as
    gone."""


def is_longer(length: bytes, bytes_max: int) -> bool:
    """Whether a `content-length` is more than `bytes_max`."""
    return length.isdigit() and int(length[-DIGITS_MAX:]) > bytes_max


class Exchange:
    """Reads the request's body, watches the caller, writes the answer. Used once."""

    # On the class, since nearly every exchange leaves most of them unchanged.
    started = False
    caller_left = False
    _on_line = False
    """Whether a stream was started on the line."""
    _serving: asyncio.Task[Any] | None = None
    _watcher: asyncio.Task[Any] | None = None
    _is_late = False
    _is_closed = False
    _held_bytes = 0
    _head: Mapping[str, str] | None = None

    def __init__(self, scope: Scope, receive: Receive, send: Send, bounds: Bounds) -> None:
        self.method = str(scope.get("method", ""))
        self.headers: list[Header] = list(scope["headers"])
        # Taken out: the line refers to the scope, and a cycle would keep all objects of the request
        # until the garbage collector runs.
        self._line: Line | None = scope.pop(LINE, None)  # type: ignore[misc]
        self._receive = receive
        self._send = send
        self._bounds = bounds

    async def read_body(self) -> bytes:
        """The complete body; from here on, the current task is cancelled if the caller leaves.

        Raises:
            BodyTooLarge: it is, or says it is, longer than the limit, inflated or not.
            EncodingRefused: it cannot be inflated.
            RequestInvalid: it did not arrive in time, or holds too many values.
            Unavailable: together with other bodies it would be too much to hold at once.
        """
        named = dict(self.headers)
        encoding = self._encoding() if b"content-encoding" in named else b""
        if is_longer(named.get(b"content-length", b""), self._bounds.body_bytes_max):
            raise self._too_large()
        self._serving = asyncio.current_task()
        body = self._line.body() if self._line is not None else None
        if body is None:
            body = await self._receive_in_time()
        elif len(body) > self._bounds.body_bytes_max:
            raise self._too_large()
        elif len(body) > UNCOUNTED_BYTES:
            self._hold(len(body))
        self._bounds.deadlines.add(self, self._give_up)
        self._watch()
        if encoding:
            # Counted as it grows: only a thousandth may have come, and many are inflated at once.
            body = await inflated(body, encoding, self._bounds.body_bytes_max, self._hold)
        check_values(body, self._bounds.values_max)
        return body

    def _encoding(self) -> bytes:
        """The body's encoding; empty for none. Raises EncodingRefused."""
        encoding = b""
        for name, value in self.headers:
            if name == b"content-encoding" and value not in (b"", b"identity"):
                # Encodings in several headers mean several applied in a row.
                encoding = value.lower() if not encoding else b"several"
                check_encoding(encoding)
        return encoding

    async def _receive_in_time(self) -> bytes:
        # A timer and a flag, since `asyncio.timeout` costs five times as much on every request.
        timer = asyncio.get_running_loop().call_later(self._bounds.body_receive_s, self._run_late)
        try:
            return await self._receive_body()
        except asyncio.CancelledError:
            if not self._is_late or self._serving is None:
                raise
            self._serving.uncancel()
            raise RequestInvalid(REQUEST_TIMEOUT) from None
        finally:
            timer.cancel()

    async def _receive_body(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message: Any = await self._receive()
            if message["type"] == "http.disconnect":
                self.caller_left = True
                raise asyncio.CancelledError
            part = message.get("body", b"")
            size += len(part)
            if size > self._bounds.body_bytes_max:
                raise self._too_large()
            self._hold(size)
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)

    def _hold(self, length_bytes: int) -> None:
        """Take room for a body that has this length by now."""
        more_bytes = length_bytes - self._held_bytes
        if length_bytes > UNCOUNTED_BYTES and more_bytes > 0:
            self._bounds.room.take(more_bytes)
            self._held_bytes = length_bytes

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"The body is longer than {self._bounds.body_bytes_max} bytes.")

    def _watch(self) -> None:
        """Notice when the caller leaves: from the connection, or by ASGI.

        ASGI has to be asked, which takes a task of its own; the connection just calls back.
        """
        if self._line is not None:
            self._line.on_departure(self._give_up)
            return
        self._watcher = asyncio.ensure_future(self._receive())
        self._watcher.add_done_callback(self._left)

    def _left(self, watcher: asyncio.Task[Any]) -> None:
        if not watcher.cancelled() and watcher.exception() is None:
            self._give_up()

    def _run_late(self) -> None:
        self._is_late = True
        if self._serving is not None:
            self._serving.cancel()

    def _give_up(self) -> None:
        if self._serving is not None:
            self.caller_left = True
            self._serving.cancel()

    def close(self) -> None:
        """Stop watching; before the last byte, since its end looks like a caller who left."""
        if self._is_closed:
            return
        self._is_closed = True
        self._bounds.deadlines.remove(self)
        if self._held_bytes:
            self._bounds.room.give_back(self._held_bytes)
        if self._line is not None:
            self._line.on_departure(None)
        if self._watcher is not None:
            self._watcher.remove_done_callback(self._left)
            self._watcher.cancel()
            self._watcher = None

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send a complete answer."""
        self.close()
        self.started = True
        if self._line is not None and self._line.answer(status, headers, body):
            return
        await self._begin(status, {**headers, "content-length": str(len(body))})
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def begin_stream(self, headers: Mapping[str, str]) -> None:
        """Set the head of a stream; it is sent with the first piece."""
        self._head = headers

    async def write(self, data: bytes) -> None:
        """Send a piece of a stream; waits while the caller is slow."""
        if self._head is not None:
            head, self._head = self._head, None
            self.started = True
            self._on_line = self._line is not None and self._line.start(head)
            if not self._on_line:
                await self._begin(200, head)
        if not self._on_line:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        elif self._line is not None and self._line.push(data):
            await self._line.drain()

    def direct(self) -> Callable[[bytes], bool] | None:
        """A function that writes to a begun stream without waiting; None where there is none."""
        return self._line.push if self._on_line and self._line is not None else None

    async def end_stream(self) -> None:
        self.close()
        if self._on_line and self._line is not None:
            self._line.end()
        else:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def cut_stream(self) -> None:
        """Leave the body without its end, so that nobody takes it for a complete one."""
        self.close()
        if self._on_line and self._line is not None:
            self._line.cut()
        # Over plain ASGI, the server closes the connection of an answer that was not ended.

    async def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        raw = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})
