"""Returns the slices of a worker that stops: retried while there is time, then cut off.

Whoever stopped it waits only a few seconds before killing it; a command that hangs in the database
may take longer than that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from gateway.errors import NotReady


LEAVING_S: Final = 5.0
"""How long it tries."""
_PAUSE_S: Final = 0.1
_CUTTING_S: Final = 2.0
"""How long what was cut off may take to end: a connection tells the server so, if it listens."""

Running = Callable[[], Sequence[asyncio.Task[None]]]


async def left_in_time(leave: Callable[[], Awaitable[None]], running: Running) -> bool:
    """Wait for what runs in the background, then `leave`, again while it raises NotReady.

    False if the time was over first. What `running` then gives is cancelled: the database may have
    applied it or not, as after any lost answer.
    """
    try:
        async with asyncio.timeout(LEAVING_S):
            while tasks := running():
                await asyncio.wait(tasks)
            while True:
                with suppress(NotReady):
                    await leave()
                    return True
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        tasks = running()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CUTTING_S)
        return False
