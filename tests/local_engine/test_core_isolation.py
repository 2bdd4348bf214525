"""What one tenant does is nothing to another: salts, shares, and where pushing back ends."""

import itertools

from local_engine.core.prefix_cache import group_salt
from local_engine.core.tiers import Tier
from tests.local_engine.core_steps import new_scheduler, run_step, sequence


def test_no_two_groups_are_spelt_alike() -> None:
    words = ["", "a", "b", "ab", "ba"]
    salts = {group_salt(b"key", *group) for group in itertools.product(words, repeat=3)}
    assert len(salts) == len(words) ** 3
    assert group_salt(b"other", "a", "b", "ab") not in salts


def test_who_is_over_its_share_pushes_back_its_own_work_only() -> None:
    scheduler = new_scheduler(num_blocks=24, tenant_share=0.5)
    other = sequence(4, max_tokens=40, ignore_eos=True, tenant="b", salt=b"b")
    mine = [
        sequence(12, max_tokens=34, ignore_eos=True, tenant="a", salt=bytes([number]))
        for number in range(3)
    ]
    for each in (*mine, other):
        scheduler.add(each)
    while scheduler.has_work:
        run_step(scheduler)
        assert scheduler.blocks.held_by_tenant.get("a", 0) <= 12
    assert sum(each.num_preemptions for each in mine) > 0
    assert other.num_preemptions == 0
    assert all(each.is_finished for each in (*mine, other))


def test_batch_work_is_not_pushed_back_without_end() -> None:
    scheduler = new_scheduler(max_running=1, ageing_steps=8)
    patient = sequence(4, max_tokens=40, ignore_eos=True, tier=Tier.BATCH)
    scheduler.add(patient)
    for _ in range(400):
        if patient.is_finished:
            break
        if scheduler.num_waiting < 2:
            scheduler.add(sequence(4, max_tokens=2, ignore_eos=True, tier=Tier.PRIORITY))
        run_step(scheduler)
    assert patient.is_finished
    assert patient.num_preemptions == scheduler.limits.max_preemptions


def test_a_cleared_cache_is_cleared_on_the_host_too() -> None:
    scheduler = new_scheduler(num_blocks=8, num_host_blocks=8)
    for salt in (b"one", b"two"):
        scheduler.add(sequence(24, max_tokens=1, salt=salt))
        run_step(scheduler)
    assert scheduler.blocks.num_host_blocks_used > 0
    scheduler.blocks.clear_cache()
    assert scheduler.blocks.num_host_blocks_used == 0
    again = sequence(24, max_tokens=1, salt=b"one")
    scheduler.add(again)
    run_step(scheduler)
    assert again.num_cached_tokens == 0


def test_what_lies_on_the_host_waits_while_no_block_is_free() -> None:
    scheduler = new_scheduler(num_blocks=8, num_host_blocks=8)
    for salt in (b"one", b"two"):
        scheduler.add(sequence(24, max_tokens=1, salt=salt))
        run_step(scheduler)
    holder = sequence(29, max_tokens=3, ignore_eos=True, salt=b"three")
    scheduler.add(holder)
    run_step(scheduler)
    assert scheduler.blocks.pool.num_free == 0
    again = sequence(24, max_tokens=1, salt=b"one", tenant="other")
    scheduler.add(again)
    while scheduler.has_work:
        run_step(scheduler)
    assert again.is_finished


def test_tokens_that_a_sequence_finds_of_its_own_are_not_told_as_cached() -> None:
    scheduler = new_scheduler(num_blocks=12)
    pair = [sequence(16, max_tokens=24, ignore_eos=True, salt=bytes([n])) for n in range(2)]
    for each in pair:
        scheduler.add(each)
    while scheduler.has_work:
        run_step(scheduler)
    assert sum(each.num_preemptions for each in pair) > 0
    assert [each.num_cached_tokens for each in pair] == [0, 0]


def test_who_writes_on_never_outgrows_its_tenants_share() -> None:
    scheduler = new_scheduler(num_blocks=16, tenant_share=0.5)
    # Not of one length, or both would ask for a block in the same step, and one of them yield.
    both = [sequence(size, max_tokens=25, tenant="a", salt=bytes([size])) for size in (3, 5)]
    for each in both:
        scheduler.add(each)
    while scheduler.has_work:
        run_step(scheduler)  # Which looks at the share.
    assert scheduler.num_preemptions > 0
    assert all(each.num_output_tokens == 25 for each in both)
