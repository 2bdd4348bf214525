"""uvicorn's HTTP protocol with limits on a request's head, and a short way for our own answers.

uvicorn limits neither a head's size nor the time it may take, and a head is read before anybody can
be authenticated. What a server in front of us may have read differently is refused (RFC 9112
§11.2), and trailers behind a body are not headers. `CallerLine` is the short way.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import ClassVar

import msgspec
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from gateway.api.caller_line import CallerLine
from gateway.api.crowd import Crowd, connections_permitted
from gateway.api.deadlines import Deadlines
from gateway.api.exchange import LINE
from gateway.api.morsels import WHOLE_BYTES, morsel_bytes
from gateway.api.one_meaning import (
    OFFER,
    TAIL_BYTES,
    TRAILERS,
    Framing,
    framing,
    not_upgraded,
)
from gateway.configuration.settings import Limits


READ_BYTES = 272 * 1024
"""The most body bytes that may come before a head in one read, including a completed TLS record."""

KEEP_ALIVE_S = 75.0
"""How long a connection may be idle between two requests."""

UNREAD_S = 60.0
"""How long a caller may read nothing of what is sent before the connection is reset."""

TAKEN_BYTES_MIN = 1024 * 1024
"""How much of a ready answer the caller has to read in that time, or it is reset as well.

A complete answer is held in memory until its last byte is read, and may be tens of megabytes long.
"""

PIPELINED_MAX = 16
"""How many requests of a connection may wait until the previous one is answered.

Thousands fit into one read, and each answer allows the next read: without a bound, a caller without
a key could fill the memory. No client that we know sends even a second one.
"""

READ_BEHIND_MAX = 4
"""Up to so many waiting requests, more is read: only reading shows that a caller has left."""

_OVER_TCP = (socket.AF_INET, socket.AF_INET6)
_UNREAD_MS: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
"""The kernel's own timeout for that (Linux, tcp(7)); other systems have none."""

