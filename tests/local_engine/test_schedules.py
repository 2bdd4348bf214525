"""Whatever comes when, into however few blocks: each sequence writes what it writes alone."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine.core.sequence import Sequence
from local_engine.core.tiers import Tier
from local_engine.sampling_params import SamplingParams
from tests.local_engine.engine_loop import EngineLoop
from tests.local_engine.models import random_decoder, tiny_spec


SPEC = tiny_spec()
Asked = tuple[int, list[int], SamplingParams, dict[str, Any]]
"""At which step, and what."""


def asked(draw: random.Random) -> list[Asked]:
    stems = [[draw.randint(2, 1500) for _ in range(40)] for _ in range(2)]
    return [
        (
            draw.randint(0, 8),
            draw.choice(stems)[: draw.randint(1, 40)]
            + [draw.randint(2, 1500) for _ in range(draw.randint(0, 20))],
            SamplingParams(
                temperature=draw.choice([0.0, 0.0, 1.0]),
                seed=draw.randint(0, 99),
                top_k=draw.choice([0, 5]),
                presence_penalty=draw.choice([0.0, 0.0, 1.0]),
                prompt_logprobs=draw.choice([None, None, None, 1]),
                max_tokens=draw.randint(1, 12),
                ignore_eos=True,
            ),
            {
                "tier": draw.choice(list(Tier)),
                "salt": draw.choice([b"a", b"b"]),
                "is_zeroed": draw.random() < 0.1,
            },
        )
        for _ in range(draw.randint(3, 9))
    ]


def written(
    all_asked: list[Asked], draw: random.Random, cleared: float = 0.0, **limits: Any
) -> list[list[int]]:
    """What each of them writes; now and then everything cached is forgotten."""
    loop = EngineLoop(random_decoder(SPEC), block_size=4, max_waiting=64, **limits)
    sequences: dict[int, Sequence] = {}
    for step in range(3000):
        for number, (at_step, prompt, params, fields) in enumerate(all_asked):
            if at_step == step:
                sequences[number] = loop.add(prompt, params, **fields)
        if len(sequences) == len(all_asked) and not loop.scheduler.has_work:
            break
        loop.step()
        if draw.random() < cleared:
            loop.scheduler.blocks.clear_cache()
    assert loop.scheduler.blocks.pool.num_free == loop.limits.num_blocks
    return [list(sequences[number].output_token_ids) for number in range(len(all_asked))]


@given(number=st.integers(0, 1 << 32))
@settings(max_examples=25, deadline=None)
def test_a_tiny_pool_writes_what_a_large_one_without_a_cache_writes(number: int) -> None:
    draw = random.Random(number)
    all_asked = asked(draw)
    limits = {
        "num_blocks": draw.randint(19, 30),
        "max_running": draw.choice([2, 4, 8]),
        "token_budget": draw.choice([8, 16, 64]),
        "prefill_chunk": draw.choice([4, 8, 16]),
        "num_host_blocks": draw.choice([0, 0, 8]),
        "ageing_steps": draw.choice([4, 300]),
    }
    expected = written(all_asked, draw, num_blocks=2000, is_caching=False)
    assert written(all_asked, draw, 0.03, **limits) == expected
