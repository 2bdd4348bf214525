"""The one client that opens connections to upstreams.

It checks sovereignty before anything else, knows only endpoints that settings declared, follows no
redirect, keeps no cookie, reads no proxy from the environment, bounds every wait and every body,
and never retries. What an upstream did wrong leaves here as one of our errors, without its address.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from email.utils import parsedate_to_datetime

import aiohttp
from aiohttp import hdrs
from msgspec import Struct
from multidict import CIMultiDict
from yarl import URL

from gateway.errors import (
    SovereigntyViolation,
    UpstreamFailed,
    UpstreamMalformed,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.ports import UpstreamCall
from gateway.providers.endpoint import Endpoint
from gateway.providers.resolver import GuardedResolver


USER_AGENT = "gatewright"
# All that every upstream is told about us; an adapter adds its credential and version headers.
_COMMON_HEADERS = {
    hdrs.ACCEPT: "application/json",
    hdrs.ACCEPT_ENCODING: "identity",
    hdrs.CONTENT_TYPE: "application/json",
    hdrs.USER_AGENT: USER_AGENT,
}
_TRANSPORT_ERRORS = (aiohttp.ClientError, OSError, RuntimeError)


class TransportFault(Exception):
    """What the transport saw, for the operator's log: a cause, never raised by itself."""


class EgressLimits(Struct, frozen=True):
    """Bounds on what an upstream may cost us; settings have the same names."""

    first_byte_s: float = 120.0
    """From sending to the reply's headers, waiting for a connection of the pool included."""
    idle_s: float = 60.0
    """Between two pieces of a body, while we wait for it."""
    reply_bytes_max: int = 32 * 1024 * 1024
    connections_max: int = 4096
    connections_per_host_max: int = 1024
    keep_alive_s: float = 15.0


class Route(Struct, frozen=True):
    """A prepared way to one path of an endpoint: everything that is the same for each request."""

    endpoint: Endpoint
    url: URL
    headers: CIMultiDict[str]
    timeout: aiohttp.ClientTimeout


