"""uvicorn's HTTP protocol with bounds on a request's head: its size, and how long it may take.

uvicorn bounds neither, and a head is read before anybody can be authenticated.
"""

import asyncio
from collections.abc import Callable
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.api.exchange import CONNECTION
from gateway.settings import Limits


READ_BYTES = 256 * 1024
"""What one read of the event loop may bring of an earlier body before a head begins."""


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose head is too long or too slow."""

    limits: ClassVar[Limits] = Limits()

    _head_bytes = 0
    _is_head_complete = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.departures: list[Callable[[], None]] = []
        self._head_timer = self.loop.call_later(self.limits.header_receive_s, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)
        for tell in self.departures:
            tell()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Counted after the parser has looked: one read may bring a head and much of its body.
        if not self._is_head_complete:
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.header_bytes_max + READ_BYTES:
                self.transport.close()

    def on_message_begin(self) -> None:
        self._is_head_complete = False
        self._head_bytes = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_head_complete = True
        self._stop_timer()
        head = sum(len(name) + len(value) for name, value in self.headers)
        if head > self.limits.header_bytes_max:
            # httptools turns this into the parse error that uvicorn answers with 400.
            raise ValueError("the request's head is too long")
        scope: dict[str, object] = self.scope  # type: ignore[assignment]
        scope[CONNECTION] = self
        super().on_headers_complete()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def bounded_protocol(limits: Limits) -> type[BoundedProtocol]:
    """The protocol class for these limits; uvicorn makes one object of it per connection."""
    return type("ConfiguredProtocol", (BoundedProtocol,), {"limits": limits})
