"""What is done to its end also where the process is told to end meanwhile.

A thread that destroys is not stopped: what is on record as failed would go all the same.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar


_Done = TypeVar("_Done")


async def to_its_end(work: Coroutine[Any, Any, _Done]) -> _Done:
    """Who is cancelled waits for it, and is cancelled then."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.exception()  # What failed is on record.
        raise
