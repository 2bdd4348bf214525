"""Turns with conversations that this worker's requests hold: renewed, and at their end released.

A turn is a lease. If a worker is killed, its turns are soon over, however long a request may last.
"""

import asyncio
from contextlib import suppress
from typing import Final

from msgspec import Struct

from gateway.clock import Clock
from gateway.continuing.kept_conversations import TURN_LEASE_US, ConversationStore, TakenTurn
from gateway.errors import Unavailable


RENEW_S: Final = TURN_LEASE_US / 4e6
"""How old a lease is before it is renewed: most turns are over by then, and two may fail."""


class _Held(Struct):
    turn: TakenTurn
    renewed_s: float
    last_s: float
    """Until when it is renewed at most."""


class HeldTurns:
    """The turns of one worker; `clock` is the database's, by which they end."""

    def __init__(self, store: ConversationStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._held: dict[str, _Held] = {}

    def note(self, turn: TakenTurn, last_s: float) -> int:
        """Note a turn before it is taken; until when it lasts if not renewed, in microseconds.

        A request that ends in between releases it, in case it was taken.
        """
        now_s = self._clock.monotonic_s()
        self._held[turn.request_id] = _Held(turn, renewed_s=now_s, last_s=now_s + last_s)
        return self._clock.utc_us() + TURN_LEASE_US

    def is_over(self, request_id: str) -> None:
        """Forget a turn that ended with what it added."""
        self._held.pop(request_id, None)

    async def renew(self) -> None:
        """Renew turns; raises NotReady.

        One that began longer ago than a request can last was forgotten, and ends.
        """
        now_s = self._clock.monotonic_s()
        due = [
            held for held in self._held.values() if held.renewed_s + RENEW_S <= now_s < held.last_s
        ]
        if not due:
            return
        until_us = self._clock.utc_us() + TURN_LEASE_US
        await self._store.renew([held.turn for held in due], until_us)
        for held in due:
            held.renewed_s = now_s

    async def let_go(self, request_id: str) -> None:
        """End the turn of a request that added nothing, if it has one."""
        held = self._held.pop(request_id, None)
        if held is None:
            return
        # Where the database is away it ends by itself, as that of a worker which is gone.
        with suppress(Unavailable):
            its = held.turn.project, held.turn.conversation_id
            await asyncio.shield(self._store.let_go(*its, request_id))
