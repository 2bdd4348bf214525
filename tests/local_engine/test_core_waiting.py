"""Who waits for room is not passed for ever, and who was let in is not pushed out for ever."""

from collections.abc import Iterator

import pytest

from local_engine.core.scheduler import Scheduler
from local_engine.core.sequence import Sequence
from local_engine.core.tiers import Tier
from tests.local_engine.core_steps import new_scheduler, run_step, sequence


def short(tier: Tier, tenant: str) -> Sequence:
    return sequence(12, max_tokens=8, ignore_eos=True, tier=tier, tenant=tenant)


def keep_busy(scheduler: Scheduler, tier: Tier, tenants: Iterator[str]) -> None:
    """As many short ones as it takes for some to wait at all times."""
    while scheduler.num_waiting < 12:
        scheduler.add(short(tier, next(tenants)))


def endless(tenants: str) -> Iterator[str]:
    while True:
        yield from tenants


@pytest.mark.parametrize("tenants", ["a", "abc"], ids=["one tenant", "several"])
@pytest.mark.parametrize(
    ("short_tier", "long_tier"),
    [
        (Tier.STANDARD, Tier.PRIORITY),
        (Tier.BATCH, Tier.PRIORITY),
        (Tier.BATCH, Tier.STANDARD),
        (Tier.PRIORITY, Tier.PRIORITY),
        (Tier.STANDARD, Tier.STANDARD),
        (Tier.BATCH, Tier.BATCH),
        (Tier.STANDARD, Tier.BATCH),
        (Tier.PRIORITY, Tier.STANDARD),
        (Tier.PRIORITY, Tier.BATCH),
    ],
)
@pytest.mark.parametrize("ageing_steps", [16, 100_000], ids=["aged", "young"])
def test_a_long_prompt_is_answered_while_short_ones_come_without_end(
    short_tier: Tier, long_tier: Tier, tenants: str, ageing_steps: int
) -> None:
    if long_tier > short_tier and ageing_steps > 1000:
        ageing_steps = 64  # It is by its age alone that it comes before them.
    scheduler = new_scheduler(
        num_blocks=64, token_budget=64, prefill_chunk=16, ageing_steps=ageing_steps
    )
    arriving = endless(tenants)
    keep_busy(scheduler, short_tier, arriving)
    for _ in range(8):
        run_step(scheduler)
    patient = sequence(160, max_tokens=8, context_window=200, tier=long_tier, tenant="a")
    scheduler.add(patient)
    for _ in range(1000):
        if patient.is_finished:
            break
        keep_busy(scheduler, short_tier, arriving)
        run_step(scheduler)
    assert patient.is_finished


def test_who_could_not_start_yet_keeps_its_place() -> None:
    scheduler = new_scheduler(max_running=1, long_prompt=8, token_budget=8)
    reading, long, late = (sequence(length, max_tokens=1) for length in (28, 20, 8))
    scheduler.add(reading)
    run_step(scheduler)
    for each in (long, late):
        scheduler.add(each)
    run_step(scheduler)  # A short one passes while a long one is read, but there is no place.
    while not long.is_finished and not late.is_finished:
        run_step(scheduler)
    assert long.is_finished


def test_prompts_that_were_let_in_do_not_push_each_other_out() -> None:
    scheduler = new_scheduler(num_blocks=64, token_budget=256, prefill_chunk=16)
    beside = sequence(4, max_tokens=40, ignore_eos=True, salt=b"beside")
    scheduler.add(beside)
    run_step(scheduler)
    both = [
        sequence(length, max_tokens=4, context_window=200, salt=bytes([length]))
        for length in (160, 150)
    ]
    for each in both:
        scheduler.add(each)
    while scheduler.has_work:
        run_step(scheduler)
    assert all(each.is_finished for each in (beside, *both))
    assert scheduler.num_preemptions == 0


def test_the_pace_counts_as_decoding_only_who_decodes() -> None:
    scheduler = new_scheduler(max_running=2)
    pushed_back = [sequence(4, max_tokens=20, tier=Tier.BATCH) for _ in range(2)]
    for each in pushed_back:
        scheduler.add(each)
    run_step(scheduler)
    scheduler.add(sequence(1, max_tokens=4, tier=Tier.PRIORITY))
    step = run_step(scheduler)
    assert len(step.preempted) == 1
    assert (step.num_decode_tokens, step.num_tokens) == (1, 2)
