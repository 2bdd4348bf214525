"""What is being read is read once: who would read the same waits for its blocks."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from local_engine.core.scheduler import Scheduler
from local_engine.core.sequence import Sequence
from local_engine.core.tiers import Tier
from tests.local_engine.core_steps import new_scheduler, run_step, sequence


def tokens_read(scheduler: Scheduler, several: list[Sequence]) -> int:
    """Prompt tokens that are computed until all have answered."""
    count = 0
    for _ in range(400):
        if all(each.is_finished for each in several):
            break
        step = run_step(scheduler)
        for item in step.items:
            count += max(0, min(item.end, item.sequence.num_prompt_tokens) - item.start)
    assert all(each.is_finished for each in several)
    return count


def eight(length: int = 40, **fields: Any) -> list[Sequence]:
    return [sequence(length, max_tokens=3, ignore_eos=True, **fields) for _ in range(8)]


def test_eight_choices_of_a_prompt_read_it_once() -> None:
    scheduler = new_scheduler(num_blocks=128, token_budget=64, prefill_chunk=16)
    several = eight()
    for each in several:
        scheduler.add(each)
    # Of a block that is not full nothing is found: the last four tokens, each for itself.
    assert tokens_read(scheduler, several) == 40 + 7 * 4
    assert [each.num_cached_tokens for each in several] == [0, *[36] * 7]


def test_who_must_leave_no_trace_reads_for_itself() -> None:
    scheduler = new_scheduler(num_blocks=128, token_budget=64)
    several = eight(is_zeroed=True)
    for each in several:
        scheduler.add(each)
    assert tokens_read(scheduler, several) == 8 * 40


def test_nobody_waits_for_a_worse_tier_to_read() -> None:
    scheduler = new_scheduler(token_budget=16, prefill_chunk=16)
    first = sequence(40, max_tokens=2, tier=Tier.BATCH)
    scheduler.add(first)
    run_step(scheduler)
    urgent = sequence(40, max_tokens=2, tier=Tier.PRIORITY)
    scheduler.add(urgent)
    run_step(scheduler)
    assert urgent.block_ids


def test_when_the_reader_leaves_the_next_one_reads_on() -> None:
    scheduler = new_scheduler(token_budget=16, prefill_chunk=16)
    first, second, third = (sequence(40, max_tokens=2) for _ in range(3))
    for each in (first, second, third):
        scheduler.add(each)
    run_step(scheduler)
    assert [bool(each.block_ids) for each in (first, second, third)] == [True, False, False]
    scheduler.end(first)
    run_step(scheduler)
    assert second.num_cached_tokens == 16
    assert not third.block_ids
    assert tokens_read(scheduler, [second, third]) <= 40


@given(
    prompts=st.lists(
        st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, 40), st.integers(1, 20)),
        min_size=1,
        max_size=8,
    ),
    chunk=st.sampled_from([4, 7, 16]),
)
@settings(max_examples=60, deadline=None)
def test_no_full_block_is_read_twice_while_there_is_room(
    prompts: list[tuple[bytes, int, int]], chunk: int
) -> None:
    """Prompts of a common beginning and an end of their own, that all come together."""
    scheduler = new_scheduler(num_blocks=512, token_budget=chunk + 8, prefill_chunk=chunk)
    several = []
    for number, (salt, num_common, num_own) in enumerate(prompts):
        each = sequence(1, max_tokens=2, ignore_eos=True, salt=salt)
        each = Sequence(
            f"p{number}",
            [*range(1, num_common + 1), *[1000 + number] * num_own],
            each.params,
            context_window=128,
            salt=salt,
        )
        scheduler.add(each)
        several.append(each)
    full = {
        (each.salt, tuple(each.token_ids[: end * 4]))
        for each in several
        for end in range(1, (len(each.token_ids) - 1) // 4 + 1)
    }
    rest = sum(len(each.token_ids) - (len(each.token_ids) - 1) // 4 * 4 for each in several)
    assert tokens_read(scheduler, several) == 4 * len(full) + rest
