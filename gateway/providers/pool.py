"""Connections to upstreams: opened to checked addresses only, kept for a while, given out again.

The newest idle connection is taken first, so that those a quiet hour does not need run out.
"""

import asyncio
import ipaddress
import ssl
from collections import defaultdict
from collections.abc import Sequence

from gateway.errors import UpstreamTimeout, UpstreamUnreachable
from gateway.providers.connection import Connection, broken
from gateway.providers.endpoint import Endpoint
from gateway.providers.resolver import GuardedResolver


Origin = tuple[str, str, int]
NO_ANSWER = "the upstream did not answer in time"
NO_CONNECTION = "the upstream could not be connected to"


class Pool:
    """All connections of one egress; belongs to one event loop.

    Args:
        resolver: names to addresses that they may have.
        tls: verifies; used for https.
        per_host_max: exchanges at a time with one origin, hence connections; more wait.
        keep_alive_s: how long an idle connection is kept.
    """

    def __init__(
        self,
        resolver: GuardedResolver,
        tls: ssl.SSLContext | None,
        per_host_max: int,
        keep_alive_s: float,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._resolver = resolver
        self._tls = tls
        self._keep_alive_s = keep_alive_s
        self._idle: dict[Origin, list[Connection]] = defaultdict(list)
        self._in_use: set[Connection] = set()
        self._turns: dict[Origin, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(per_host_max)
        )

    async def take(
        self, endpoint: Endpoint, connect_timeout_s: float, end_s: float, *, fresh: bool = False
    ) -> Connection:
        """A connection for one exchange; goes back with `give_back`, whatever became of it.

        Raises:
            UpstreamUnreachable, UpstreamTimeout: there is none to be had before `end_s`.
        """
        origin = _origin(endpoint)
        turn = self._turns[origin]
        if not fresh and not turn.locked() and (kept := self._newest_idle(origin)) is not None:
            # Nothing here waits, so it needs no timeout, which would cost more than all the rest.
            await turn.acquire()
            return kept
        try:
            async with asyncio.timeout_at(end_s):
                await turn.acquire()
                try:
                    kept = None if fresh else self._newest_idle(origin)
                    return kept or await self._open(endpoint, connect_timeout_s)
                except BaseException:
                    turn.release()
                    raise
        except TimeoutError:
            pass
        raise UpstreamTimeout(NO_ANSWER)

    def give_back(self, endpoint: Endpoint, connection: Connection) -> None:
        """An exchange is over: keep its connection if the reply was whole, else cut it."""
        origin = _origin(endpoint)
        self._in_use.discard(connection)
        if connection.is_complete and connection.may_be_kept and connection.is_usable:
            connection.rest(self._loop.time() + self._keep_alive_s)
            self._idle[origin].append(connection)
        else:
            connection.cut()
        self._turns[origin].release()

    def close(self) -> None:
        """Cut every connection; exchanges break."""
        for connection in [*self._in_use, *(one for idle in self._idle.values() for one in idle)]:
            connection.cut()
        self._idle.clear()

    def _newest_idle(self, origin: Origin) -> Connection | None:
        idle = self._idle[origin]
        while idle:
            connection = idle.pop()
            if connection.is_usable:
                self._in_use.add(connection)
                return connection
        return None

    async def _open(self, endpoint: Endpoint, timeout_s: float) -> Connection:
        connection = await self._connect(endpoint, timeout_s)
        self._in_use.add(connection)
        return connection

    async def _connect(self, endpoint: Endpoint, timeout_s: float) -> Connection:
        """To the first address that answers; each has an equal part of the time."""
        addresses, fault = await self._addresses(endpoint)
        failure: UpstreamUnreachable | UpstreamTimeout = broken(fault, NO_CONNECTION)
        for address in addresses:
            try:
                async with asyncio.timeout(timeout_s / len(addresses)):
                    return await self._connect_to(endpoint, address)
            except TimeoutError:
                failure = UpstreamTimeout("the upstream could not be connected to in time")
            except (OSError, ssl.CertificateError) as error:
                failure = broken(f"{address}:{endpoint.port}: {error}", NO_CONNECTION)
        raise failure

    async def _connect_to(self, endpoint: Endpoint, address: str) -> Connection:
        is_encrypted = endpoint.scheme == "https"
        if is_encrypted and self._tls is None:
            # Loading the system's trust store takes milliseconds: once, and off the loop.
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        _, connection = await self._loop.create_connection(
            lambda: Connection(self._loop, self._forget),
            address,
            endpoint.port,
            ssl=self._tls if is_encrypted else None,
            server_hostname=endpoint.host if is_encrypted else None,
        )
        return connection

    async def _addresses(self, endpoint: Endpoint) -> tuple[Sequence[str], str]:
        """Addresses of the endpoint's host, or none and the reason; a literal needs no resolver."""
        try:
            return (str(ipaddress.ip_address(endpoint.host)),), ""
        except ValueError:
            pass
        try:
            found = await self._resolver.resolve(endpoint.host, endpoint.port)
        except OSError as error:
            return (), str(error)
        return tuple(one["host"] for one in found), ""

    def _forget(self, connection: Connection) -> None:
        """An idle connection has ended."""
        for idle in self._idle.values():
            if connection in idle:
                idle.remove(connection)


def _origin(endpoint: Endpoint) -> Origin:
    return (endpoint.scheme, endpoint.host, endpoint.port)
