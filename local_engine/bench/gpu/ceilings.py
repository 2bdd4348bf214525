"""Measures the most the machine can do, in the same run, and derives lower bounds on times.

A decode step reads every weight once (of the input embedding only single rows) and all keys and
values; a prompt multiplies every weight of its layers with every token, and attends causally.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import median

import torch

from local_engine.bench.gpu.models import Scale
from local_engine.model.spec import ModelSpec


BF16_BYTES = 2


@dataclass(frozen=True)
class Ceilings:
    """Of one device: bytes read plus written per second, and bf16 product FLOP per second."""

    copy_bytes_s: float
    product_flop_s: float

    def floor_s(self, num_bytes: float, flop: float) -> float:
        return max(num_bytes / self.copy_bytes_s, flop / self.product_flop_s)


@dataclass(frozen=True)
class Spread:
    """Times of the same thing, in seconds."""

    median_s: float
    least_s: float
    most_s: float

    @property
    def words(self) -> str:
        times = (1000 * each for each in (self.median_s, self.least_s, self.most_s))
        return "{:.3f} ms ({:.3f} to {:.3f})".format(*times)


def spread_of(times_s: Sequence[float]) -> Spread:
    return Spread(median(times_s), min(times_s), max(times_s))


def wait_for(device: torch.device) -> None:
    """Until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(acts: Sequence[Callable[[], object]], device: torch.device, repeats: int) -> Spread:
    """Device time of one act; they take turns, so that none finds its inputs in a cache."""
    turns = cycle(acts)
    for _ in range(len(acts) + 2):
        next(turns)()
    wait_for(device)
    if device.type != "cuda":
        return spread_of([_host_s(next(turns)) for _ in range(repeats)])
    marks = []
    for _ in range(repeats):
        before, after = _mark(), _mark()
        before.record()
        next(turns)()
        after.record()
        marks.append((before, after))
    wait_for(device)
    return spread_of([before.elapsed_time(after) / 1000 for before, after in marks])


def _mark() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _host_s(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def measure_ceilings(device: torch.device, scale: Scale) -> tuple[Ceilings, Spread, Spread]:
    """Copies and products of random numbers; the ceilings, and how long one of each took."""
    copy, product = _copy(device, scale), _product(device, scale)
    flop = 2.0 * scale.product_side**3
    found = Ceilings(2 * scale.copy_bytes / copy.median_s, flop / product.median_s)
    return found, copy, product


def _copy(device: torch.device, scale: Scale) -> Spread:
    count = scale.copy_bytes // BF16_BYTES
    source = torch.empty(count, device=device, dtype=torch.bfloat16).normal_()
    target = torch.empty_like(source)
    return timed([lambda: target.copy_(source)], device, scale.repeats)


def _product(device: torch.device, scale: Scale) -> Spread:
    shape = (scale.product_side, scale.product_side)
    left, right = (
        torch.empty(shape, device=device, dtype=torch.bfloat16).normal_() for _ in range(2)
    )
    out = torch.empty_like(left)
    return timed([lambda: torch.mm(left, right, out=out)], device, scale.repeats)


def device_name(device: torch.device) -> str:
    if device.type != "cuda":
        return "no GPU, a rehearsal on the CPU: no figure here means anything"
    return torch.cuda.get_device_name(device)


def layer_elements(spec: ModelSpec) -> int:
    """Weights of all layers that every token is multiplied with."""
    heads = spec.num_heads * spec.head_dim
    kv_heads = spec.num_kv_heads * spec.head_dim
    attention = spec.hidden_size * (2 * heads + 2 * kv_heads)
    return spec.num_layers * (attention + 3 * spec.hidden_size * spec.intermediate_size)


def head_elements(spec: ModelSpec) -> int:
    return spec.vocab_size * spec.hidden_size


def step_floor_s(
    spec: ModelSpec,
    ceilings: Ceilings,
    batch: int,
    seen_tokens: float,
    weight_bytes: float = BF16_BYTES,
) -> float:
    """A decode step of `batch` rows that look at `seen_tokens` keys and values in all."""
    weights = layer_elements(spec) + head_elements(spec)
    num_bytes = weights * weight_bytes + seen_tokens * spec.kv_bytes_per_token(BF16_BYTES)
    flop = 2.0 * batch * weights + _attention_flop(spec, seen_tokens)
    return ceilings.floor_s(num_bytes, flop)


def prompt_flop(spec: ModelSpec, length: int) -> float:
    """One prompt, its causal attention and the scores of its last token included."""
    seen = length * (length + 1) / 2
    return (
        2.0 * length * layer_elements(spec)
        + _attention_flop(spec, seen)
        + 2.0 * head_elements(spec)
    )


def workload_floor_s(
    spec: ModelSpec, ceilings: Ceilings, sizes: Sequence[tuple[int, int]]
) -> float:
    """All (prompt, output) lengths started together: prompts by FLOP, then step after step."""
    prompts_s = sum(prompt_flop(spec, prompt) for prompt, _ in sizes) / ceilings.product_flop_s
    steps_s = 0.0
    for written in range(max(output for _, output in sizes)):
        running = [prompt + written for prompt, output in sizes if output > written]
        steps_s += step_floor_s(spec, ceilings, len(running), sum(running))
    return prompts_s + steps_s


def _attention_flop(spec: ModelSpec, pairs: float) -> float:
    """Scores and weighted values of so many (query, key) pairs in every layer."""
    return 4.0 * pairs * spec.num_heads * spec.head_dim * spec.num_layers
