"""Who is at the same stage goes through it together, and nothing is half done in between."""

import asyncio

import pytest

from gateway.api.door import Load
from gateway.dialects.registry import DIALECTS
from gateway.dispatch.dispatcher import Dispatcher
from gateway.errors import Unavailable
from gateway.metrics import Metrics
from gateway.pacing.turns import CROWD, Turns
from tests.gateway.dispatch.test_dispatcher import Stage


pytestmark = pytest.mark.anyio


async def stages_of(turns: Turns) -> str:
    """In which order three requests go through two stages."""
    seen: list[str] = []

    async def serve() -> None:
        seen.append("a")
        await turns
        seen.append("b")

    await asyncio.gather(serve(), serve(), serve())
    return "".join(seen)


def crowded_stage() -> Stage:
    stage, turns = Stage(), Turns()
    turns.present = CROWD + 1
    stage.dispatcher = Dispatcher(stage.providers, DIALECTS, stage.health, stage.clock, turns=turns)
    return stage


async def test_a_crowd_goes_through_each_stage_together() -> None:
    turns = Turns()
    turns.present = CROWD + 1

    assert await stages_of(turns) == "aaabbb"


async def test_few_are_served_without_a_turn_of_the_loop_in_between() -> None:
    turns = Turns()
    turns.present = CROWD

    assert await stages_of(turns) == "ababab"


async def test_who_leaves_at_the_turn_before_the_call_has_asked_nobody() -> None:
    stage = crowded_stage()
    call = asyncio.create_task(stage.complete("a"))
    await asyncio.sleep(0)
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert not stage.providers["a"].calls
    assert stage.tried == ""


async def test_a_listener_counts_who_is_present_and_refuses_more_than_it_may_serve() -> None:
    turns, metrics = Turns(), Metrics()
    load = Load(2, metrics, turns)

    with load, load:
        assert (turns.present, metrics.requests_in_flight()) == (2, 2)
        with pytest.raises(Unavailable), load:
            raise AssertionError
        assert turns.present == 2
    assert (turns.present, metrics.requests_in_flight()) == (0, 0)
