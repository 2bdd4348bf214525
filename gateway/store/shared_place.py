"""Connections to a shared Valkey or Redis; the certificates trusted over TLS are read once."""

import ssl
from contextlib import suppress
from typing import Any, Final

from redis.asyncio import BlockingConnectionPool, Redis, SSLConnection
from redis.exceptions import TimeoutError as RedisTimeoutError

from gateway.secrets.tls import ONLY_NEWER


class _Connections(BlockingConnectionPool):
    """redis-py reads all certificates of the machine again for each connection.

    That is a twentieth of a second on the event loop, and on a busy machine more than a connection
    is waited for: then none is ever made.
    """

    _trust: Any = None

    def make_connection(self) -> Any:
        made: Any = self.connection_class(**self.connection_kwargs)
        if not isinstance(made, SSLConnection):
            return made
        if self._trust is None:
            self._trust = made.ssl_context
            self._trust.exclude_verify_flags = ONLY_NEWER
            # If it cannot be read, the first connection reports it like a place that is not there.
            with suppress(OSError, ssl.SSLError):
                self._trust.get()
        made.ssl_context = self._trust
        return made


_WORDS_MAX: Final = 200
_ARGUMENTS: Final = "with args beginning"
"""After this a server repeats the request: names of accounts, and what was to be stored."""


def why_away(error: BaseException, timeout_s: float) -> str:
    """The reason for the log: what the server or the machine said, without keys and values."""
    said = str(error).partition("\n")[0].partition(_ARGUMENTS)[0][:_WORDS_MAX].strip(" ,")
    if isinstance(error, TimeoutError | RedisTimeoutError) or not said:
        return f"it did not answer within {timeout_s:g} s"
    return said


def shared_place(url: str, password: str, *, connections_max: int, timeout_s: float) -> Any:
    """A client that waits at most `timeout_s` for a connection, a place in it or an answer.

    `url` is `redis://host:port/number`, or `rediss://` with TLS. Nothing is opened yet.
    """
    pool = _Connections.from_url(
        url,
        password=password or None,
        max_connections=connections_max,
        timeout=timeout_s,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
    )
    # Now, since nobody waits for it yet; it is not opened.
    pool.make_connection()
    return Redis.from_pool(pool)
