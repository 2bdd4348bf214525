"""Sequences and the scheduler: order, bounds, ends; and the core needs no torch."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_engine.core.sampling_params import InvalidParameter, SamplingParams
from local_engine.core.scheduler import QueueFull, Scheduler
from local_engine.core.sequence import FinishReason, PromptTooLong, Sequence


GREEDY = SamplingParams(temperature=0.0)


def sequence(name: str = "s", prompt_length: int = 3, max_tokens: int | None = None) -> Sequence:
    params = SamplingParams(max_tokens=max_tokens)
    return Sequence(name, range(1, prompt_length + 1), params, context_window=16)


def test_the_core_imports_neither_torch_nor_triton() -> None:
    code = (
        "import sys, local_engine.core.scheduler, local_engine.core.sampling_params;"
        "sys.exit(bool({'torch', 'triton', 'numpy'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(st.integers(1, 15), st.integers(1, 20))
def test_chunks_cover_the_prompt_exactly_once(prompt_length: int, token_budget: int) -> None:
    one = sequence(prompt_length=prompt_length)
    seen: list[int] = []
    while True:
        chunk = one.next_chunk(token_budget)
        assert 1 <= len(chunk.token_ids) <= token_budget
        seen += chunk.token_ids
        one.advance(chunk)
        if chunk.is_sampled:
            break
    assert seen == list(range(1, prompt_length + 1))


def test_a_decode_chunk_is_the_token_just_written() -> None:
    one = sequence()
    one.advance(one.next_chunk(10))
    one.append(77, eos_token_ids=(0,))
    assert one.next_chunk(10).token_ids == (77,)


def test_a_sequence_ends_at_an_end_token_or_at_its_length() -> None:
    stopped = sequence(max_tokens=5)
    stopped.append(0, eos_token_ids=(0,))
    assert stopped.finish_reason is FinishReason.STOP
    long = sequence(max_tokens=2)
    long.append(5, eos_token_ids=(0,))
    assert not long.is_finished
    long.append(5, eos_token_ids=(0,))
    assert long.finish_reason is FinishReason.LENGTH
    assert list(long.output_token_ids) == [5, 5]


def test_the_context_window_caps_the_output_and_refuses_a_full_prompt() -> None:
    assert sequence(prompt_length=10, max_tokens=500).max_tokens == 6
    assert sequence(prompt_length=15).max_tokens == 1
    with pytest.raises(PromptTooLong, match="16 tokens"):
        sequence(prompt_length=16)


def test_sequences_run_one_after_another_in_the_order_they_came() -> None:
    scheduler = Scheduler(max_waiting=5, token_budget=8)
    first, second = sequence("first"), sequence("second")
    scheduler.add(first)
    scheduler.add(second)
    step = scheduler.schedule()
    assert step is not None
    assert step.sequence is first
    assert (scheduler.num_running, scheduler.num_waiting) == (1, 1)
    scheduler.remove(first)
    step = scheduler.schedule()
    assert step is not None
    assert step.sequence is second
    scheduler.remove(second)
    assert scheduler.schedule() is None
    assert not scheduler.has_work


@pytest.mark.parametrize("max_waiting", [0, 1, 3])
@pytest.mark.parametrize("is_running", [True, False])
def test_the_queue_refuses_more_than_it_may_hold(max_waiting: int, *, is_running: bool) -> None:
    scheduler = Scheduler(max_waiting=max_waiting, token_budget=8)
    scheduler.add(sequence())
    if is_running:
        scheduler.schedule()
    for _ in range(max_waiting):
        scheduler.add(sequence())
    with pytest.raises(QueueFull) as refusal:
        scheduler.add(sequence())
    assert refusal.value.retry_after_s > 0


def test_a_waiting_sequence_can_be_removed() -> None:
    scheduler = Scheduler(max_waiting=2, token_budget=8)
    first, second = sequence("first"), sequence("second")
    scheduler.add(first)
    scheduler.add(second)
    scheduler.remove(first)
    step = scheduler.schedule()
    assert step is not None
    assert step.sequence is second


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 2.0}, "min_p"),
        ({"presence_penalty": 3.0}, "presence_penalty"),
        ({"frequency_penalty": -3.0}, "frequency_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"seed": 1 << 64}, "seed"),
        ({"stop": ("",)}, "stop"),
        ({"stop": ("x" * 300,)}, "stop"),
        ({"stop": ("x",) * 17}, "stop"),
        ({"logit_bias": {1: 101.0}}, "logit_bias"),
        ({"logit_bias": dict.fromkeys(range(1025), 1.0)}, "logit_bias"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
    ],
)
def test_a_parameter_out_of_range_is_named(values: dict[str, object], param: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        SamplingParams(**values)  # type: ignore[arg-type]
    assert refusal.value.param == param
