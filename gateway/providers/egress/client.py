"""The one client that opens connections to upstreams.

It checks sovereignty before anything else, knows only endpoints that settings declared, follows no
redirect, keeps no cookie, reads no proxy from the environment, bounds every wait and every body,
and never retries. An upstream's failure becomes one of our errors here, without the upstream's
address.
"""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, structs
from yarl import URL

from gateway.errors import (
    SovereigntyViolation,
    UpstreamUnreachable,
)
from gateway.ports import UpstreamCall, unwatched
from gateway.providers.egress.endpoint import Endpoint, Place
from gateway.providers.egress.pool import CLOSED, Pool
from gateway.providers.egress.reply import EgressLimits, EgressReply
from gateway.providers.egress.resolver import GuardedResolver
from gateway.providers.egress.way_out import require_verifying


USER_AGENT = "gatewright"
# All that every upstream is told about us; an adapter adds its credential and version headers.
_COMMON_HEADERS = {
    "accept": "application/json",
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": USER_AGENT,
}

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Route(Struct, frozen=True):
    """A prepared path of an endpoint, with everything that is the same for each request."""

    endpoint: Endpoint
    url: URL
    head: bytes
    """Request target and headers, from the space after the method to the last header."""
    connect_timeout_s: float
    place: Place
    """The endpoint's place, by which its connections are kept."""

    def with_headers(self, headers: Mapping[str, str]) -> "Route":
        """The same route with more headers; raises ValueError like `Egress.route`."""
        return structs.replace(self, head=self.head + _lines(headers))

    def __repr__(self) -> str:
        return f"Route({self.url})"  # The head holds the credential.


