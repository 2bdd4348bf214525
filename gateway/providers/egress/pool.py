"""Connection pool: connects to checked addresses only, keeps connections a while, reuses them.

The newest idle connection is taken first, so that those not needed in a quiet hour expire.
"""

import asyncio
import ipaddress
import ssl
from collections import deque
from collections.abc import Sequence
from functools import partial

from gateway.errors import UpstreamTimeout, UpstreamUnreachable
from gateway.providers.egress.connection import Connection
from gateway.providers.egress.endpoint import Endpoint, Place
from gateway.providers.egress.pace import Pace
from gateway.providers.egress.resolver import GuardedResolver
from gateway.providers.egress.transport_faults import unmade
from gateway.providers.egress.tunnel import ProxyFault, open_tunnel
from gateway.providers.egress.way_out import verifying


NO_ANSWER = "the upstream did not answer in time"
NO_CONNECTION = "the upstream could not be connected to in time"
CLOSED = "the gateway is shutting down"
TRIES_LEAST = 3
"""An address gets a third of the time that is left: less would not reach far ones."""


class Origin:
    """The pool's state for one place: idle connections, free turns, and the queue for turns."""

    __slots__ = ("endpoint", "free", "idle", "waiting")

    def __init__(self, endpoint: Endpoint, per_host_max: int) -> None:
        self.endpoint = endpoint
        self.free = per_host_max
        self.idle: list[Connection] = []
        self.waiting: deque[asyncio.Future[None]] = deque()

    def newest_idle(self) -> Connection | None:
        while self.idle:
            connection = self.idle.pop()
            if connection.is_open:
                return connection
        return None

    async def wait_for_turn(self) -> None:
        """First come, first served; a turn is handed over, so nobody can take it in between."""
        if self.free > 0:
            self.free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.end_turn()
            elif turn in self.waiting:
                # It is not there if a turn ended meanwhile and passed over this one.
                self.waiting.remove(turn)
            raise

    def take_beside(self) -> None:
        """Take a turn at once, beyond the limit if need be."""
        self.free -= 1

    def end_turn(self) -> None:
        if self.free < 0:
            # Some caller did not wait for a turn: that one is made up for first.
            self.free += 1
            return
        while self.waiting:
            turn = self.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.free += 1


