"""Resolves host names for the egress and drops addresses that a host may not have."""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from gateway.providers.egress.endpoint import Endpoint, Reach, may_reach


_STRICTNESS: tuple[Reach, ...] = ("anywhere", "private", "loopback")

AGAIN_S: Final = 5.0
"""A question older than this is not joined: its answer may never come."""
AT_ONCE: Final = 4
"""The most questions for one host, each with its thread."""

LookUp = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port → addresses; raises OSError if there are none."""


_NONE_SUCH = frozenset(
    getattr(socket, name)
    for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY")
    if hasattr(socket, name)
)
"""How different systems say that a name has no address of a family."""


async def ask_system(host: str, port: int) -> Sequence[str]:
    """Ask the system's own resolver, in a thread for this question only.

    The event loop has four threads for such questions. A silent resolver keeps a thread for ten
    seconds or more, even if nobody waits any longer: a few names that hang would hold up all
    others. The thread is a daemon, so that a process that ends does not wait for it.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[str]] = loop.create_future()

    def tell(settle: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # The loop has ended.
            loop.call_soon_threadsafe(lambda: None if answer.done() else settle())

    def ask() -> None:
        try:
            found = _ask_system(host, port)
        except (OSError, UnicodeError) as error:
            refused = error
            tell(lambda: answer.set_exception(refused))
        except MemoryError:
            # Otherwise nobody would ask for this name again until the process ends.
            tell(lambda: answer.set_exception(OSError("no memory for asking the resolver")))
        else:
            tell(lambda: answer.set_result(found))

    try:
        threading.Thread(target=ask, name="look-up", daemon=True).start()
    except RuntimeError as error:
        raise OSError("no thread for asking the resolver") from error
    return await answer


def _ask_system(host: str, port: int) -> Sequence[str]:
    """Blocks. Asks for IPv6 addresses only if there are none of IPv4.

    A name with both costs no second question, and no wait for a network that leads nowhere.
    """
    try:
        return _of_family(host, port, socket.AF_INET, socket.AI_ADDRCONFIG)
    except socket.gaierror as error:
        if error.errno not in _NONE_SUCH:
            raise
    return _of_family(host, port, socket.AF_INET6)


def _of_family(host: str, port: int, family: int, flags: int = 0) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=flags)
    return [str(address[0]) for *_, address in found]


class _Question(NamedTuple):
    asked_s: float
    answer: asyncio.Task[Sequence[str]]


class GuardedResolver:
    """Resolves admitted hosts only, and drops addresses out of their reach.

    Callers that ask for the same host at the same time share one answer, and may leave: so a name
    that hangs holds few threads. Results are not cached.

    The check sits between resolving and connecting, so a name cannot show one address to the check
    and another to the connection.
    """

    def __init__(self, look_up: LookUp = ask_system) -> None:
        self._look_up = look_up
        self._reach: dict[str, Reach] = {}
        self._asked: dict[tuple[str, int], list[_Question]] = {}
        """Questions without an answer yet, oldest first."""

    def admit(self, endpoint: Endpoint) -> None:
        """Let its host, or that of its proxy, be resolved.

        Of two rules for one host the stricter holds.
        """
        host, _ = endpoint.first_hop
        known = self._reach.get(host, "anywhere")
        self._reach[host] = max(known, endpoint.reach, key=_STRICTNESS.index)

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        """The addresses of a host that a connection may be made to; never empty.

        Raises:
            OSError: no endpoint has the host, or none of its addresses is allowed.
        """
        reach = self._reach.get(host)
        if reach is None:
            raise OSError("no endpoint has this host")
        found = await asyncio.shield(self._question(host, port))
        kept = tuple(one for one in found if may_reach(ipaddress.ip_address(one), reach))
        if not kept:
            raise OSError("the host has no address that it may have")
        return kept

    def _question(self, host: str, port: int) -> asyncio.Task[Sequence[str]]:
        """The newest open question, or a new one if that takes too long."""
        asked = self._asked.setdefault((host, port), [])
        now_s = asyncio.get_running_loop().time()
        if asked and (now_s - asked[-1].asked_s < AGAIN_S or len(asked) == AT_ONCE):
            return asked[-1].answer
        answer = asyncio.ensure_future(self._answered(host, port))
        question = _Question(now_s, answer)
        asked.append(question)

        def end(_: object) -> None:
            asked.remove(question)
            if not answer.cancelled():
                answer.exception()  # Retrieved here: callers may have left.

        answer.add_done_callback(end)
        return answer

    async def _answered(self, host: str, port: int) -> Sequence[str]:
        return await self._look_up(host, port)
