"""However much of a better tier comes: who waits is passed so often and not oftener, and ends."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine.core.scheduler import Scheduler
from local_engine.core.sequence import Sequence
from local_engine.core.tiers import WEIGHTS, Tier
from tests.local_engine.core_steps import new_scheduler, run_step, sequence


NUM_BLOCKS, WINDOW = 64, 220
MOST_STEPS = 3000
better = st.sampled_from([(Tier.PRIORITY, Tier.STANDARD), (Tier.PRIORITY, Tier.BATCH)])
sizes = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 30)), min_size=1, max_size=6)


def patient(tier: Tier, length: int, tenant: str) -> Sequence:
    return sequence(length, 8, WINDOW, ignore_eos=True, tier=tier, tenant=tenant, salt=b"p")


class Flood:
    """At all times some of a tier wait, of these sizes in turn and of every tenant in turn."""

    def __init__(self, scheduler: Scheduler, tier: Tier, sizes: list[tuple[int, int]]) -> None:
        self._scheduler = scheduler
        self._tier = tier
        self._sizes = itertools.cycle(sizes)
        self._numbers = itertools.count()
        self.sent: list[Sequence] = []

    def fill(self, tenants: str) -> None:
        while self._scheduler.num_waiting < 12:
            (length, max_tokens), number = next(self._sizes), next(self._numbers)
            each = sequence(
                length,
                max_tokens,
                WINDOW,
                ignore_eos=True,
                tier=self._tier,
                tenant=tenants[number % len(tenants)],
                salt=number.to_bytes(4, "big"),
            )
            self._scheduler.add(each)
            self.sent.append(each)


@given(
    tiers=better,
    sizes=sizes,
    length=st.integers(1, 180),
    tenants=st.sampled_from(["a", "b", "ab", "abc"]),
    share=st.sampled_from([0.8, 1.0]),
    limits=st.fixed_dictionaries(
        {
            "max_running": st.sampled_from([3, 16, 64]),
            "prefill_chunk": st.sampled_from([16, 48]),
            "ageing_steps": st.sampled_from([4, 20]),
        }
    ),
)
@settings(max_examples=60, deadline=None)
def test_who_waits_is_passed_as_often_as_its_tier_weighs_less_and_ends(
    tiers: tuple[Tier, Tier],
    sizes: list[tuple[int, int]],
    length: int,
    tenants: str,
    share: float,
    limits: dict[str, Any],
) -> None:
    better, own = tiers
    scheduler = new_scheduler(num_blocks=NUM_BLOCKS, token_budget=64, tenant_share=share, **limits)
    flood = Flood(scheduler, better, sizes)
    for _ in range(8):
        flood.fill(tenants)
        run_step(scheduler)
    waits = patient(own, length, "a")
    scheduler.add(waits)
    for _ in range(MOST_STEPS):
        if waits.is_finished:
            break
        flood.fill(tenants)
        run_step(scheduler)
    assert waits.is_finished, "it starves"
    assert waits.num_passed <= WEIGHTS[better] // WEIGHTS[own]


@pytest.mark.parametrize("own", [Tier.STANDARD, Tier.BATCH])
def test_a_better_tier_passes_who_does_not_fit_by_its_weight_and_then_waits(own: Tier) -> None:
    scheduler = new_scheduler(num_blocks=NUM_BLOCKS, token_budget=64, ageing_steps=4)
    flood = Flood(scheduler, Tier.PRIORITY, [(20, 20)])
    flood.fill("b")
    for _ in range(8):
        run_step(scheduler)
    waits = patient(own, 160, "a")
    scheduler.add(waits)
    started = 0
    while waits in scheduler._line:
        flood.fill("b")
        line = list(scheduler._line)
        late = [each for each in line if each.arrived_at_step > waits.arrived_at_step]
        run_step(scheduler)
        if waits in scheduler._line and scheduler._line.rank(waits) is Tier.PRIORITY:
            started += sum(each not in scheduler._line for each in late)
    assert waits.num_passed == WEIGHTS[Tier.PRIORITY] // WEIGHTS[own]
    assert started == waits.num_passed


def test_of_a_prefix_that_many_share_each_block_counts_once_for_their_tenant() -> None:
    scheduler = new_scheduler(num_blocks=40, token_budget=256, tenant_share=0.75)
    first, *others = (
        sequence(64, 8, WINDOW, ignore_eos=True, tenant="a", salt=b"a") for _ in range(4)
    )
    scheduler.add(first)
    run_step(scheduler)
    for each in others:
        scheduler.add(each)
    run_step(scheduler)
    run_step(scheduler)
    assert scheduler.num_running == 4
    assert scheduler.blocks.held_by_tenant["a"] <= 30
    while scheduler.has_work:
        run_step(scheduler)
    assert not scheduler.blocks.held_by_tenant
    assert scheduler.num_preemptions == 0
