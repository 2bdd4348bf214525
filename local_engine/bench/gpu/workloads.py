"""GPU benchmarks of whole workloads: nano-vllm's, shared prefixes, and a peer on the same."""

import random
from collections.abc import Iterator

import torch

from local_engine.bench.cpu import Row
from local_engine.bench.gpu.bench import Bench
from local_engine.bench.gpu.ceilings import workload_floor_s
from local_engine.bench.gpu.loop import Engine, greedy
from local_engine.bench.gpu.models import Scale
from local_engine.model.spec import ModelSpec
from local_engine.sampling_params import SamplingParams


# What the two models could write at most on an H200 of 4.3 TB/s and 790 TFLOP/s, in tokens/s.
_SMALL_CEILING, _LARGE_CEILING = 36_500, 13_700
_BUDGET_TOKENS = 16_384
_PREFIX_BUDGET_TOKENS = 8192


def random_ids(spec: ModelSpec, length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    found: list[int] = torch.randint(0, spec.vocab_size, (length,), generator=generator).tolist()
    return found


def nano_requests(scale: Scale) -> list[tuple[list[int], int]]:
    """Prompts and output lengths, drawn in the order in which nano-vllm's `bench.py` draws them.

    At full scale that is 142,827 tokens in and 133,966 out.
    """
    drawn = random.Random(0)
    shortest, longest = scale.workload_shortest, scale.workload_longest
    prompts = [
        [drawn.randint(0, scale.workload_ids) for _ in range(drawn.randint(shortest, longest))]
        for _ in range(scale.workload_sequences)
    ]
    return [(prompt, drawn.randint(shortest, longest)) for prompt in prompts]


def nano_small_rows(bench: Bench) -> Iterator[Row]:
    yield _nano_row(bench, bench.small, "0.6 B", _SMALL_CEILING, ">= 0.50")


def nano_large_rows(bench: Bench) -> Iterator[Row]:
    yield _nano_row(bench, bench.large, "8 B", _LARGE_CEILING, ">= 0.60")


def prefix_rows(bench: Bench) -> Iterator[Row]:
    """Requests per second, all queued at once: the shared prefix known, and nothing known."""
    scale, engine = bench.scale, bench.large
    spec = scale.large
    shared = random_ids(spec, scale.prefix_shared, seed=1)
    rest = scale.prefix_prompt - scale.prefix_shared
    numbers = range(scale.prefix_sequences)
    hits = [[*shared, *random_ids(spec, rest, seed=1000 + number)] for number in numbers]
    misses = [random_ids(spec, scale.prefix_prompt, seed=5000 + number) for number in numbers]
    warm_s = _serve_s(engine, hits, scale.prefix_output, first=shared)
    cold_s = _serve_s(engine, misses, scale.prefix_output, first=misses[0][:rest])
    count = scale.prefix_sequences
    measured = f"{count / warm_s:.1f} and {count / cold_s:.1f} requests/s; {count} requests of"
    measured += f" {scale.prefix_prompt} tokens, {scale.prefix_shared} shared,"
    measured += f" {scale.prefix_output} written"
    name = "8 B, prefix hit 90 % against 0 %, saturated"
    yield Row(name, measured, cold_s / warm_s, ">= 2.5")


def _serve_s(engine: Engine, prompts: list[list[int]], max_tokens: int, first: list[int]) -> float:
    """Seconds for all prompts together, after `first` alone, which is not counted."""
    loop = engine.loop(
        max_running=len(prompts),
        token_budget=_PREFIX_BUDGET_TOKENS,
        prefill_chunk=_PREFIX_BUDGET_TOKENS,
    )
    try:
        loop.add(first, greedy(2))
        loop.run()
        for prompt in prompts:
            loop.add(prompt, greedy(max_tokens))
        return loop.run()
    finally:
        loop.close()


def _nano_row(bench: Bench, engine: Engine, size: str, ceiling: int, reach: str) -> Row:
    requests = nano_requests(bench.scale)
    sizes = [(len(prompt), output) for prompt, output in requests]
    num_read, num_written = (sum(each) for each in zip(*sizes, strict=True))
    loop = engine.loop(
        max_running=len(requests),
        token_budget=_BUDGET_TOKENS,
        prefill_chunk=_BUDGET_TOKENS,
        is_caching=False,
    )
    try:
        loop.add(requests[0][0][:16], _sampled(4))
        loop.run()
        for prompt, output in requests:
            loop.add(prompt, _sampled(output))
        took_s = loop.run()
    finally:
        loop.close()
    rate = num_written / took_s
    own_s = workload_floor_s(engine.runner.spec, bench.ceilings, sizes)
    measured = f"{rate:,.0f} tokens/s ({took_s:.2f} s, {loop.num_steps} steps; {num_read:,} in,"
    measured += f" {num_written:,} out), {own_s / took_s:.2f} of this machine's"
    measured += f" {num_written / own_s:,.0f}"
    return Row(
        f"nano-vllm workload, {size}, of {ceiling:,} tokens/s", measured, rate / ceiling, reach
    )


def _sampled(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.6, max_tokens=max_tokens, ignore_eos=True)
