"""Pages that show a secret once, repeated to the same form of the same sitting for a minute.

Pressing a button twice without scripts sends a form twice, and a browser shows only the second
answer; the first one made the secret, which would be lost. So a form that makes a secret carries a
mark of its own, and its answer is kept here, in memory only, for whoever sends that form again. A
form that was refused may be sent again as a new one. Forms that make something else of which two
would be one too many, such as an incident with its clocks, are kept in the same way.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from litestar import Response
from msgspec import Struct

from admin.access import COOKIE
from admin.asking import Asking
from admin.forms import Form
from gateway.clock import Clock


FIELD: Final = "once"
KEPT_S: Final = 60.0
DONE: Final = (201, 303)
"""Shown, or led to what was made."""


class _Kept(Struct, frozen=True):
    answer: Response[Any]
    until_s: float


class ShownOnce:
    """What forms were answered that made a secret; one for all rooms."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[bytes, _Kept] = {}
        self._locks: dict[bytes, asyncio.Lock] = {}

    async def answer(
        self, request: Asking, form: Form, make: Callable[[], Awaitable[Response[Any]]]
    ) -> Response[Any]:
        """What `make` answers, or what it answered this form a moment ago."""
        if not form.text(FIELD):
            return await make()
        name = _name_of(request, form)
        # Whoever comes while the first is at work waits for what it makes.
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            kept = self._kept.get(name)
            if kept is not None and self._clock.monotonic_s() < kept.until_s:
                return kept.answer
            answer = await make()
            if answer.status_code in DONE:
                self._kept[name] = _Kept(answer, self._clock.monotonic_s() + KEPT_S)
            return answer

    async def forget(self) -> None:
        """Drop what is over: no secret stays in memory for longer than it has to."""
        now_s = self._clock.monotonic_s()
        self._kept = {name: kept for name, kept in self._kept.items() if now_s < kept.until_s}
        self._locks = {name: lock for name, lock in self._locks.items() if lock.locked()}


def _name_of(request: Asking, form: Form) -> bytes:
    """Of one form of one sitting: nobody who does not hold its cookie can name it."""
    parts = (request.cookies.get(COOKIE, ""), request.scope["path"], form.text(FIELD))
    return hashlib.sha256("\x00".join(parts).encode()).digest()
