"""One HTTP exchange over ASGI: a bounded body in, an answer out, a caller who may leave.

It knows no dialect: what is sent are bytes and headers it was given.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from litestar.types import Receive, Scope, Send

from gateway.errors import BodyTooLarge, RequestInvalid


Header = tuple[bytes, bytes]
REQUEST_TIMEOUT = "The request's body did not arrive in time."
READING_S = 3.0
"""How long after the deadline of the work a caller may still be reading what came of it."""


CONNECTION = "gatewright.connection"
"""Where `api.protocol` puts itself into the scope."""


class Connection(Protocol):
    """The connection an exchange runs on; it calls every entry of `departures` when it is lost."""

    departures: list[Callable[[], None]]


class Exchange:
    """Reads the request's body, watches the caller, writes the answer. Used once."""

    __slots__ = (
        "_body_bytes_max",
        "_body_receive_s",
        "_connection",
        "_deadline_s",
        "_end",
        "_head",
        "_is_late",
        "_receive",
        "_send",
        "_serving",
        "_watcher",
        "caller_left",
        "headers",
        "method",
        "started",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        body_bytes_max: int,
        body_receive_s: float,
        deadline_s: float,
    ) -> None:
        """`deadline_s` is the work's own; a little after it, who has not read yet has left."""
        self.method = str(scope.get("method", ""))
        self.headers: list[Header] = list(scope["headers"])
        self.started = False
        self.caller_left = False
        self._serving: asyncio.Task[Any] | None = None
        self._watcher: asyncio.Task[Any] | None = None
        self._connection: Connection | None = scope.get(CONNECTION)  # type: ignore[assignment]
        self._is_late = False
        self._end: asyncio.TimerHandle | None = None
        self._head: list[Header] | None = None
        self._deadline_s = deadline_s
        self._receive = receive
        self._send = send
        self._body_bytes_max = body_bytes_max
        self._body_receive_s = body_receive_s

    def header(self, name: bytes) -> str:
        """A header's value, or an empty text; names are in lower case."""
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return ""

    async def read_body(self) -> bytes:
        """The whole body; from here on the caller's leaving cancels the current task.

        Raises:
            BodyTooLarge: it is, or says it is, longer than the limit.
            RequestInvalid: it is encoded, or did not arrive in time.
        """
        if self.header(b"content-encoding") not in ("", "identity"):
            raise RequestInvalid("Send the body without content-encoding.")
        length = self.header(b"content-length")
        if length.isdigit() and int(length) > self._body_bytes_max:
            raise self._too_large()
        loop = asyncio.get_running_loop()
        self._serving = asyncio.current_task()
        # A timer and a flag, since `asyncio.timeout` costs five times as much on every request.
        self._end = loop.call_later(self._body_receive_s, self._run_late)
        try:
            body = await self._receive_body()
        except asyncio.CancelledError:
            if not self._is_late or self._serving is None:
                raise
            self._serving.uncancel()
            raise RequestInvalid(REQUEST_TIMEOUT) from None
        finally:
            self._end.cancel()
        self._end = loop.call_later(self._deadline_s + READING_S, self._give_up)
        self._watch()
        return body

    async def _receive_body(self) -> bytes:
        message: Any = await self._receive()
        body: bytes = message.get("body", b"")
        if message["type"] != "http.request" or message.get("more_body"):
            return await self._read_rest(message)
        if len(body) > self._body_bytes_max:
            raise self._too_large()
        return body

    async def _read_rest(self, message: Any) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            if message["type"] == "http.disconnect":
                self.caller_left = True
                raise asyncio.CancelledError
            part = message.get("body", b"")
            size += len(part)
            if size > self._body_bytes_max:
                raise self._too_large()
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)
            message = await self._receive()

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"The body is longer than {self._body_bytes_max} bytes.")

    def _watch(self) -> None:
        """Hear of the caller's leaving: from the connection, or as ASGI says it.

        ASGI tells only who asks, which takes a task of its own; the connection just calls back.
        """
        if self._connection is not None:
            self._connection.departures.append(self._give_up)
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
        if self._connection is not None and self._give_up in self._connection.departures:
            self._connection.departures.remove(self._give_up)
        if self._watcher is not None:
            self._watcher.remove_done_callback(self._left)
            self._watcher.cancel()
            self._watcher = None
        if self._end is not None:
            self._end.cancel()
            self._end = None

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send a whole answer."""
        self.close()
        raw = [*_encode(headers), (b"content-length", b"%d" % len(body))]
        await self._start(status, raw)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def begin_stream(self, headers: Mapping[str, str]) -> None:
        """What the head of a stream will be; it is sent with the first piece."""
        self._head = _encode(headers)

    async def write(self, data: bytes) -> None:
        """Send a piece of a stream; waits while the caller is slow."""
        if self._head is not None:
            head, self._head = self._head, None
            await self._start(200, head)
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end_stream(self) -> None:
        self.close()
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _start(self, status: int, headers: list[Header]) -> None:
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


def _encode(headers: Mapping[str, str]) -> list[Header]:
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
