"""uvicorn's HTTP protocol with time limits on everything that a caller does.

uvicorn waits without limit for a head, for a body and for an answer to be taken, and keeps any
number of bytes meanwhile. Here each has a time limit: a head from a connection's first byte (or
from its own, on a connection that was used before), a body from the end of its head, an answer from
when it was written; an idle connection has one, too. The limits hold for callers without a key as
well.
"""

import asyncio
import re
import socket
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from local_engine.serve.api.errors import ApiError, BodyTooLate, InvalidRequest
from local_engine.serve.connections.crowd import Crowd
from local_engine.serve.options import ConnectionBounds


HEAD_BYTES_MAX: Final = 64 * 1024
"""A head's headers together."""

_READ_BYTES: Final = 272 * 1024
"""What one read, with a record of TLS that it completes, may bring of a body before a head."""

TAKEN_BYTES_MIN: Final = 1024 * 1024
"""What has to be taken of a long answer while it lies ready; of a shorter one all of it."""

PIPELINED_MAX: Final = 16
"""How many requests of a connection may wait for the one before them; clients send no second."""

_OVER_TCP = (socket.AF_INET, socket.AF_INET6)
_UNREAD_MS: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
"""The kernel's own time for what was sent and not taken (Linux, tcp(7)), where it has one."""

_LINE_END: Final = b"\r\n"
_HEAD_END: Final = 2 * _LINE_END
_TAIL_BYTES: Final = len(_HEAD_END) - 1
_OFFER: Final = b"pgrade:"
_UPGRADE: Final = re.compile(rb"(?<=\r\n)[Uu]pgrade:[^\r\n]*\r\n")


