"""Joins equal requests that are under way: one asks, and the others wait until it has ended.

No answer is handed over here. Those who waited look again among the kept answers, by every rule for
these. Where the first request failed, lost its caller, or is held up by a slow one, one of those
who waited asks in its place, and the others wait for that one. Each waits for a few at most, and
for a bounded time in all; after a complete answer that was not kept, all of them ask at once.
Belongs to one event loop.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec import Struct


PATIENCE: Final = 0.5
"""The share of its own deadline that a request waits at most: in the rest it is answered itself."""


ROUNDS_MAX: Final = 3
"""For so many others a request waits, one after the other: then the upstream fails, as it seems."""
HELD_UP_S: Final = 2.0
"""A stream whose reader has kept it waiting for so long, in all, is not waited for any further."""
LOOK_S: Final = 0.5
"""How often whoever waits looks whether that is so."""


def never_held_up() -> float:
    """Of an answer that nobody reads while it is made."""
    return 0.0


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

    __slots__ = ("_leads", "_name", "_over", "began_s", "held_up_s", "is_answered")

    def __init__(self, leads: "Leads", name: Name, began_s: float) -> None:
        self._leads = leads
        self._name = name
        self._over = asyncio.Event()
        self.began_s = began_s
        self.is_answered = False
        """Whether it was answered to the end, kept or not: who asks again hears the like."""
        self.held_up_s: Callable[[], float] = never_held_up
        """How long its answer has waited for who reads it."""

    @property
    def is_held_up(self) -> bool:
        return self.held_up_s() >= HELD_UP_S

    async def over(self, within_s: float) -> None:
        """Wait for its end, until it is held up, or until the time is up.

        A waiter who leaves changes nothing.
        """
        self._leads.waiting += 1
        try:
            async with asyncio.timeout(within_s):
                while not (self._over.is_set() or self.is_held_up):
                    await self._ended_or_a_while()
        except TimeoutError:
            pass
        finally:
            self._leads.waiting -= 1

    async def _ended_or_a_while(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._over.wait()

    def end(self, *, is_answered: bool = False) -> None:
        """Its answer is kept, or will not be; the first end counts."""
        if not self._over.is_set():
            self.is_answered |= is_answered
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
        if lead is None or lead.is_held_up:
            return None
        return lead if now_s - lead.began_s < self._wait_s else None

    def within_s(self, deadline_s: float) -> float:
        """How long a request with this deadline waits, for whomever, in all."""
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