class Pool:
    """All connections of one egress; belongs to one event loop.

    Args:
        resolver: resolves names to permitted addresses.
        tls: a verifying context, used for https.
        per_host_max: the most exchanges at a time with one origin, hence connections; others wait.
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
        self._pace = Pace()
        self._resolver = resolver
        self._tls = tls
        self._per_host_max = per_host_max
        self._keep_alive_s = keep_alive_s
        self._origins: dict[Place, Origin] = {}
        self._in_use: set[Connection] = set()
        self._is_closed = False

    def origin(self, endpoint: Endpoint, place: Place) -> Origin:
        """The part of the pool for an endpoint; endpoints at one place share it.

        `place` is the endpoint's own, computed once and not for each request.
        """
        known = self._origins.get(place)
        if known is None:
            self._forget_unused()
            known = self._origins[place] = Origin(endpoint, self._per_host_max)
        return known

    def _forget_unused(self) -> None:
        """Each renewed certificate makes a new origin; the old one is dropped once it is empty."""
        unused = [
            place
            for place, origin in self._origins.items()
            if origin.free == self._per_host_max and not (origin.idle or origin.waiting)
        ]
        for place in unused:
            del self._origins[place]

    def take_kept(self, origin: Origin) -> Connection | None:
        """A kept connection, if there is one and a free turn: the path of nearly every request."""
        if origin.free <= 0 or (kept := origin.newest_idle()) is None:
            return None
        origin.free -= 1
        self._in_use.add(kept)
        return kept

    async def take(
        self,
        origin: Origin,
        connect_timeout_s: float,
        end_s: float,
        *,
        fresh: bool = False,
        waits: bool = True,
    ) -> Connection:
        """A connection for one exchange; return it with `give_back`, however the exchange ended.

        A caller that does not wait for a turn gets one beyond the limit.

        Raises:
            UpstreamUnreachable, UpstreamTimeout: none is available before `end_s`.
        """
        has_turn = False
        try:
            async with asyncio.timeout_at(end_s):
                if waits:
                    await origin.wait_for_turn()
                else:
                    origin.take_beside()
                has_turn = True
                try:
                    kept = None if fresh else origin.newest_idle()
                    connection = kept or await self._connect(origin.endpoint, connect_timeout_s)
                    if self._is_closed:
                        connection.cut()
                        raise UpstreamUnreachable(CLOSED)
                except BaseException:
                    origin.end_turn()
                    raise
                self._in_use.add(connection)
                return connection
        except TimeoutError:
            pass
        raise _unconnected() if has_turn else UpstreamTimeout(NO_ANSWER)

    def give_back(self, origin: Origin, connection: Connection) -> None:
        """An exchange is over: keep its connection if the reply was complete, else cut it."""
        self._in_use.discard(connection)
        if connection.is_complete and connection.may_be_kept and connection.is_usable:
            connection.rest(self._loop.time() + self._keep_alive_s)
            origin.idle.append(connection)
        else:
            connection.cut()
        origin.end_turn()

    def close(self) -> None:
        """Cut every connection; exchanges break, and callers that wait for one get none."""
        self._is_closed = True
        idle = [one for origin in self._origins.values() for one in origin.idle]
        for connection in [*self._in_use, *idle]:
            connection.cut()
        for origin in self._origins.values():
            origin.idle.clear()
            for turn in origin.waiting:
                if not turn.done():
                    turn.set_exception(UpstreamUnreachable(CLOSED))
            origin.waiting.clear()

    async def reach(self, endpoint: Endpoint, address: str) -> None:
        """Open a connection to one address, with TLS if needed, and cut it at once.

        Raises:
            OSError, ssl.CertificateError: from the transport.
        """
        (await self._connect_to(endpoint, address)).cut()

    async def _connect(self, endpoint: Endpoint, timeout_s: float) -> Connection:
        """Connect to the first address that answers within its share of the time (`part_s`).

        The name lookup may take as much time again.
        """
        try:
            async with asyncio.timeout(timeout_s):
                addresses, fault = await self._addresses(endpoint)
        except TimeoutError:
            whose = "proxy" if endpoint.proxy else "upstream"
            raise _unconnected(f"the {whose}'s name could not be looked up in time") from None
        failure: UpstreamUnreachable | UpstreamTimeout = unmade(fault)
        hop, port = "proxy " if endpoint.proxy else "", endpoint.first_hop[1]
        end_s = self._loop.time() + timeout_s
        for at, address in enumerate(addresses):
            part = part_s(end_s - self._loop.time(), len(addresses) - at)
            try:
                async with asyncio.timeout(part):
                    return await self._connect_to(endpoint, address)
            except TimeoutError:
                failure = _unconnected()
            except ProxyFault as error:
                failure = unmade(f"{hop}{address}:{port}: {error}", str(error))
            except (OSError, ssl.CertificateError) as error:
                failure = unmade(f"{hop}{address}:{port}: {error}")
        raise failure

    async def _connect_to(self, endpoint: Endpoint, address: str) -> Connection:
        make = partial(Connection, self._loop, self._forget, self._pace)
        tls = await self._trust(endpoint)
        name = None if tls is None else endpoint.host
        proxy = endpoint.proxy
        if proxy is None:
            _, connection = await self._loop.create_connection(
                make, address, endpoint.port, ssl=tls, server_hostname=name
            )
            return connection
        tunnel = await open_tunnel(address, proxy, endpoint)
        try:
            _, connection = await self._loop.create_connection(
                make, sock=tunnel, ssl=tls, server_hostname=name
            )
        except BaseException:
            tunnel.close()
            raise
        return connection

    async def _trust(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        """The trust and client certificate of a connection; None for plain http."""
        if endpoint.scheme == "http":
            return None
        if endpoint.way_out is not None and endpoint.way_out.tls is not None:
            return endpoint.way_out.tls
        if self._tls is None:
            # Loading the system's trust store takes milliseconds: once, and off the loop.
            self._tls = await asyncio.to_thread(verifying)
        return self._tls

    async def _addresses(self, endpoint: Endpoint) -> tuple[Sequence[str], str]:
        """Addresses of the first hop's host, or none and the reason; literals stay as they are."""
        host, port = endpoint.first_hop
        try:
            return (str(ipaddress.ip_address(host)),), ""
        except ValueError:
            pass
        try:
            return await self._resolver.resolve(host, port), ""
        except OSError as error:
            return (), str(error)

    def _forget(self, connection: Connection) -> None:
        """An idle connection has ended."""
        for origin in self._origins.values():
            if connection in origin.idle:
                origin.idle.remove(connection)


def part_s(left_s: float, addresses_left: int) -> float:
    """The time limit for the next of so many addresses; unused time is left for the others."""
    return max(left_s, 0.0) / min(addresses_left, TRIES_LEAST)


def _unconnected(reason: str = NO_CONNECTION) -> UpstreamTimeout:
    failure = UpstreamTimeout(reason)
    failure.is_connected = False
    return failure