class BoundedConnection(HttpToolsProtocol):
    """Ends when its caller is too slow with a head, a body, or the reading of an answer."""

    bounds: ClassVar[ConnectionBounds]
    crowd: ClassVar[Crowd]
    body_bytes_max: ClassVar[int]

    _served: RequestResponseCycle | None = None
    """What is answered now, or was last; `cycle` is the last one that came, and may still wait."""
    _timer: asyncio.TimerHandle | None = None
    """For what is awaited of the caller: a head, the rest of a body, another request."""
    _taking: asyncio.TimerHandle | None = None
    """Runs while more lies ready than he takes."""
    _is_in_head = False
    _is_in_body = False
    _head_tail = b""
    """Of a head that is not complete, the end of what came."""
    _loose_bytes = 0
    """What came since the parser last made something of it, and is kept."""
    _unwanted_bytes = 0
    """Of a body whose request was answered already."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.crowd.enter(self)
        if transport.is_closing():
            return
        self._expect("header", self.bounds.header_receive_s)
        connection = transport.get_extra_info("socket")
        if _UNREAD_MS is not None and connection.family in _OVER_TCP:
            unread_ms = round(self.bounds.unread_s * 1e3)
            connection.setsockopt(socket.IPPROTO_TCP, _UNREAD_MS, unread_ms)

    def connection_lost(self, exc: Exception | None) -> None:
        self.crowd.leave(self)
        self._expect_nothing()
        self._stop_taking()
        if self._served is not None and not self._served.response_complete:
            # uvicorn tells the last one that came, which waits if others came behind this one.
            self._served.disconnected = True
            self._served.message_event.set()
        super().connection_lost(exc)
        self.pipeline.clear()

    # What comes

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # Closed because of it, or of what came before it.
        if _OFFER in data and not self._is_in_body:
            data = _not_upgraded(data, self._head_tail if self._is_in_head else b"")
        super().data_received(data)
        if self.transport.is_closing() or not (self._is_in_head or self._is_in_body):
            return
        self._head_tail = (self._head_tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        self._loose_bytes += len(data)
        if self._loose_bytes > HEAD_BYTES_MAX + _READ_BYTES:
            self._end("header")

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._loose_bytes = self._unwanted_bytes = 0
        super().on_message_begin()
        if self._is_resting:
            self._expect("header", self.bounds.header_receive_s)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:  # What is said behind a body is no header, and is not kept.
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        num_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if num_bytes > HEAD_BYTES_MAX or len(self.pipeline) >= PIPELINED_MAX:
            # httptools turns this into the parse error that is answered with 400.
            raise ValueError("the head is too long, or too many wait before it")
        version = self.parser.get_http_version()
        if self.parser.should_upgrade() or not _has_one_meaning(version, self.headers):
            raise ValueError("its body may be taken for another request, here or in front of us")
        self._is_in_head, self._is_in_body, self._loose_bytes = False, True, 0
        self.crowd.ask(self)
        is_next = not self._is_serving
        super().on_headers_complete()
        if is_next:
            self._served = self.cycle
            self._expect("body", self.bounds.body_receive_s)

    def on_body(self, body: bytes) -> None:
        self._loose_bytes = 0
        super().on_body(body)
        if self.cycle.response_complete:
            self._unwanted_bytes += len(body)
            if self._unwanted_bytes > self.body_bytes_max:
                self._end("body")

    def on_message_complete(self) -> None:
        self._is_in_body = False
        super().on_message_complete()
        self._expect_nothing()
        if self.cycle.response_complete:
            self._rest()

    # What goes

    def on_response_complete(self) -> None:
        """As uvicorn's, with our own timers."""
        self.server_state.total_requests += 1
        if self.pipeline:
            if self.transport.is_closing():
                return
            self.flow.resume_reading()
            self._served, application = self.pipeline.pop()
            self._start_asgi_task(self._served, application)
            if self._is_in_body and not self.pipeline:
                self._expect("body", self.bounds.body_receive_s)
            return
        self.crowd.rest(self)
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if not self._is_in_body:
            self._rest()

    def send_400_response(self, msg: str) -> None:
        """As uvicorn's, in the envelope that clients read."""
        del msg
        if self._is_serving and not self._is_in_body:
            self.transport.close()  # It would be read as the answer to the request before.
            return
        message = "This is not a request in HTTP/1.1 that could be read."
        self._refuse(InvalidRequest(message, code="invalid_http"))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_taken()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_taking()

    # Time

    @property
    def _is_serving(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    @property
    def _is_resting(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and cycle.response_complete

    def _rest(self) -> None:
        """Until the next head, which may have begun while the request before was served."""
        if self._is_in_head:
            self._expect("header", self.bounds.header_receive_s)
        else:
            self._expect("", self.bounds.keep_alive_s)

    def _expect(self, reason: str, most_s: float) -> None:
        self._expect_nothing()
        self._timer = self.loop.call_later(most_s, self._end, reason)

    def _expect_nothing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self, reason: str) -> None:
        if reason:
            self.crowd.metrics.count_end(reason)
        if reason == "body" and self._is_serving:
            late = f"The request's body did not arrive within {self.bounds.body_receive_s:g} s."
            self._refuse(BodyTooLate(late, code="request_timeout"))
        else:
            self.transport.close()

    def _refuse(self, error: ApiError) -> None:
        """Say it where nothing else was said, and close."""
        if not self._is_serving or not (self.cycle.response_started or self.pipeline):
            body = error.envelope()
            said = (
                *self.server_state.default_headers,
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                (b"connection", b"close"),
            )
            head = b"".join([b"%b: %b\r\n" % header for header in said])
            self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[error.status], head, body))
        self.transport.close()

    def _expect_taken(self) -> None:
        self._stop_taking()
        left_bytes = self.transport.get_write_buffer_size()
        self._taking = self.loop.call_later(self.bounds.unread_s, self._look_at_taken, left_bytes)

    def _look_at_taken(self, left_bytes: int) -> None:
        # Of a stream no more lies ready than was just written: all of it was to be taken by now.
        taken_bytes = left_bytes - self.transport.get_write_buffer_size()
        if taken_bytes < TAKEN_BYTES_MIN:
            self.crowd.metrics.count_end("unread")
            self.transport.abort()
        else:
            self._expect_taken()

    def _stop_taking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _unset_keepalive_if_required(self) -> None:
        """Its own timer is not used."""


def _not_upgraded(data: bytes, before: bytes) -> bytes:
    """What was read of a head, without an offer to speak another protocol.

    Java's own client makes one (`h2c`). Nothing here takes any, and the parser would stop behind
    the head, before the body, and take that for another request. A line that did not come whole in
    one read stays, and its request is refused: half of it would be read as part of its neighbours.

    `before` is the end of what was read of the same head, and passed on.
    """
    known = before + data
    end = known.find(_HEAD_END)
    end = len(known) if end < 0 else end + len(_LINE_END)
    head = _UPGRADE.sub(lambda line: b"" if line.start() >= len(before) else line[0], known[:end])
    return (head + known[end:])[len(before) :]


def _has_one_meaning(version: str, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether every server reads the same in a head (RFC 9112 §3.2, §6.1).

    Two lengths, and a length beside an encoding, the parser refuses by itself.
    """
    names = [name for name, _ in headers]
    if names.count(b"host") > 1 or version not in ("1.0", "1.1"):
        return False
    if version == "1.1" and b"host" not in names:
        return False
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    return not codings or (version == "1.1" and codings == [b"chunked"])


def bounded_http(
    bounds: ConnectionBounds, crowd: Crowd, body_bytes_max: int
) -> type[BoundedConnection]:
    """The class of one listener's connections; uvicorn makes an object of it for each."""
    own: dict[str, Any] = {"bounds": bounds, "crowd": crowd, "body_bytes_max": body_bytes_max}
    return type("ListenersConnection", (BoundedConnection,), own)
