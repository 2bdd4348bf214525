"""The CPU benchmarks: one thread, float32, and ratios measured in one run."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

from local_engine.bench.subject import SPEC, Subject, best_us, cpu_us, random_prompt
from local_engine.core.limits import Limits
from local_engine.core.scheduler import Scheduler
from local_engine.core.sequence import Sequence
from local_engine.kernels.linear import (
    MakeLinear,
    choose_linear,
    has_packed_linear,
    packed_linear,
    plain_linear,
)
from local_engine.sampling_params import SamplingParams


@dataclass(frozen=True)
class Row:
    """One line of the report."""

    name: str
    measured: str
    ratio: float
    reach: str

    @property
    def line(self) -> str:
        return f"{self.name:<52} {self.ratio:7.2f}x  (reach {self.reach})  {self.measured}"


def gemm_floor_us(batch: int, rounds: int, make: MakeLinear | None = None) -> float:
    """CPU time per token of the bare products, the head included.

    By default oneDNN's packed ones, whatever the engine multiplies with: one measure for all.
    """
    heads = (SPEC.num_heads + 2 * SPEC.num_kv_heads) * SPEC.head_dim
    layer = [
        (heads, SPEC.hidden_size),
        (SPEC.hidden_size, SPEC.num_heads * SPEC.head_dim),
        (2 * SPEC.intermediate_size, SPEC.hidden_size),
        (SPEC.hidden_size, SPEC.intermediate_size),
    ]
    shapes = [*layer * SPEC.num_layers, (SPEC.vocab_size, SPEC.hidden_size)]
    make = make or (packed_linear if has_packed_linear(torch.float32) else plain_linear)
    pairs = [(make(torch.randn(o, i) * 0.02, None), torch.randn(batch, i)) for o, i in shapes]

    def multiply() -> None:
        with torch.inference_mode():
            for product, x in pairs:
                product(x)

    return best_us(multiply, rounds) / batch


def decode_us(subject: Subject, batch: int, rounds: int) -> float:
    """CPU time per token of steps in which all of `batch` sequences decode."""
    subject.restart(token_budget=4096, is_caching=False)
    for number in range(batch):
        subject.add(random_prompt(96, number), rounds + 2)
    shortest = float("inf")
    while subject.scheduler.has_work:
        started = cpu_us()
        num_tokens = subject.step()
        if num_tokens == batch:
            shortest = min(shortest, cpu_us() - started)
    return shortest / batch


def decode_rows(subject: Subject, rounds: int) -> Iterator[Row]:
    for batch in (12, 32):
        floor = gemm_floor_us(batch, rounds)
        found = decode_us(subject, batch, rounds)
        floor = min(floor, gemm_floor_us(batch, rounds))
        own = gemm_floor_us(batch, rounds, choose_linear(torch.device("cpu"), torch.float32))
        measured = f"{found:,.0f} us per token, packed products {floor:,.0f}, our own {own:,.0f}"
        yield Row(f"decode, batch {batch}, against the floor", measured, found / floor, "<= 1.5")


def stall_row(subject: Subject) -> Row:
    """The longest gap of eight decoders while a prompt of 1,800 tokens is read."""
    subject.restart(is_caching=False, is_paced=True)
    names = [subject.add(random_prompt(40, number), 90) for number in range(8)]
    for _ in range(40):
        subject.step()
    gaps = sorted(b - a for a, b in pairwise(subject.seen[names[0]].token_us[10:]))
    quiet = gaps[len(gaps) // 2]
    since = cpu_us()
    subject.add(random_prompt(1800, 99), 2)
    subject.run()
    longest = max(subject.seen[name].longest_gap_us(since) for name in names)
    measured = f"{longest / 1000:.1f} ms, quiet {quiet / 1000:.1f} ms"
    return Row(
        "longest decoder gap beside an 1,800-token prompt", measured, longest / quiet, "<= 6"
    )


def flood_row(subject: Subject) -> Row:
    """A small request alone, and in a flood of 24 long ones, come just after a step was planned."""

    def small(waited_us: float = 0.0) -> float:
        name = subject.add(random_prompt(20, 7), 8)
        while len(subject.seen[name].token_us) < 8:
            subject.step()
        return waited_us + subject.seen[name].last_us

    def alone() -> float:
        subject.restart(is_caching=False, is_paced=True)
        return small()

    def running_step_us() -> float:
        started = cpu_us()
        subject.step()
        return cpu_us() - started

    quiet = min(alone() for _ in range(5))
    subject.restart(is_caching=False, is_paced=True)
    for number in range(24):
        subject.add(random_prompt(1200, 100 + number), 4)
    worst = 0.0
    for _ in range(4):
        for _ in range(6):
            subject.step()
        worst = max(worst, small(running_step_us()))
    measured = f"{worst / 1000:.0f} ms at worst, alone {quiet / 1000:.0f} ms"
    return Row("a small request in a flood of 24 long ones", measured, worst / quiet, "<= 6")


def prefix_row(subject: Subject) -> Row:
    """Time to the first token of 800, of which 720 are known."""

    def first_us(number: int) -> float:
        shared = random_prompt(720, 1)
        name = subject.add([*shared, *random_prompt(80, 1000 + number)], 1)
        subject.run()
        return subject.seen[name].first_us

    subject.restart(is_caching=False)
    first_us(0)
    cold = min(first_us(number) for number in range(4))
    subject.restart()
    first_us(0)
    warm = min(first_us(number) for number in range(1, 6))
    measured = f"{warm / 1000:.1f} ms, cold {cold / 1000:.1f} ms"
    return Row("TTFT gain at 90 % shared prefix of 800", measured, cold / warm, ">= 6")


def scheduler_row(rounds: int) -> Row:
    """Planning and concluding a step with 256 running sequences, without computing it."""
    scheduler = Scheduler(Limits(num_blocks=40_000, max_running=256, token_budget=20_000))
    params = SamplingParams(temperature=0.0, ignore_eos=True)
    for number in range(256):
        prompt = random_prompt(64, number)
        scheduler.add(Sequence(str(number), prompt, params, context_window=4096))
    plan, conclude = float("inf"), float("inf")
    for _ in range(rounds + 10):
        started = cpu_us()
        step = scheduler.schedule()
        planned = cpu_us()
        assert step is not None, "256 sequences want to run"
        tokens = {item.sequence.sequence_id: [5] for item in step.items if item.is_sampled}
        begun = cpu_us()
        scheduler.complete(step, tokens, (1,))
        if len(tokens) == 256:
            plan, conclude = min(plan, planned - started), min(conclude, cpu_us() - begun)
    measured = f"plan {plan:.0f} us, conclude {conclude:.0f} us"
    return Row(
        "scheduler step at 256 running, of 300 us", measured, (plan + conclude) / 300, "<= 1"
    )
