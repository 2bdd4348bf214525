"""Names to addresses for the egress: what a host may not resolve to is never connected to."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence

from gateway.providers.egress.endpoint import Endpoint, Reach, may_reach


_STRICTNESS: tuple[Reach, ...] = ("anywhere", "private", "loopback")

LookUp = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port → addresses; raises OSError where there are none."""


_NONE_SUCH = frozenset(
    getattr(socket, name)
    for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY")
    if hasattr(socket, name)
)
"""As different systems say that a name has no address of a family."""


async def ask_system(host: str, port: int) -> Sequence[str]:
    """The system's own resolver, off the event loop.

    Addresses of IPv6 are asked for where there are none of IPv4: a name that has both costs no
    second question, and no wait for a network that leads nowhere.
    """
    try:
        return await _of_family(host, port, socket.AF_INET, socket.AI_ADDRCONFIG)
    except socket.gaierror as error:
        if error.errno not in _NONE_SUCH:
            raise
    return await _of_family(host, port, socket.AF_INET6)


async def _of_family(host: str, port: int, family: int, flags: int = 0) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=flags)
    return [str(address[0]) for *_, address in found]


class GuardedResolver:
    """Resolves admitted hosts only, and drops addresses out of their reach.

    The check sits between resolving and connecting, so a name cannot show one address to the check
    and another to the connection.
    """

    def __init__(self, look_up: LookUp = ask_system) -> None:
        self._look_up = look_up
        self._reach: dict[str, Reach] = {}

    def admit(self, endpoint: Endpoint) -> None:
        """Let its host, or that of its proxy, be resolved.

        Of two rules for one host the stricter holds.
        """
        host, _ = endpoint.first_hop
        known = self._reach.get(host, "anywhere")
        self._reach[host] = max(known, endpoint.reach, key=_STRICTNESS.index)

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        """The addresses of a host that a connection may be made to; never none.

        Raises:
            OSError: no endpoint has the host, or it has no address that it may have.
        """
        reach = self._reach.get(host)
        if reach is None:
            raise OSError("no endpoint has this host")
        found = await self._look_up(host, port)
        kept = tuple(one for one in found if may_reach(ipaddress.ip_address(one), reach))
        if not kept:
            raise OSError("the host has no address that it may have")
        return kept
