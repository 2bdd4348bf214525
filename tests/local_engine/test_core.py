"""Scheduling: order, budgets, admission, preemption, refusals; and the core needs no torch."""

import subprocess
import sys

import pytest

from local_engine.core.limits import Limits, NeverFits, QueueFull
from local_engine.core.pace import Pace
from local_engine.core.scheduler import Scheduler
from local_engine.core.sequence import PENDING, FinishReason, PromptTooLong, Sequence
from local_engine.core.step import Step
from local_engine.core.tiers import Tier
from local_engine.sampling_params import InvalidParameter, SamplingParams
from tests.local_engine.core_steps import EOS, answer, new_scheduler, run_step, sequence


def test_the_core_imports_neither_torch_nor_triton() -> None:
    code = (
        "import sys, local_engine.core.scheduler, local_engine.core.pace;"
        "sys.exit(bool({'torch', 'triton', 'numpy'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_sequence_ends_at_an_end_token_or_at_its_length() -> None:
    stopped = sequence(max_tokens=5)
    stopped.append(EOS, eos_token_ids=(EOS,))
    assert stopped.finish_reason is FinishReason.STOP
    long = sequence(max_tokens=2)
    long.append(5, eos_token_ids=(EOS,))
    assert not long.is_finished
    long.append(5, eos_token_ids=(EOS,))
    assert long.finish_reason is FinishReason.LENGTH
    assert list(long.output_token_ids) == [5, 5]


def test_an_end_token_counts_only_where_it_was_not_switched_off() -> None:
    ignoring = sequence(max_tokens=5, ignore_eos=True, stop_token_ids=(9,))
    ignoring.append(EOS, eos_token_ids=(EOS,))
    assert not ignoring.is_finished
    ignoring.append(9, eos_token_ids=(EOS,))
    assert ignoring.finish_reason is FinishReason.STOP


def test_the_context_window_caps_the_output_and_refuses_a_full_prompt() -> None:
    assert sequence(10, max_tokens=500, context_window=16).max_tokens == 6
    assert sequence(15, context_window=16).max_tokens == 1
    with pytest.raises(PromptTooLong, match="16 tokens"):
        sequence(16, context_window=16)


def test_decoders_go_on_while_a_long_prompt_is_read_in_chunks() -> None:
    scheduler = new_scheduler(prefill_chunk=8, token_budget=64)
    decoders = [sequence(3, max_tokens=50) for _ in range(4)]
    for each in decoders:
        scheduler.add(each)
    run_step(scheduler)
    long = sequence(60, max_tokens=2)
    scheduler.add(long)
    for _ in range(8):
        step = run_step(scheduler)
        planned = {item.sequence: item.end - item.start for item in step.items}
        assert all(planned[each] == 1 for each in decoders)
        assert planned.get(long, 0) <= 8
    assert long.num_output_tokens == 1


def test_alone_a_prompt_may_use_the_whole_budget() -> None:
    scheduler = new_scheduler(prefill_chunk=8, token_budget=64)
    scheduler.add(sequence(60))
    step = run_step(scheduler)
    assert [(item.start, item.end, item.is_sampled) for item in step.items] == [(0, 60, True)]


def test_a_short_prompt_passes_the_queue_of_long_ones() -> None:
    scheduler = new_scheduler(
        num_blocks=400, token_budget=32, long_prompt=40, max_long_prefills=2, max_running=8
    )
    for _ in range(6):
        scheduler.add(sequence(100, max_tokens=2))
    run_step(scheduler)
    short = sequence(5, max_tokens=2)
    scheduler.add(short)
    run_step(scheduler)
    run_step(scheduler)
    assert short.num_output_tokens >= 1


def test_a_short_prompt_starts_beside_long_ones_that_are_being_read() -> None:
    scheduler = new_scheduler(num_blocks=400, token_budget=16, long_prompt=40, max_running=8)
    for _ in range(2):
        scheduler.add(sequence(100, max_tokens=2))
    run_step(scheduler)
    run_step(scheduler)
    short = sequence(5, max_tokens=2)
    scheduler.add(short)
    run_step(scheduler)
    assert short.num_output_tokens == 1


def test_the_pace_follows_measured_steps() -> None:
    quiet_s, token_s = 1 / 64, 1 / 1024
    pace = Pace(stretch=3.0, longest_s=1 / 8)
    assert pace.chunk(1) == 0, "nothing is known yet"
    pace.observe(1, 0, quiet_s)
    pace.observe(1, 32, quiet_s + 32 * token_s)
    assert pace.chunk(1) == 32, "as long again as two quiet steps"
    assert pace.chunk(0) == 128, "nobody waits: the longest step"
    pace.observe(64, 0, 1 / 8)
    assert pace.chunk(64) == 128, "slow steps may not be stretched without end"
    for _ in range(20):
        pace.observe(1, 32, quiet_s + 32 * 4 * token_s)
    assert pace.chunk(1) in range(7, 10), "longer contexts cost more"
    for _ in range(200):
        pace.observe(1, 0, 2 * quiet_s)
    assert pace.chunk(1) in range(14, 18), "slower decodes bear more"


def test_a_paced_scheduler_gives_prompts_what_decoders_can_bear() -> None:
    scheduler = new_scheduler(prefill_chunk=8, token_budget=64, is_paced=True)
    scheduler.add(sequence(3, max_tokens=50))
    run_step(scheduler)
    scheduler.pace.observe(1, 0, 1 / 64)
    scheduler.pace.observe(1, 10, 1 / 64 + 10 / 1024)
    long = sequence(60, max_tokens=2)
    scheduler.add(long)
    assert [i.end - i.start for i in run_step(scheduler).items] == [1, 32]
    scheduler.pace.observe(1, 32, 30.0)
    assert [i.end - i.start for i in run_step(scheduler).items] == [1, 4], "one block at least"


def test_a_known_prefix_is_not_computed_again_but_for_its_last_token() -> None:
    scheduler = new_scheduler()
    first, second = sequence(16), sequence(16)
    scheduler.add(first)
    run_step(scheduler)
    scheduler.add(second)
    step = run_step(scheduler)
    starts = {item.sequence: item.start for item in step.items}
    assert starts[second] == 12
    assert second.block_ids[:3] == first.block_ids[:3]
    assert second.num_cached_tokens == 12


def test_groups_with_other_salts_share_nothing() -> None:
    scheduler = new_scheduler()
    first, second = sequence(16, salt=b"one"), sequence(16, salt=b"two")
    scheduler.add(first)
    run_step(scheduler)
    scheduler.add(second)
    run_step(scheduler)
    assert second.num_cached_tokens == 0
    assert not set(first.block_ids) & set(second.block_ids)


def test_a_sequence_that_must_leave_no_trace_is_not_cached_and_its_blocks_are_zeroed() -> None:
    scheduler = new_scheduler()
    secret = sequence(16, max_tokens=1, is_zeroed=True)
    scheduler.add(secret)
    run_step(scheduler)
    assert secret.is_finished
    follower = sequence(16)
    scheduler.add(follower)
    step = scheduler.schedule()
    assert step is not None
    assert {copy.kind.name for copy in step.copies} == {"ZERO"}
    assert len(step.copies) == 4
    assert follower.num_cached_tokens == 0


def test_what_must_leave_no_trace_is_zeroed_though_nobody_comes_after_it() -> None:
    scheduler = new_scheduler()
    scheduler.add(sequence(16, max_tokens=1, is_zeroed=True))
    run_step(scheduler)
    assert scheduler.has_work
    step = scheduler.schedule()
    assert step is not None
    assert (len(step.copies), step.items) == (4, [])
    assert not scheduler.has_work


def test_when_blocks_run_out_the_least_computed_of_the_lowest_tier_starts_over() -> None:
    scheduler = new_scheduler(num_blocks=12)
    old = sequence(16, max_tokens=28)
    young = sequence(16, max_tokens=28, salt=b"other")
    for each in (old, young):
        scheduler.add(each)
    while not young.num_preemptions:
        run_step(scheduler)
    assert old.num_preemptions == 0
    assert scheduler.num_waiting == 1
    while scheduler.has_work:
        run_step(scheduler)
    assert (old.num_output_tokens, young.num_output_tokens) == (28, 28)
    assert scheduler.blocks.pool.num_free == 12


def test_a_priority_sequence_takes_the_place_of_batch_work() -> None:
    scheduler = new_scheduler(max_running=2)
    batch = [sequence(4, max_tokens=40, tier=Tier.BATCH) for _ in range(2)]
    for each in batch:
        scheduler.add(each)
    run_step(scheduler)
    urgent = sequence(4, max_tokens=3, tier=Tier.PRIORITY)
    scheduler.add(urgent)
    step = run_step(scheduler)
    assert urgent in {item.sequence for item in step.items}
    assert sum(each.num_preemptions for each in batch) == 1
    standard = sequence(4, max_tokens=3)
    scheduler.add(standard)
    step = run_step(scheduler)
    assert standard not in {item.sequence for item in step.items}


def test_tiers_share_prompt_tokens_by_weight() -> None:
    scheduler = new_scheduler(num_blocks=2000, token_budget=130, max_running=32)
    for tier in Tier:
        for number in range(4):
            salt = f"{tier}{number}".encode()
            scheduler.add(sequence(400, tier=tier, salt=salt, context_window=500))
    spent = dict.fromkeys(Tier, 0)
    for _ in range(8):
        for item in run_step(scheduler).items:
            spent[item.sequence.tier] += item.end - item.start
    assert spent[Tier.PRIORITY] == pytest.approx(8 * 80, abs=40)
    assert spent[Tier.BATCH] >= 8 * 10 - 10


def test_batch_work_that_waits_long_is_treated_like_better_tiers() -> None:
    scheduler = new_scheduler(max_running=1, ageing_steps=4)
    scheduler.add(sequence(4, max_tokens=30, tier=Tier.PRIORITY))
    run_step(scheduler)
    patient = sequence(4, max_tokens=2, tier=Tier.BATCH)
    scheduler.add(patient)
    for number in range(60):
        if number % 3 == 0:
            scheduler.add(sequence(4, max_tokens=1, tier=Tier.PRIORITY))
        if scheduler.has_work:
            run_step(scheduler)
    assert patient.is_finished


def test_a_tenant_cannot_hold_more_than_its_share() -> None:
    scheduler = new_scheduler(num_blocks=40, tenant_share=0.5)
    greedy = [sequence(30, max_tokens=4, tenant="a", salt=bytes([n])) for n in range(4)]
    other = sequence(30, max_tokens=4, tenant="b")
    for each in (*greedy, other):
        scheduler.add(each)
    step = run_step(scheduler)
    planned = {item.sequence for item in step.items}
    assert other in planned
    assert len(planned & set(greedy)) == 2
    with pytest.raises(NeverFits):
        scheduler.add(sequence(90, max_tokens=4, tenant="a"))
    while scheduler.has_work:
        run_step(scheduler)
        assert scheduler.blocks.held_by_tenant.get("a", 0) <= 20


def test_what_can_never_fit_is_refused_at_once() -> None:
    scheduler = new_scheduler(num_blocks=4)
    with pytest.raises(NeverFits, match="5 KV blocks, 4"):
        scheduler.add(sequence(16, max_tokens=1))
    assert not scheduler.has_work


@pytest.mark.parametrize("max_waiting", [0, 1, 3])
def test_the_queue_refuses_more_than_it_may_hold(max_waiting: int) -> None:
    scheduler = new_scheduler(max_waiting=max_waiting, max_running=1)
    scheduler.add(sequence())
    run_step(scheduler)
    for _ in range(max_waiting):
        scheduler.add(sequence())
    with pytest.raises(QueueFull):
        scheduler.add(sequence())


def test_an_aborted_sequence_gives_its_blocks_back_at_once() -> None:
    scheduler = new_scheduler()
    running, waiting = sequence(30), sequence(8)
    scheduler.add(running)
    run_step(scheduler, chunk=8)
    scheduler.add(waiting)
    scheduler.end(waiting)
    scheduler.end(running)
    scheduler.end(running)
    assert scheduler.blocks.pool.num_free == scheduler.limits.num_blocks
    assert not scheduler.has_work
    assert running.finish_reason is FinishReason.ABORT


def test_accepted_drafts_count_and_rejected_ones_are_computed_again() -> None:
    scheduler = new_scheduler()
    one = sequence(6, max_tokens=20)
    scheduler.add(one)
    run_step(scheduler)
    one.draft_token_ids = [7, 8, 9]
    step = scheduler.schedule()
    assert step is not None
    (item,) = step.items
    assert (item.start, item.end, item.num_drafts) == (6, 10, 3)
    scheduler.complete(step, {one.sequence_id: [7, 50]}, (EOS,))
    assert one.token_ids[-3:] == [5, 7, 50]
    assert one.num_computed_tokens == 8
    assert run_step(scheduler).items[0].start == 8


def test_the_next_step_can_be_planned_before_tokens_are_known() -> None:
    scheduler = new_scheduler()
    one = sequence(6, max_tokens=3)
    scheduler.add(one)
    first = scheduler.schedule()
    assert first is not None
    scheduler.expect(first)
    second = scheduler.schedule()
    assert second is not None
    assert one.slice_known(second.items[0].start, second.items[0].end) == [PENDING]
    scheduler.expect(second)
    scheduler.complete(first, answer(first), (EOS,))
    third = scheduler.schedule()
    assert third is not None
    scheduler.expect(third)
    assert scheduler.schedule() is None, "its length is reached with what is on its way"
    for step in (second, third):
        scheduler.complete(step, answer(step), (EOS,))
    assert one.finish_reason is FinishReason.LENGTH
    scheduler.check()


def test_a_result_that_comes_after_the_end_changes_nothing() -> None:
    scheduler = new_scheduler()
    one = sequence(6, max_tokens=9)
    scheduler.add(one)
    first = scheduler.schedule()
    assert isinstance(first, Step)
    scheduler.expect(first)
    second = scheduler.schedule()
    assert isinstance(second, Step)
    scheduler.complete(first, {one.sequence_id: [EOS]}, (EOS,))
    assert one.finish_reason is FinishReason.STOP
    scheduler.complete(second, {one.sequence_id: [4]}, (EOS,))
    assert one.token_ids[-1] == EOS
    scheduler.check()


def test_offloaded_blocks_come_back_by_their_hash() -> None:
    scheduler = new_scheduler(num_blocks=8, num_host_blocks=16)
    first = sequence(20, max_tokens=1)
    scheduler.add(first)
    run_step(scheduler)
    scheduler.add(sequence(30, max_tokens=1, salt=b"other"))
    step = run_step(scheduler)
    assert {copy.kind.name for copy in step.copies} == {"TO_HOST"}
    again = sequence(20, max_tokens=1)
    scheduler.add(again)
    step = run_step(scheduler)
    assert "FROM_HOST" in {copy.kind.name for copy in step.copies}
    assert again.num_cached_tokens == 16


def test_clearing_the_cache_forgets_every_prefix() -> None:
    scheduler = new_scheduler()
    scheduler.add(sequence(16, max_tokens=1))
    run_step(scheduler)
    scheduler.blocks.clear_cache()
    again = sequence(16, max_tokens=1)
    scheduler.add(again)
    run_step(scheduler)
    assert again.num_cached_tokens == 0


def test_limits_have_sane_defaults() -> None:
    scheduler = Scheduler(Limits(num_blocks=100))
    scheduler.add(Sequence("s", [1, 2, 3], SamplingParams(), context_window=64))
    assert run_step(scheduler).num_tokens == 3


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 2.0}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"repetition_penalty": 1e-300}, "repetition_penalty"),
        ({"presence_penalty": 3.0}, "presence_penalty"),
        ({"frequency_penalty": -3.0}, "frequency_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"max_tokens": 1 << 63}, "max_tokens"),
        ({"min_tokens": 1 << 63}, "min_tokens"),
        ({"seed": 1 << 64}, "seed"),
        ({"stop": ("",)}, "stop"),
        ({"stop": ("x" * 300,)}, "stop"),
        ({"stop": ("x",) * 17}, "stop"),
        ({"stop_token_ids": (1,) * 65}, "stop_token_ids"),
        ({"logit_bias": {1: 101.0}}, "logit_bias"),
        ({"logit_bias": dict.fromkeys(range(1025), 1.0)}, "logit_bias"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"prompt_logprobs": 30}, "prompt_logprobs"),
    ],
)
def test_a_parameter_out_of_range_is_named(values: dict[str, object], param: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        SamplingParams(**values)  # type: ignore[arg-type]
    assert refusal.value.param == param
