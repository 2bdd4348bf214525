"""How a step is timed: the scheduler's chunks follow from it."""

import time
from typing import Any

import pytest

from local_engine.runner.choosing import Result
from local_engine.runner.model_runner import ModelRunner, Prepared
from local_engine.runner.overlap import HostLane
from local_engine.runner.share import ShareOptions
from tests.local_engine.engine_loop import CPU, EngineLoop
from tests.local_engine.models import random_decoder, tiny_spec


PAUSE_S = 0.3


class _Ranks:
    def step(self, step: Any, batch: Any) -> None: ...

    def text(self, token_ids: list[int]) -> None: ...


def pause(prepared: Prepared) -> dict[str, Result]:
    """As a step that waits for somebody else: for its turn on a core, or for a device."""
    time.sleep(PAUSE_S)
    return {}


def took_s(runner: ModelRunner, *, is_ahead: bool) -> float:
    lane = HostLane(pause, runner.clock_s, is_ahead=is_ahead)
    try:
        return lane.start(Prepared((), None, None))().took_s  # type: ignore[arg-type]
    finally:
        lane.close()


@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_busy_neighbour_makes_no_step_on_a_cpu_look_longer(is_ahead: bool) -> None:
    runner = EngineLoop(random_decoder(tiny_spec())).runner
    assert took_s(runner, is_ahead=is_ahead) < PAUSE_S / 2


def test_what_other_ranks_take_is_part_of_a_step() -> None:
    options = ShareOptions(num_blocks=8)
    runner = ModelRunner(random_decoder(tiny_spec()), CPU, options, ranks=_Ranks())
    assert took_s(runner, is_ahead=False) >= PAUSE_S