_KINDS: Mapping[int, tuple[str, str]] = {
    400: ("invalid_request_error", "invalid_request"),
    503: ("server_error", "unavailable"),
}
"""Type and code of an error for which no dialect is known, by status."""


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose head is too long or too slow, or that is idle for too long."""

    limits: ClassVar[Limits] = Limits()
    resting: ClassVar[Deadlines]
    """One timer for all of a listener's connections; uvicorn sets and cancels one per request."""

    crowd: ClassVar[Crowd]

    _head_bytes = 0
    _head_tail = b""
    """The end of what has come of an incomplete head."""
    _unwanted_bytes = 0
    """Bytes of a body that came after its answer."""
    _is_head_complete = False
    _is_read_short = False
    _is_in_body = False
    _is_in_chunks = False
    _is_body_asked_for = False
    """Whether the request waits for a `100 Continue`, and would leave its connection idle after."""
    _ahead = b""
    """Bytes of a chunked body that were read but not parsed yet."""
    _served: RequestResponseCycle | None = None
    """The request being answered while others wait; `cycle` is the last one that came."""
    _turn: asyncio.Handle | None = None
    _taking: asyncio.TimerHandle | None = None
    """Runs while there is much that the caller has not read."""
    _timer: asyncio.TimerHandle | None = None
    """For what has to arrive soon: a head, or the rest of a body that was already answered."""
    _refusal = "This is not a request in HTTP/1.1 that could be read."
    _refusal_status = 400
    fixed_of: list[tuple[bytes, bytes]] | None = None
    """The server's own headers, which `fixed` holds in the form in which they are sent."""
    fixed = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.departure: Callable[[], None] | None = None
        self.crowd.enter(self, self.connections)
        self._wait_for(self.limits.header_receive_s)
        connection = transport.get_extra_info("socket")
        if _UNREAD_MS is not None and connection.family in _OVER_TCP:
            # A closed transport would wait without end for its last byte to be read.
            connection.setsockopt(socket.IPPROTO_TCP, _UNREAD_MS, round(UNREAD_S * 1e3))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_taking()
        self._ahead = b""
        if self._turn is not None:
            self._turn.cancel()
        self.resting.remove(self)
        self.crowd.leave(self)
        if self._served is not None:
            self._served.disconnected = True
        super().connection_lost(exc)
        while self.pipeline:
            # Never served; a scope that knows its line would wait for the garbage collector.
            self.pipeline.pop()[0].scope.pop(LINE, None)  # type: ignore[misc]
        if self.departure is not None:
            self.departure()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_taken()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_taking()

    def _expect_taken(self) -> None:
        self._stop_taking()
        left_bytes = self.transport.get_write_buffer_size()
        self._taking = self.loop.call_later(UNREAD_S, self._look_at_taken, left_bytes)

    def _look_at_taken(self, left_bytes: int) -> None:
        """A stream holds no more than was just written, and its work has its own deadline."""
        taken_bytes = left_bytes - self.transport.get_write_buffer_size()
        if taken_bytes < TAKEN_BYTES_MIN and not self._is_serving:
            self.transport.abort()
        else:
            self._expect_taken()

    def _stop_taking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def data_received(self, data: bytes) -> None:
        if self._ahead or (self._is_in_chunks and len(data) > WHOLE_BYTES):
            self._ahead += data
            if self._turn is None:
                self._go_on()
        else:
            self._look_at(data)

    def _go_on(self) -> None:
        """Parse a morsel of what was read; others have their turn before the next."""
        self._turn = None
        length_bytes = morsel_bytes(self._ahead)
        piece, self._ahead = self._ahead[:length_bytes], self._ahead[length_bytes:]
        self._look_at(piece)
        if self.transport.is_closing():
            self._ahead = b""
        elif self._ahead:
            self.transport.pause_reading()
            self._turn = self.loop.call_soon(self._go_on)
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def _look_at(self, data: bytes) -> None:
        self._is_read_short = len(data) <= self.limits.header_bytes_max
        if OFFER in data and not self._is_in_body:
            data = not_upgraded(data, b"" if self._is_head_complete else self._head_tail)
        super().data_received(data)
        # Counted after parsing: one read may bring a head and much of its body.
        if self._is_in_body or not self._is_head_complete:
            self._head_bytes += len(data)
            self._head_tail = (self._head_tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
            if self._head_bytes > self.limits.header_bytes_max + READ_BYTES:
                self.transport.close()
            elif self._timer is None and not self._is_in_body and not self._is_serving:
                self._wait_for(self.limits.header_receive_s)

    def send_400_response(self, msg: str) -> None:
        """Like uvicorn's, in words and in an envelope that both vendors' clients read.

        Sent only if it is read as the answer to the faulty request: neither while an earlier
        request is served, nor in the middle of an answer.
        """
        del msg
        if not self._may_refuse:
            self.transport.close()
            return
        kind, code = _KINDS[self._refusal_status]
        error = {"type": kind, "message": self._refusal, "param": None}
        tree = {"type": "error", "error": {**error, "code": code}}
        body = msgspec.json.encode(tree)
        said = (
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        )
        head = b"".join([b"%b: %b\r\n" % header for header in said])
        self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[self._refusal_status], head, body))
        self.transport.close()

    def on_response_complete(self) -> None:
        """Like uvicorn's, except for the timer, which nobody has set since its head arrived."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, application = self.pipeline.pop()
            self._served = cycle if self.pipeline else None
            self._start_asgi_task(cycle, application)
        else:
            self.resting.add(self, self.timeout_keep_alive_handler)
            if self._is_in_body:
                # A stranger is answered before the body is read; the rest of it is thrown away.
                self._wait_for(self.limits.body_receive_s)

    def _unset_keepalive_if_required(self) -> None:
        """A connection is idle until a request's head is there, whatever trickles in meanwhile."""

    @property
    def _is_serving(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    @property
    def _may_refuse(self) -> bool:
        if not self._is_serving:
            return True
        return self._is_in_body and not self.pipeline and not self.cycle.response_started

    def _wait_for(self, most_s: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(most_s, self.transport.close)

    def on_message_begin(self) -> None:
        self._is_head_complete = False
        self._head_bytes = self._unwanted_bytes = 0
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        if self._is_body_asked_for:
            self._go_on_resting()
        try:
            super().on_body(body)
        except MemoryError:
            # The parser turns it into its own error, which would be reported as the caller's.
            self._refusal, self._refusal_status = "There is no memory left to read this body.", 503
            raise
        if self.cycle.response_complete:
            self._unwanted_bytes += len(body)
            if self._unwanted_bytes > self.limits.body_bytes_max:
                self.transport.close()

    def on_message_complete(self) -> None:
        self._is_in_body = self._is_in_chunks = False
        if self._is_body_asked_for:
            self._go_on_resting()
        if self._timer is not None:
            self._stop_timer()
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        self._is_head_complete = True
        self.resting.remove(self)
        self.crowd.leave(self)
        if self._timer is not None:
            self._stop_timer()
        if self._head_bytes or not self._is_read_short:
            self._check_head()
        self._check_form()
        self._is_in_body = True
        scope: dict[str, object] = self.scope  # type: ignore[assignment]
        last: RequestResponseCycle | None = self.cycle
        super().on_headers_complete()
        if self.pipeline:
            self._wait_behind(last)
        self.headers = TRAILERS
        if self.expect_100_continue and self.cycle.keep_alive:
            # A caller who is refused instead may send the body or leave it out: what follows is
            # ambiguous, so the connection ends with the answer (RFC 9110 §10.1.1).
            self._is_body_asked_for, self.cycle.keep_alive = True, False
        # The application's task has been made and not yet run.
        scope[LINE] = CallerLine(self, self.cycle)

    def _wait_behind(self, last: RequestResponseCycle | None) -> None:
        if len(self.pipeline) == 1:
            self._served = last
        if len(self.pipeline) <= READ_BEHIND_MAX:
            self.flow.resume_reading()

    def _go_on_resting(self) -> None:
        """The body comes, or there is none: it is clear again where the next request begins."""
        self._is_body_asked_for, self.cycle.keep_alive = False, True

    def _check_head(self) -> None:
        """Check a head's length, whether it came in several reads or in one long one."""
        head = sum(len(name) + len(value) for name, value in self.headers)
        if head > self.limits.header_bytes_max:
            most = self.limits.header_bytes_max
            self._refusal = f"The request's headers are longer than {most} bytes."
            # httptools turns this into the parse error that uvicorn answers with 400.
            raise ValueError("the request's head is too long")

    def _check_form(self) -> None:
        ends: Framing = ""
        if not self.parser.should_upgrade():  # It would take the body for another request.
            ends = framing(self.parser.get_http_version(), self.headers, self.url)
        self._is_in_chunks = ends == "chunks"
        if not ends or len(self.pipeline) >= PIPELINED_MAX:
            raise ValueError("the request's head has no one meaning, or too many wait before it")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def bounded_protocol(limits: Limits, connections_max: int = 0) -> type[BoundedProtocol]:
    """The protocol class for these limits; uvicorn makes one object of it per connection.

    `connections_max` 0 means as many as this process may open.
    """
    resting = Deadlines(KEEP_ALIVE_S)
    crowd = Crowd(connections_max or connections_permitted(), resting)
    own = {"limits": limits, "resting": resting, "crowd": crowd}
    return type("ConfiguredProtocol", (BoundedProtocol,), own)
