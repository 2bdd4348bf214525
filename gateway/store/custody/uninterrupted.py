"""Finishes work that has begun, even if the process is told to stop meanwhile.

A thread that destroys content cannot be stopped: the deed would be recorded as failed, and the
content would be destroyed all the same.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar


_Done = TypeVar("_Done")


async def to_its_end(work: Coroutine[Any, Any, _Done]) -> _Done:
    """Run it to its end: if the caller is cancelled, the cancellation takes effect afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.exception()  # What failed is on record.
        raise
