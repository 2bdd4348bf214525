"""Records refused sign-ins: each one while they are few, a count when there is a flood.

Anybody may be refused as often as they like, and a record is kept for years. So for each name that
is known here, and for all unknown ones together, some refusals are written down, and the next
record counts the rest.
"""

import asyncio
from collections import Counter
from typing import Final

from gateway.clock import Clock
from gateway.errors import AuditUnavailable
from gateway.oversight.deeds import Deeds
from gateway.pacing.flow import Flow
from gateway.telemetry import Event, logger


AT_ONCE_MAX: Final = 20
PER_SECOND_MAX: Final = 0.1
"""In a day of nothing else some nine thousand records of one name."""


class Refusals:
    """What is written down of them; one for all ways in."""

    def __init__(self, deeds: Deeds, clock: Clock) -> None:
        self._deeds = deeds
        self._clock = clock
        self._flows: dict[str, Flow] = {}
        self._left_out: Counter[str] = Counter()

    async def note(self, actor: str) -> None:
        """Somebody was refused; `actor` is somebody there is, or a way in: never what was typed.

        Raises:
            AuditUnavailable: it is to be written down, and cannot be.
        """
        flow = self._flows.get(actor)
        if flow is None:
            flow = self._flows[actor] = Flow(self._clock, AT_ONCE_MAX, PER_SECOND_MAX)
        if not flow.take():
            self._left_out[actor] += 1
            return
        await self._record(actor, self._left_out.pop(actor, 0))

    async def tell(self, *, is_end: bool = False) -> None:
        """Write down what was left out, of names of which a record may be written again, or of all.

        Otherwise the count of a flood that is over would wait for the next who is refused, and be
        lost at a restart. The record stands for one of those that were left out.

        Raises:
            AuditUnavailable: it cannot be written; it is counted on.
        """
        for actor in list(self._left_out):
            if is_end or self._flows[actor].take():
                await self._record(actor, self._left_out.pop(actor) - 1)

    async def _record(self, actor: str, left_out: int) -> None:
        try:
            await self._deeds.record(
                actor,
                "session.refused",
                "",
                error="unauthenticated",
                left_out=str(left_out or ""),
            )
        except (AuditUnavailable, asyncio.CancelledError):
            self._left_out[actor] += left_out + 1
            raise
        logger().warning(Event.ADMIN_REFUSED, component="admin")
