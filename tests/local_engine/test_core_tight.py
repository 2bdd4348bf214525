"""A crowd that a pool is far too small for: everybody ends, and little is computed twice."""

import random

import pytest

from local_engine.core.limits import Limits
from local_engine.core.scheduler import Scheduler
from local_engine.core.sequence import Sequence
from local_engine.core.tiers import Tier
from local_engine.sampling_params import SamplingParams
from tests.local_engine.core_steps import EOS


NUM_BLOCKS, AT_ONCE, SEQUENCES = 25, 24, 100


def arriving(dice: random.Random, number: int) -> Sequence:
    """Some begin alike, some leave no trace, and those without a tenant meet nobody."""
    tenant = dice.choice(["", "a", "a", "b"])
    shared = [dice.randrange(1, 4)] * dice.choice([0, 20, 60, 110])
    own = [dice.randrange(1, 1500) for _ in range(dice.randint(1, 60))]
    return Sequence(
        str(number),
        shared + own,
        SamplingParams(max_tokens=dice.choice([1, 2, 8, 33, 60])),
        context_window=280,
        tier=dice.choice(list(Tier)),
        tenant=tenant,
        salt=tenant.encode() or str(number).encode(),
        is_zeroed=dice.random() < 0.07,
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_crowd_in_a_tight_pool_ends_and_is_hardly_computed_twice(seed: int) -> None:
    dice = random.Random(seed)
    limits = Limits(num_blocks=NUM_BLOCKS, max_running=AT_ONCE, tenant_share=0.7, num_host_blocks=9)
    scheduler = Scheduler(limits)
    coming = [arriving(dice, number) for number in range(SEQUENCES)]
    num_wanted = sum(each.num_prompt_tokens + each.max_tokens for each in coming)
    here: list[Sequence] = []
    num_computed = 0
    for _ in range(50 * SEQUENCES):
        while coming and len(here) < AT_ONCE:
            here.append(coming.pop())
            scheduler.add(here[-1])
        if here and dice.random() < 0.02:
            scheduler.end(here[-1])
        step = scheduler.schedule()
        if step is not None:
            num_computed += step.num_tokens
            names = [item.sequence.sequence_id for item in step.items if item.is_sampled]
            scheduler.complete(step, {name: [dice.randrange(1, 1500)] for name in names}, (EOS,))
        scheduler.check()
        here = [each for each in here if not each.is_finished]
    assert not coming
    assert not here
    assert scheduler.num_preemptions > 5, "the pool is not tight"
    assert num_computed < num_wanted
    assert scheduler.blocks.pool.num_free == NUM_BLOCKS
