"""TLS below a listener's protocol, so that its limits apply from a connection's first byte on.

The event loop's own TLS shows a connection only after the handshake: until then nobody can count or
end it, and it reports an answer as accepted when it was merely encrypted. `Wire` stands between the
socket and the loop's TLS and tells the protocol both (decision 0060).
"""

import asyncio
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.server import ServerState
from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]

from gateway.api.protocol import BoundedProtocol
from gateway.secrets.certificates import KeptCertificate


LINGER_S = 2.0
"""How long the other side may take to confirm that it saw the end.

Some clients discard what they have not read if the connection is closed without this.
"""
NEVER_S = 1e9
"""`protocol` has its own bounds for answers that wait to be read."""
NEVER_BYTES = 2**31 - 1


class _Shaken(asyncio.Protocol):
    """Notices a completed handshake; from then on TLS talks to the listener's protocol."""

    def __init__(self, wire: "Wire") -> None:
        self._wire = wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire.open(cast(asyncio.Transport, transport))


class Wire(asyncio.BufferedProtocol):
    """One connection below TLS; until the handshake, it counts as a caller who sent no head."""

    inner: type[BoundedProtocol]
    certificate: KeptCertificate

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.transport: asyncio.Transport
        self._loop = _loop or asyncio.get_running_loop()
        self._parts = (config, server_state, app_state, self._loop)
        self._connections: set[Any] = server_state.connections
        self._caller: BoundedProtocol | None = None
        self._encrypted: asyncio.Transport | None = None
        self._is_full = self._is_ending = False
        self._lingering: asyncio.TimerHandle | None = None
        self._outliving: asyncio.TimerHandle | None = None
        """Runs until the caller's certificate expires, if one was required."""
        self._tls: Any = SSLProtocol(
            self._loop,
            _Shaken(self),
            self.certificate.context,
            None,
            server_side=True,
            ssl_handshake_timeout=self.inner.limits.header_receive_s,
            ssl_shutdown_timeout=NEVER_S,
        )
        # The very functions of TLS, so that nothing of ours is called for a read.
        self.get_buffer = self._tls.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = self._tls.buffer_updated  # type: ignore[method-assign]
        self.eof_received = self._tls.eof_received  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._connections.add(self)
        self.inner.crowd.enter(self, self._connections)
        if not transport.is_closing():
            self._tls.connection_made(transport)

    def open(self, encrypted: asyncio.Transport) -> None:
        """The handshake is complete: it is the protocol's connection now."""
        self._connections.discard(self)
        self.inner.crowd.leave(self)
        # It would report the bytes that are not encrypted yet; there are none.
        encrypted.set_write_buffer_limits(NEVER_BYTES)
        self._encrypted = encrypted
        self._caller = self.inner(*self._parts)
        encrypted.set_protocol(self._caller)
        self._caller.connection_made(Encrypted(encrypted, self))
        if shown := encrypted.get_extra_info("peercert"):
            left_s = self.certificate.caller_left_s(shown["notAfter"])
            self._outliving = self._loop.call_later(max(left_s, 0.0), self._caller.shutdown)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self.inner.crowd.leave(self)
        self._tls.connection_lost(exc)
        self._caller = self._encrypted = None
        for timer in (self._lingering, self._outliving):
            if timer is not None:
                timer.cancel()

    def shutdown(self) -> None:
        """The server stops; no request has come here yet."""
        self.transport.abort()

    def pause_writing(self) -> None:
        self._is_full = True
        self._tls.pause_writing()
        if self._caller is not None:
            self._caller.pause_writing()

    def resume_writing(self) -> None:
        self._is_full = False
        self._tls.resume_writing()
        if self._is_full:
            return  # What TLS had held back filled it again.
        if self._caller is not None:
            self._caller.resume_writing()
        if self._is_ending:
            self.end()

    def end(self) -> None:
        """Close once everything is sent, and the other side agrees or has had its time."""
        encrypted = self._encrypted
        self._is_ending = encrypted is not None and encrypted.get_write_buffer_size() > 0
        if not self._is_ending and not self.transport.is_closing():
            self._lingering = self._loop.call_later(LINGER_S, self.transport.close)
            # It sends no more requests, and makes room like connections without one.
            self.inner.crowd.enter(self, ())


class Encrypted(asyncio.Transport):
    """The protocol's side of a connection: TLS, and what lies below it unsent."""

    def __init__(self, tls: asyncio.Transport, wire: Wire) -> None:
        super().__init__()
        self._tls, self._wire = tls, wire
        self.write = tls.write  # type: ignore[method-assign]
        self.is_closing = tls.is_closing  # type: ignore[method-assign]
        self.get_extra_info = tls.get_extra_info  # type: ignore[method-assign]
        self.abort = tls.abort  # type: ignore[method-assign]

    def close(self) -> None:
        if not self._tls.is_closing():
            self._tls.close()
            self._wire.end()

    def pause_reading(self) -> None:
        self._tls.pause_reading()
        self._wire.transport.pause_reading()

    def resume_reading(self) -> None:
        self._wire.transport.resume_reading()
        self._tls.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._tls.get_write_buffer_size() + self._wire.transport.get_write_buffer_size()


def end_connections(state: ServerState) -> None:
    """End a listener's connections: idle ones at once, busy ones after their current answer.

    Permitted callers connect again, with the newest context.
    """
    for connection in tuple(state.connections):
        connection.shutdown()


def encrypted_protocol(inner: type[BoundedProtocol], certificate: KeptCertificate) -> type[Wire]:
    """The protocol class of a listener that speaks TLS."""
    return type("ConfiguredWire", (Wire,), {"inner": inner, "certificate": certificate})
