"""One request's connection without ASGI messages, which cost more than the bytes they carry.

It hands over the body and writes an answer only in states where both mean the same (decision 0013).
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle


_LINE: Final = ": ".join
"""A header as it is sent, but for its end; in C, since each answer has ten."""


class Connection(Protocol):
    """What one request's line needs from its connection."""

    departure: Callable[[], None] | None
    fixed_of: list[tuple[bytes, bytes]] | None
    """The server's own headers, which `fixed` holds in the form in which they are sent."""
    fixed: bytes


class CallerLine:
    """One request's connection; see `exchange.Line`.

    It changes the cycle as `RequestResponseCycle.receive` and `.send` would, and leaves every
    special case to them: a body still arriving, `expect: 100-continue`, a caller who does not read,
    a method other than POST.
    """

    __slots__ = ("_cycle", "_is_chunked", "_protocol")

    def __init__(self, protocol: Connection, cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._cycle = cycle
        self._is_chunked = cycle.scope["http_version"] != "1.0"
        """Clients of HTTP/1.0 know no chunks: the end of the connection ends their stream."""

    def on_departure(self, tell: Callable[[], None] | None) -> None:
        self._protocol.departure = tell

    def body(self) -> bytes | None:
        cycle = self._cycle
        if cycle.more_body or cycle.waiting_for_100_continue or cycle.disconnected:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        cycle.flow.resume_reading()
        return body

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> bool:
        if not self._can_begin():
            return False
        cycle = self._cycle
        head = self._head(status, headers, f"content-length: {len(body)}\r\n")
        cycle.response_started = True
        cycle.transport.write(head + body)
        self._complete()
        return True

    def start(self, headers: Mapping[str, str]) -> bool:
        if not self._can_begin():
            return False
        cycle = self._cycle
        cycle.response_started = cycle.chunked_encoding = True
        framing = "transfer-encoding: chunked\r\n" if self._is_chunked else ""
        cycle.transport.write(self._head(200, headers, framing))
        return True

    def push(self, data: bytes) -> bool:
        cycle = self._cycle
        if not cycle.disconnected and data:
            whole = b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data
            cycle.transport.write(whole)
        return cycle.flow.write_paused and not cycle.disconnected

    async def drain(self) -> None:
        await self._cycle.flow.drain()

    def end(self) -> None:
        if not self._cycle.disconnected:
            if self._is_chunked:
                self._cycle.transport.write(b"0\r\n\r\n")
            self._complete()

    def cut(self) -> None:
        if not self._cycle.disconnected:
            self._cycle.keep_alive = False
            self._complete()

    def _can_begin(self) -> bool:
        cycle = self._cycle
        return (
            not cycle.flow.write_paused
            and not cycle.disconnected
            and not cycle.response_started
            and cycle.scope["method"] == "POST"
        )

    def _head(self, status: int, headers: Mapping[str, str], framing: str) -> bytes:
        """Status line and headers; no value may contain a line break.

        Raises:
            ValueError: one does.
        """
        cycle = self._cycle
        lines = "\r\n".join([*map(_LINE, headers.items()), ""])
        if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
            raise ValueError("a response header holds a line break")
        if not cycle.keep_alive:
            framing += "connection: close\r\n"
        protocol = self._protocol
        if protocol.fixed_of is not cycle.default_headers:
            # The server makes new ones once a second, for the date.
            protocol.fixed_of = cycle.default_headers
            protocol.fixed = b"".join([b"%b: %b\r\n" % header for header in protocol.fixed_of])
        said = f"{lines}{framing}".encode("latin-1")
        return b"%b%b%b\r\n" % (STATUS_LINE[status], protocol.fixed, said)

    def _complete(self) -> None:
        cycle = self._cycle
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
