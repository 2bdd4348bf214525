"""Shared moments at which a worker wakes for its background duties.

For an idle worker, waking up costs more than most of its duties do: the processor slept, and none
of our code is in its caches. Duties whose pauses end at shared moments wake it once for all of
them.
"""

import asyncio
import random


EVERY_S = 0.25
_PHASE_S = EVERY_S * random.random()


def until_moment_s(rest_s: float) -> float:
    """Seconds from now to the shared moment nearest to the end of a rest.

    That is the rest give or take half of `EVERY_S`; a rest shorter than `EVERY_S` is unchanged.
    """
    if rest_s < EVERY_S:
        return rest_s
    now_s = asyncio.get_running_loop().time()
    moment = round((now_s + rest_s - _PHASE_S) / EVERY_S)
    return moment * EVERY_S + _PHASE_S - now_s


async def rung(bell: asyncio.Event, rest_s: float) -> None:
    """Wait for a bell, which rings at the end of a rest at the latest; the waiting task clears it.

    For callers that need not know whether somebody rang it. `asyncio.timeout` tells that, and costs
    the interpreter several times as long.
    """
    timer = asyncio.get_running_loop().call_later(rest_s, bell.set)
    try:
        await bell.wait()
    finally:
        timer.cancel()
