"""A connection below TLS, so that it is counted and bounded from its first byte on.

The event loop shows a connection to its protocol only after the handshake, and reports an answer as
taken when it was merely encrypted. `BelowTls` stands between the socket and the loop's TLS: it is
in the crowd until the protocol is, and passes on what the socket says of unsent bytes.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]

from local_engine.serve.connections.crowd import Crowd


LINGER_S: Final = 2.0
"""How long the other side may take to say that it saw the end."""

_NEVER_S: Final = 1e9
"""Who is slow with a handshake or an answer is ended by bounds of ours."""
_NEVER_BYTES: Final = 2**31 - 1


class _Shaken(asyncio.Protocol):
    """Hears that hands were shaken; from then on TLS speaks to the listener's protocol."""

    def __init__(self, below: "BelowTls") -> None:
        self._below = below

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below.open(cast(asyncio.Transport, transport))


class BelowTls(asyncio.BufferedProtocol):
    """One connection; `made` makes the protocol that speaks over it."""

    def __init__(
        self,
        made: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        crowd: Crowd,
        handshake_s: float,
    ) -> None:
        self.transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self._made, self._crowd, self._handshake_s = made, crowd, handshake_s
        self._protocol: asyncio.Protocol | None = None
        self._encrypted: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        """For hands to be shaken, and for the other side to agree that it ended."""
        self._is_full = self._is_ending = False
        self._tls: Any = SSLProtocol(
            self._loop,
            _Shaken(self),
            context,
            None,
            server_side=True,
            ssl_handshake_timeout=_NEVER_S,
            ssl_shutdown_timeout=_NEVER_S,
        )
        # The very functions of TLS, so that nothing of ours is called for a read.
        self.get_buffer = self._tls.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = self._tls.buffer_updated  # type: ignore[method-assign]
        self.eof_received = self._tls.eof_received  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._crowd.enter(self)
        if not transport.is_closing():
            self._timer = self._loop.call_later(self._handshake_s, self._give_up)
            self._tls.connection_made(transport)

    def open(self, encrypted: asyncio.Transport) -> None:
        """Hands were shaken: the protocol enters the crowd in our place."""
        self._stop_timer()
        self._crowd.leave(self)
        # It would tell of the bytes that are not encrypted yet, which are none.
        encrypted.set_write_buffer_limits(_NEVER_BYTES)
        self._encrypted, self._protocol = encrypted, self._made()
        encrypted.set_protocol(self._protocol)
        self._protocol.connection_made(Encrypted(encrypted, self))

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.leave(self)
        self._stop_timer()
        self._tls.connection_lost(exc)
        self._protocol = self._encrypted = None

    def pause_writing(self) -> None:
        self._is_full = True
        self._tls.pause_writing()
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._is_full = False
        self._tls.resume_writing()
        if self._is_full:
            return  # What TLS had held back filled it again.
        if self._protocol is not None:
            self._protocol.resume_writing()
        if self._is_ending:
            self.end()

    def end(self) -> None:
        """Close once all is on its way, and the other side agrees or has had its time."""
        encrypted = self._encrypted
        self._is_ending = encrypted is not None and encrypted.get_write_buffer_size() > 0
        if not self._is_ending and not self.transport.is_closing():
            self._stop_timer()
            self._timer = self._loop.call_later(LINGER_S, self.transport.close)

    def _give_up(self) -> None:
        self._crowd.metrics.count_end("header")
        self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Encrypted(asyncio.Transport):
    """The protocol's side of a connection: TLS, and what lies below it unsent."""

    def __init__(self, tls: asyncio.Transport, below: BelowTls) -> None:
        super().__init__()
        self._tls, self._below = tls, below
        self.write = tls.write  # type: ignore[method-assign]
        self.is_closing = tls.is_closing  # type: ignore[method-assign]
        self.get_extra_info = tls.get_extra_info  # type: ignore[method-assign]
        self.abort = tls.abort  # type: ignore[method-assign]

    def close(self) -> None:
        if not self._tls.is_closing():
            self._tls.close()
            self._below.end()

    def pause_reading(self) -> None:
        self._tls.pause_reading()
        self._below.transport.pause_reading()

    def resume_reading(self) -> None:
        self._below.transport.resume_reading()
        self._tls.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._tls.get_write_buffer_size() + self._below.transport.get_write_buffer_size()
