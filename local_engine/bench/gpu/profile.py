"""Profiles a step: kernels by the time they take, and how long the device waits.

It runs only when asked for, because a profiler itself takes time.
"""

import time
from collections.abc import Iterator
from typing import Any

from torch.profiler import ProfilerActivity, profile

from local_engine.bench.cpu import Row
from local_engine.bench.gpu.bench import Bench
from local_engine.bench.gpu.loop import Engine, greedy
from local_engine.bench.gpu.rows import WARM_STEPS, decoding_loop
from local_engine.bench.gpu.workloads import random_ids


_STEPS = 10
_MOST_KERNELS = 10
_NAME_CHARS = 60


def profile_rows(bench: Bench) -> Iterator[Row]:
    """Decode steps of every batch and one long prompt, 8 B; then 0.6 B at batch 1."""
    scale = bench.scale
    for batch in scale.batches:
        yield from _decode(bench, bench.large, batch, f"8 B B{batch}")
    yield from _prompt(bench)
    yield from _decode(bench, bench.small, 1, "0.6 B B1")


def _decode(bench: Bench, engine: Engine, batch: int, words: str) -> Iterator[Row]:
    loop = decoding_loop(bench, engine, batch, bench.scale.context)
    try:
        loop.step_times_s(WARM_STEPS, 0)
        steps = min(_STEPS, bench.scale.decode_steps)
        with profile(activities=_activities(bench)) as seen:
            times = loop.step_times_s(0, steps)
    finally:
        loop.close()
    yield from _kernels(bench, seen, words, sum(times), steps)


def _prompt(bench: Bench) -> Iterator[Row]:
    length = bench.scale.long_context
    loop = bench.large.loop(token_budget=length, prefill_chunk=length, is_caching=False)
    try:
        loop.add(random_ids(bench.scale.large, length, seed=1), greedy(1))
        loop.run()
        loop.add(random_ids(bench.scale.large, length, seed=2), greedy(1))
        with profile(activities=_activities(bench)) as seen:
            started = time.perf_counter()
            loop.run()
            took_s = time.perf_counter() - started
    finally:
        loop.close()
    yield from _kernels(bench, seen, f"8 B prompt of {length}", took_s, 1)


def _activities(bench: Bench) -> list[Any]:
    is_gpu = bench.device.type == "cuda"
    return [ProfilerActivity.CUDA if is_gpu else ProfilerActivity.CPU]


def _kernels(bench: Bench, seen: Any, words: str, took_s: float, steps: int) -> Iterator[Row]:
    """The dearest ones, each as a part of the time on the wall."""
    kind = "device" if bench.device.type == "cuda" else "cpu"
    name = f"self_{kind}_time_total"
    events = sorted(seen.key_averages(), key=lambda event: -getattr(event, name))
    busy_s = sum(getattr(event, name) for event in events) / 1e6
    measured = f"{1000 * busy_s / steps:.3f} of {1000 * took_s / steps:.3f} ms a step"
    yield Row(f"profile, {words}: busy", measured, busy_s / took_s, "-")
    for event in events[:_MOST_KERNELS]:
        spent_s = getattr(event, name) / 1e6
        measured = f"{1000 * spent_s / steps:.3f} ms a step, {event.count / steps:g} times"
        yield Row(f"  {event.key[:_NAME_CHARS]}", measured, spent_s / took_s, "-")
