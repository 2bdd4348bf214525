"""The socket between the engine's two processes, whichever of them ends first."""

import asyncio

import pytest
import uvloop

from local_engine.sampling_params import SamplingParams
from local_engine.serve.generation import Caller, Generation
from local_engine.serve.link import WorkerLink
from local_engine.serve.wire import Failed, socket_pair


@pytest.mark.parametrize("turns", range(6))
def test_whoever_writes_while_the_worker_ends_hears_that_it_is_gone_and_nothing_else(
    turns: int,
) -> None:
    """What the worker had not read makes its end a reset, of which the transport hears first."""

    async def ended() -> object:
        ours, theirs = socket_pair()
        link = await WorkerLink.over(ours)
        link.submit(Generation("s1", [1], SamplingParams(), Caller()))
        await asyncio.sleep(0)
        theirs.close()
        for _ in range(turns):
            await asyncio.sleep(0)
        inbox = link.submit(Generation("s2", [1], SamplingParams(), Caller()))
        await link.stop()
        return inbox.get_nowait()

    assert uvloop.run(ended()) == Failed("s2", "worker_gone")