class Egress:
    """Owns the connection pool; made once per process, closed last.

    `tls` replaces the system's trust store, e.g. with a company's own authority; it must verify.
    """

    def __init__(
        self,
        limits: EgressLimits | None = None,
        resolver: GuardedResolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        require_verifying(tls)
        self._tls = tls
        self.limits = limits or EgressLimits()
        self._resolver = resolver or GuardedResolver()
        self._pool: Pool | None = None
        self._is_closed = False

    def route(
        self,
        endpoint: Endpoint,
        path: str,
        headers: Mapping[str, str],
        *,
        connect_timeout_s: float = 5.0,
    ) -> Route:
        """Prepare a route to a path, and admit the endpoint's host."""
        self._resolver.admit(endpoint)
        url = endpoint.url(path)
        target = f" {url.raw_path_qs} HTTP/1.1\r\n".encode("ascii")
        head = target + _lines({"host": _host_header(endpoint), **_COMMON_HEADERS, **headers})
        return Route(endpoint, url, head, connect_timeout_s, endpoint.place)

    def open(
        self, route: Route, call: UpstreamCall, body: bytes | None = None
    ) -> Coroutine[Any, Any, "EgressReply"]:
        """Send a call's body, or its provider's version of it, and wait for the reply's headers.

        Raises:
            SovereigntyViolation: before anything else, also before a connection is taken.
            UpstreamUnreachable, UpstreamTimeout: no headers came.
            UpstreamMalformed: what came is not HTTP, a redirect or compressed.
        """
        check_clearance(route.endpoint.jurisdiction, call)
        sent = call.body if body is None else body
        return self._send(b"POST", route, sent, call.deadline_s, leaves=call.leaves)

    async def ask(self, route: Route, deadline_s: float) -> "EgressReply":
        """A GET without anything from a caller, hence without clearance; raises like `open`.

        Its own deadline holds, however short a time callers wait for a first byte. It does not
        queue for a connection behind them: upstreams are probed even while all connections are
        taken. It is the only request that may be sent twice: a kept connection may have died
        unnoticed.
        """
        limits = structs.replace(self.limits, first_byte_s=deadline_s)
        ask = partial(self._send, b"GET", route, None, deadline_s, waits=False, limits=limits)
        try:
            return await ask()
        except UpstreamUnreachable:
            return await ask(fresh=True)

    async def tell(
        self, route: Route, body: bytes, deadline_s: float, *, may_be_coded: bool = False
    ) -> "EgressReply":
        """A POST without anything from a caller, with its own deadline; raises like `open`.

        `may_be_coded` is for callers that need only the status: a compressed body is left unread.
        """
        bounds = {"first_byte_s": deadline_s, "may_be_coded": may_be_coded}
        limits = structs.replace(self.limits, **bounds)
        return await self._send(b"POST", route, body, deadline_s, fresh=True, limits=limits)

    async def hand_over(
        self, route: Route, calls: Sequence[UpstreamCall], body: bytes, deadline_s: float
    ) -> "EgressReply":
        """A POST with lines of many callers, each with its own clearance; raises like `open`."""
        for call in calls:
            check_clearance(route.endpoint.jurisdiction, call)
        return await self._send(b"POST", route, body, deadline_s, fresh=True)

    async def fetch(self, route: Route, deadline_s: float, bytes_max: int) -> "EgressReply":
        """A GET whose answer may be longer than a reply to a caller; raises like `open`."""
        limits = structs.replace(self.limits, reply_bytes_max=bytes_max)
        return await self._send(b"GET", route, None, deadline_s, fresh=True, limits=limits)

    async def drop(self, route: Route, deadline_s: float) -> "EgressReply":
        """A DELETE of something that an upstream keeps for us; raises like `open`."""
        return await self._send(b"DELETE", route, None, deadline_s, fresh=True)

    async def _send(
        self,
        method: bytes,
        route: Route,
        body: bytes | None,
        deadline_s: float,
        *,
        fresh: bool = False,
        waits: bool = True,
        limits: EgressLimits | None = None,
        leaves: Callable[[], None] = unwatched,
    ) -> "EgressReply":
        now_s = asyncio.get_running_loop().time()
        limits = limits or self.limits
        headers_due = now_s + min(deadline_s, limits.first_byte_s)
        pool = self._started_pool()
        origin = pool.origin(route.endpoint, route.place)
        # Nothing here waits, so it needs no timeout, which would cost more than everything else.
        connection = None if fresh else pool.take_kept(origin)
        if connection is None:
            connect_s = route.connect_timeout_s
            connection = await pool.take(origin, connect_s, headers_due, fresh=fresh, waits=waits)
        reply = EgressReply(pool, origin, connection, limits, now_s + deadline_s, route.head)
        try:
            connection.expect_until(headers_due)
            leaves()
            length = b"" if body is None else b"content-length: %d\r\n" % len(body)
            connection.send(b"%b%b%b\r\n" % (method, route.head, length), body or b"")
            await connection.head()
            reply.examine()
        except BaseException:
            await reply.close()
            raise
        return reply

    async def resolve(self, endpoint: Endpoint) -> tuple[str, ...]:
        """The addresses that connections to this endpoint, or its proxy, are made to; for tests.

        Raises:
            OSError: it has none, or none that is allowed.
        """
        return await self._resolver.resolve(*endpoint.first_hop)

    async def reach(self, endpoint: Endpoint, address: str) -> None:
        """Open a connection to one of those addresses and close it; nothing is sent on it.

        Raises:
            OSError, ssl.CertificateError: from the transport; ProxyFault, which is an OSError,
                if its proxy gave no tunnel.
        """
        await self._started_pool().reach(endpoint, address)

    async def close(self) -> None:
        """Close the pool and every connection; open replies break."""
        pool, self._pool, self._is_closed = self._pool, None, True
        if pool is not None:
            pool.close()

    def _started_pool(self) -> Pool:
        if self._pool is None:
            if self._is_closed:
                raise UpstreamUnreachable(CLOSED)
            limits = self.limits
            self._pool = Pool(
                self._resolver, self._tls, limits.connections_per_host_max, limits.keep_alive_s
            )
        return self._pool


def _lines(headers: Mapping[str, str]) -> bytes:
    if any(not text.isascii() or not text.isprintable() for text in headers.values()):
        raise ValueError("a header holds what could end it")
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("ascii")


def _host_header(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    is_default = endpoint.port == _DEFAULT_PORTS[endpoint.scheme]
    return host if is_default else f"{host}:{endpoint.port}"


def check_clearance(jurisdiction: str, call: UpstreamCall) -> None:
    """The second check of sovereignty, at the last possible place.

    Raises:
        SovereigntyViolation: the endpoint's jurisdiction is not cleared, or is not the one that the
            plan chose.
    """
    if jurisdiction not in call.clearance or jurisdiction != call.target.jurisdiction:
        raise SovereigntyViolation("the destination is outside what policy permits")
