"""Steps of the scheduler with a runner that always writes the same token."""

import itertools
from typing import Any

from local_engine.core.sampling_params import SamplingParams
from local_engine.core.scheduler import Limits, Scheduler, Step
from local_engine.core.sequence import Sequence


EOS = 0
_numbers = itertools.count()


def sequence(
    prompt_length: int = 3,
    max_tokens: int | None = 8,
    context_window: int = 128,
    ignore_eos: bool = False,
    stop_token_ids: tuple[int, ...] = (),
    **fields: Any,
) -> Sequence:
    params = SamplingParams(
        max_tokens=max_tokens, ignore_eos=ignore_eos, stop_token_ids=stop_token_ids
    )
    name, prompt = f"s{next(_numbers)}", range(1, prompt_length + 1)
    return Sequence(name, prompt, params, context_window=context_window, **fields)


def new_scheduler(**limits: Any) -> Scheduler:
    return Scheduler(Limits(**{"num_blocks": 64, "block_size": 4, "watermark": 0.0, **limits}))


def answer(step: Step, token_id: int = 5) -> dict[str, list[int]]:
    return {item.sequence.sequence_id: [token_id] for item in step.items if item.is_sampled}


def run_step(scheduler: Scheduler, **_: Any) -> Step:
    step = scheduler.schedule()
    assert step is not None
    assert step.num_tokens <= scheduler.limits.token_budget
    scheduler.complete(step, answer(step), (EOS,))
    scheduler.check()
    return step
