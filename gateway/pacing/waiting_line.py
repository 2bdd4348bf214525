"""One worker thread with fair turns: whoever asks for a lot delays only their own work."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar


Done = TypeVar("Done")


class WaitingLine:
    """Does work one after the other; askers take turns, each in the order of their own work.

    In a single line, somebody who sends forty long bodies at once would make everybody wait. For
    one event loop.
    """

    def __init__(self, thread_name: str) -> None:
        self.threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix=thread_name)
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By asker; the one whose turn is next comes first."""
        self._is_taken = False

    async def do(self, asker: str, work: Callable[[], Done]) -> Done:
        """Run `work` in the thread; if the caller is cancelled while waiting, nothing is done."""
        await self._turn(asker)
        try:
            return await asyncio.get_running_loop().run_in_executor(self.threads, work)
        finally:
            self._pass_on()

    async def _turn(self, asker: str) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(asker, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # It came at the moment at which nobody wanted it any more.
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Pass the turn to the next asker; one with more work goes behind the others."""
        while self._waiting:
            asker = next(iter(self._waiting))
            line = self._waiting.pop(asker)
            turn = line.popleft()
            if line:
                self._waiting[asker] = line
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False
