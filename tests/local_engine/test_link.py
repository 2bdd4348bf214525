"""The socket between the engine's two processes, whichever of them ends first."""

import asyncio

import pytest
import uvloop

from local_engine.sampling_params import SamplingParams
from local_engine.serve.generation import Caller, Generation
from local_engine.serve.link import WorkerLink
from local_engine.serve.options import WorkerOptions
from local_engine.serve.supervisor import Supervisor
from local_engine.serve.wire import Failed, socket_pair
from tests.local_engine.models import DEMO_MODEL


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


@pytest.mark.parametrize("turns", [0, 1, 2, 4])
def test_whoever_stops_an_engine_while_its_worker_is_started_waits_for_no_other_end(
    turns: int,
) -> None:
    async def stopped() -> list[object]:
        engines: list[object] = []
        options = WorkerOptions(model=str(DEMO_MODEL), device="cpu")
        supervisor = Supervisor(options, engines.append)
        supervising = asyncio.create_task(supervisor.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        await supervisor.stop()
        await asyncio.wait_for(supervising, 60)
        return [each for each in engines if each is not None]

    assert uvloop.run(stopped()) == []
