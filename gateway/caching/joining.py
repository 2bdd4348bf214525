"""Equal requests that are under way: one asks, and who comes meanwhile waits until that has ended.

No answer is handed over here. Whoever waited looks again where answers are kept, by every rule that
holds for a kept answer. Everybody waits once, and for a bounded time: an answer that was not kept,
of a request that failed or whose caller left, is asked for by all who waited for it, at once.
Belongs to one event loop.
"""

import asyncio
from typing import Final

from msgspec import Struct


PATIENCE: Final = 0.5
"""The share of its own deadline that a request waits at most: in the rest it is answered itself."""


class Name(Struct, frozen=True):
    """What requests have in common of which one waits for another."""

    key: bytes
    """Where their answers would lie."""
    decision: str
    """Who may answer them, in which order, and why: what one was refused, another waits for not."""
    service_tier: str
    """Nobody waits behind who has more time."""


class Lead:
    """A request that asks, while others may wait for it; whatever comes of it, end it."""

    __slots__ = ("_leads", "_name", "_over", "began_s")

    def __init__(self, leads: "Leads", name: Name, began_s: float) -> None:
        self._leads = leads
        self._name = name
        self._over = asyncio.Event()
        self.began_s = began_s

    async def over(self, within_s: float) -> None:
        """Wait for its end, or until the time is up; a waiter who leaves changes nothing."""
        self._leads.waiting += 1
        try:
            async with asyncio.timeout(within_s):
                await self._over.wait()
        except TimeoutError:
            pass
        finally:
            self._leads.waiting -= 1

    def end(self) -> None:
        """Its answer is kept, or will not be; the first end counts."""
        self._over.set()
        self._leads.forget(self._name, self)


class Leads:
    """Who asks for what, on this worker."""

    def __init__(self, wait_s: float) -> None:
        """`wait_s`: how long anybody waits; 0: nobody does."""
        self._wait_s = wait_s
        self._by_name: dict[Name, Lead] = {}
        self.waiting = 0
        """Requests that wait now, for whichever."""

    def __len__(self) -> int:
        return len(self._by_name)

    def found(self, name: Name, now_s: float) -> Lead | None:
        """Who asks for the same; None also where that has lasted as long as anybody waits.

        It may last for ever: a stream is as slow as who reads it.
        """
        lead = self._by_name.get(name)
        return lead if lead is not None and now_s - lead.began_s < self._wait_s else None

    def within_s(self, deadline_s: float) -> float:
        """How long a request with this deadline waits."""
        return min(self._wait_s, deadline_s * PATIENCE)

    def begin(self, name: Name, now_s: float) -> Lead:
        """One that asks from now on, in the place of one that takes too long."""
        lead = Lead(self, name, now_s)
        self._by_name[name] = lead
        return lead

    def forget(self, name: Name, lead: Lead) -> None:
        """Nobody waits for this one any more."""
        if self._by_name.get(name) is lead:
            del self._by_name[name]
