"""Steps of the scheduler with a runner that always writes the same token."""

import itertools
from collections.abc import Iterable
from typing import Any

from local_engine.core.events import AllBlocksCleared, BlockRemoved, BlockStored, KvEvent
from local_engine.core.limits import Limits
from local_engine.core.scheduler import Scheduler
from local_engine.core.sequence import Sequence
from local_engine.core.step import Step
from local_engine.sampling_params import SamplingParams


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
    name, prompt = f"s{next(_numbers)}", list(range(1, prompt_length + 1))
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


def replay(events: Iterable[KvEvent]) -> dict[bytes, int]:
    """The cache after these events: hash to block."""
    found: dict[bytes, int] = {}
    for event in events:
        match event:
            case BlockStored(content_hash, block_id):
                found[content_hash] = block_id
            case BlockRemoved(content_hash, _):
                del found[content_hash]
            case AllBlocksCleared():
                found.clear()
    return found
