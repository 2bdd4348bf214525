"""Names to addresses for the egress: what a host may not resolve to is never connected to."""

import ipaddress
import socket

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from gateway.providers.endpoint import Endpoint, Reach, may_reach


_STRICTNESS: tuple[Reach, ...] = ("anywhere", "private", "loopback")


class GuardedResolver(AbstractResolver):
    """Resolves admitted hosts only, and drops addresses out of their reach.

    The check sits between resolving and connecting, so a name cannot show one address to the check
    and another to the connection.
    """

    def __init__(self, resolver: AbstractResolver | None = None) -> None:
        self._resolver = resolver
        self._reach: dict[str, Reach] = {}

    def admit(self, endpoint: Endpoint) -> None:
        """Let this endpoint's host be resolved; of two rules for one host the stricter holds."""
        known = self._reach.get(endpoint.host, "anywhere")
        self._reach[endpoint.host] = max(known, endpoint.reach, key=_STRICTNESS.index)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        reach = self._reach.get(host)
        if reach is None:
            raise OSError("no endpoint has this host")
        if self._resolver is None:
            self._resolver = ThreadedResolver()
        found = await self._resolver.resolve(host, port, family)
        kept = [one for one in found if may_reach(ipaddress.ip_address(one["host"]), reach)]
        if not kept:
            raise OSError("the host has no address that it may have")
        return kept

    async def close(self) -> None:
        if self._resolver is not None:
            await self._resolver.close()
