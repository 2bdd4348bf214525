"""Sends pings to a waiting caller: before an answer begins, and while it pauses.

Proxies and clients give up on silent connections. Before an answer begins, the first ping commits
its head: from then on errors are reported inside the stream, and another target may still be asked.
"""

import asyncio
from collections.abc import Awaitable, Callable


Write = Callable[[bytes], Awaitable[None]]
Push = Callable[[bytes], bool]
"""Writes at once; True if the caller is slow, and a `Write` would have waited."""
Direct = Callable[[], Push | None]
"""How to write at once, once writing has begun; None if every write may have to wait."""


def never_direct() -> None:
    """For a caller to whom every write may have to wait."""


class Pings:
    """One timer per stream, which checks once per period whether anything was written.

    A timer for each piece would cost more than the piece.
    """

    __slots__ = (
        "_begin",
        "_every_s",
        "_say",
        "_task",
        "_timer",
        "_write",
        "have_begun",
        "is_quiet",
    )

    def __init__(
        self, every_s: float, begin: Callable[[], Write], say: Callable[[], bytes]
    ) -> None:
        """`begin` sends the head of a stream of which nothing else is known yet."""
        self._every_s = every_s
        self._begin = begin
        self._say = say
        self._write: Write | None = None
        self.have_begun = False
        """Whether a ping was sent before the answer, and with it the head."""
        self.is_quiet = True
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(every_s, self._look)

    def go_on(self, write: Write, say: Callable[[], bytes]) -> None:
        """The answer has begun: others write it, and pings only fill its pauses."""
        self._write, self._say = write, say

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._every_s, self._look)
        if self.is_quiet and (self._task is None or self._task.done()):
            self._task = loop.create_task(self._ping())
        self.is_quiet = True

    async def _ping(self) -> None:
        if self._write is None:
            self.have_begun = True
            self._write = self._begin()
        await self._write(self._say())

    def cancel(self) -> None:
        """The caller has left: nothing more is sent."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """No ping after this; one under way is finished, so that no two writes mix."""
        self._timer.cancel()
        task, self._task = self._task, None
        if task is not None:
            await asyncio.wait((task,))