class Egress:
    """Owns the connection pool; made once per process, closed last.

    `tls` replaces the system's trust store, e.g. by a company's own authority; it must verify.
    """

    def __init__(
        self,
        limits: EgressLimits | None = None,
        resolver: GuardedResolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if tls is not None and (tls.verify_mode != ssl.CERT_REQUIRED or not tls.check_hostname):
            raise ValueError("the egress must verify certificates and host names")
        self._tls = tls
        self.limits = limits or EgressLimits()
        self._resolver = resolver or GuardedResolver()
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    def route(
        self,
        endpoint: Endpoint,
        path: str,
        headers: Mapping[str, str],
        *,
        connect_timeout_s: float = 5.0,
    ) -> Route:
        """Prepare a way to a path, and admit the endpoint's host."""
        self._resolver.admit(endpoint)
        # `total` and `sock_read` stay off: the deadlines of this module cost less per chunk.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s)
        return Route(endpoint, endpoint.url(path), CIMultiDict(headers), timeout)

    async def open(self, route: Route, call: UpstreamCall) -> "EgressReply":
        """Send a call's body and wait for the reply's headers.

        Raises:
            SovereigntyViolation: before anything else, also before a connection is taken.
            UpstreamUnreachable, UpstreamTimeout: no headers came.
            UpstreamMalformed: what came is not HTTP, a redirect or compressed.
        """
        check_clearance(route.endpoint.jurisdiction, call)
        return await self._send("POST", route, call.body, call.deadline_s)

    async def ask(self, route: Route, deadline_s: float) -> "EgressReply":
        """A GET with nothing of any caller in it, hence without clearance; raises like `open`.

        The one thing that may be sent twice: aiohttp repeats a GET on a kept connection that died.
        """
        return await self._send("GET", route, None, deadline_s)

    async def _send(
        self, method: str, route: Route, body: bytes | None, deadline_s: float
    ) -> "EgressReply":
        session = self._session
        if session is None:
            if self._is_closed:
                raise UpstreamUnreachable("the gateway is shutting down")
            session = self._session = self._start()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_s
        response = await self._request(session, method, route, body, deadline_s)
        if isinstance(response, UpstreamFailed):
            raise response
        reply = EgressReply(response, self.limits, deadline, loop)
        if reply.status // 100 not in (2, 4, 5):
            await reply.close()
            raise UpstreamMalformed("the upstream answered with a redirect or an unknown status")
        if (response.headers.get(hdrs.CONTENT_ENCODING) or "identity") != "identity":
            await reply.close()
            raise UpstreamMalformed("the upstream compressed its reply although it must not")
        return reply

    async def _request(
        self,
        session: aiohttp.ClientSession,
        method: str,
        route: Route,
        body: bytes | None,
        deadline_s: float,
    ) -> aiohttp.ClientResponse | UpstreamFailed:
        """The reply's headers or the failure; returned so that it is raised without a context."""
        try:
            async with asyncio.timeout(min(deadline_s, self.limits.first_byte_s)):
                return await session.request(
                    method,
                    route.url,
                    data=body,
                    headers=route.headers,
                    allow_redirects=False,
                    timeout=route.timeout,
                )
        except _TRANSPORT_ERRORS as error:
            return _translate(error)

    async def close(self) -> None:
        """Close the pool and every connection; open replies break."""
        session, self._session, self._is_closed = self._session, None, True
        if session is not None:
            await session.close()
        await self._resolver.close()

    def _start(self) -> aiohttp.ClientSession:
        limits = self.limits
        connector = aiohttp.TCPConnector(
            limit=limits.connections_max,
            limit_per_host=limits.connections_per_host_max,
            keepalive_timeout=limits.keep_alive_s,
            resolver=self._resolver,
            ssl=self._tls or True,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_COMMON_HEADERS,
            auto_decompress=False,
            trust_env=False,
            raise_for_status=False,
            requote_redirect_url=False,
        )


class EgressReply:
    """An upstream's answer whose headers have arrived; see `gateway.ports.UpstreamReply`."""

    __slots__ = (
        "_deadline",
        "_is_late",
        "_limits",
        "_loop",
        "_received_bytes",
        "_response",
        "_waits_since",
        "_watch",
        "is_event_stream",
        "retry_after_s",
        "status",
    )

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        limits: EgressLimits,
        deadline: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._response, self._limits = response, limits
        self._deadline, self._loop = deadline, loop
        self._watch: asyncio.TimerHandle | None = None
        self._waits_since = 0.0
        self._is_late = False
        self._received_bytes = 0
        headers = response.headers
        self.status: int = response.status
        self.is_event_stream: bool = headers.get(hdrs.CONTENT_TYPE, "").startswith(
            "text/event-stream"
        )
        self.retry_after_s: float | None = (
            None if response.status // 100 == 2 else parse_retry_after(headers)  # noqa: PLR2004
        )

    async def read(self) -> bytes:
        if (self._response.content_length or 0) > self._limits.reply_bytes_max:
            await self.close()
            raise UpstreamMalformed("the upstream's reply is too large")
        first = await self._next()
        if self._response.content.at_eof():
            await self.close()
            return first
        pieces = [first]
        while piece := await self._next():
            pieces.append(piece)
        await self.close()
        return b"".join(pieces)

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if piece := await self._next():
            return piece
        await self.close()
        raise StopAsyncIteration

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        # At its end aiohttp has taken the connection back already; before that, cut it.
        if not self._response.content.is_eof():
            self._response.close()

    async def _next(self) -> bytes:
        """What has arrived, or what arrives next; empty at the end."""
        content = self._response.content
        try:
            if content.is_eof():
                piece = content.read_nowait()
            else:
                self._wait_begins()
                piece = await content.readany()
                self._waits_since = 0.0
            failure = None
        except _TRANSPORT_ERRORS as error:
            failure = _translate(error)
            piece = b""
        if failure is not None:
            await self.close()
            raise UpstreamTimeout("the upstream stopped sending") if self._is_late else failure
        self._received_bytes += len(piece)
        if self._received_bytes > self._limits.reply_bytes_max:
            await self.close()
            raise UpstreamMalformed("the upstream's reply is too large")
        return piece

    def _wait_begins(self) -> None:
        """Start a wait; one timer per reply looks again only when the earliest end has come."""
        now = self._waits_since = self._loop.time()
        if self._watch is None:
            end = min(now + self._limits.idle_s, self._deadline)
            self._watch = self._loop.call_at(end, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        idle_end = (self._waits_since or now) + self._limits.idle_s
        if now >= self._deadline or now >= idle_end:
            self._watch = None
            self._is_late = True
            # Wakes the reader with an error and cuts the connection: the upstream may stop working.
            self._response.close()
        else:
            self._watch = self._loop.call_at(min(idle_end, self._deadline), self._look)


def check_clearance(jurisdiction: str, call: UpstreamCall) -> None:
    """The second look at sovereignty, at the last possible place.

    Raises:
        SovereigntyViolation: the endpoint's jurisdiction is not cleared, or not the one the plan
            thought it had chosen.
    """
    if jurisdiction not in call.clearance or jurisdiction != call.target.jurisdiction:
        raise SovereigntyViolation("the destination is outside what policy permits")


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `retry-after` in either of its forms.

    A date is compared with the upstream's own `date`, so that no clock has to be right.
    """
    try:
        if (milliseconds := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(milliseconds) / 1000)
        if (value := headers.get(hdrs.RETRY_AFTER)) is None:
            return None
        if value.isdigit():
            return float(value)
        wait = parsedate_to_datetime(value) - parsedate_to_datetime(headers[hdrs.DATE])
        return max(0.0, wait.total_seconds())
    except (ValueError, KeyError, TypeError):
        return None


def _translate(error: Exception) -> UpstreamFailed:
    """Our error for the transport's.

    It is raised outside the `except` block, with a cause that holds no more than is safe to log:
    aiohttp's own errors carry the request's headers, credential included, and bytes of the reply.
    """
    failure: UpstreamFailed
    cause = TransportFault(type(error).__name__)
    if isinstance(error, TimeoutError):
        failure = UpstreamTimeout("the upstream did not answer in time")
    elif isinstance(error, aiohttp.ClientResponseError):
        failure = UpstreamMalformed("the upstream's reply is not HTTP")
    elif isinstance(error, aiohttp.ClientConnectorError):
        failure = UpstreamUnreachable("the upstream could not be connected to")
        cause = TransportFault(str(error))
    else:
        failure = UpstreamUnreachable("the connection to the upstream broke")
    failure.__cause__ = cause
    return failure
