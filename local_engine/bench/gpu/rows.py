"""The GPU benchmarks: what each runs, its floor or peer, and the ratio it has to reach."""

from collections.abc import Iterator

import msgspec
import torch

from local_engine.bench.cpu import Row
from local_engine.bench.gpu.bench import Bench
from local_engine.bench.gpu.ceilings import (
    Spread,
    device_name,
    prompt_flop,
    spread_of,
    step_floor_s,
    timed,
)
from local_engine.bench.gpu.loop import BLOCK_SIZE, Engine, Loop, fill_randomly, greedy
from local_engine.bench.gpu.workloads import random_ids
from local_engine.kernels.paged_attention import choose_native, decode_reference
from local_engine.kernels.reach import Reach
from local_engine.model.spec import ModelSpec
from local_engine.runner.kv_pool import KvPool


WARM_STEPS = 8
_PRODUCT_FLOP_S = 790e12
_ATTENTION_SETS = 3


def ceiling_rows(bench: Bench) -> Iterator[Row]:
    ceilings, copy, product = bench.measured_ceilings
    side, size = bench.scale.product_side, bench.scale.copy_bytes
    words = f"copy {ceilings.copy_bytes_s / 1e12:.3f} TB/s ({size >> 20} MiB in {copy.words})"
    yield Row(f"machine: {device_name(bench.device)}", words, ceilings.copy_bytes_s / 4.3e12, "-")
    words = f"{ceilings.product_flop_s / 1e12:.1f} TFLOP/s ({product.words})"
    name = f"bf16 product, side {side}, of 790 TFLOP/s"
    yield Row(name, words, ceilings.product_flop_s / _PRODUCT_FLOP_S, "-")


def decode_rows(bench: Bench) -> Iterator[Row]:
    """8 B at 1 k; the keys and values of the contexts are random numbers."""
    for batch, reach in zip(bench.scale.batches, (">= 0.75", ">= 0.65", ">= 0.60"), strict=True):
        yield _decode_row(bench, bench.large, batch, bench.scale.context, reach)


def long_decode_rows(bench: Bench) -> Iterator[Row]:
    scale = bench.scale
    yield _decode_row(bench, bench.large, scale.long_batch, scale.long_context, ">= 0.65")


def small_decode_rows(bench: Bench) -> Iterator[Row]:
    for batch, reach in zip(bench.scale.batches, (">= 0.35", "-", "-"), strict=True):
        yield _decode_row(bench, bench.small, batch, bench.scale.context, reach)


def attention_rows(bench: Bench) -> Iterator[Row]:
    """The kernel alone, over pools that take turns; blocks lie in no order."""
    scale = bench.scale
    large, small = (_layers(spec, _ATTENTION_SETS) for spec in (scale.large, scale.small))
    cases = (
        (large, scale.long_batch, scale.long_context, ">= 0.75"),
        (large, scale.batches[-1], scale.context, "-"),
        (small, scale.long_batch, scale.long_context, "-"),
    )
    for spec, batch, context, reach in cases:
        took = _attention_s(bench, spec, batch, context)
        num_bytes = batch * context * spec.kv_bytes_per_token(2) / spec.num_layers
        rate = num_bytes / took.median_s
        heads = f"{spec.num_heads}/{spec.num_kv_heads} heads"
        name = f"paged decode attention, {heads}, B{batch} {context}, of copy"
        measured = f"{took.words}, {rate / 1e12:.3f} TB/s"
        yield Row(name, measured, rate / bench.ceilings.copy_bytes_s, reach)


def prefill_rows(bench: Bench) -> Iterator[Row]:
    """One prompt in one step, its causal attention counted as multiplied: half of the square."""
    engine, length = bench.large, bench.scale.long_context
    spec, times = bench.scale.large, []
    for number in range(bench.scale.prefill_repeats + 1):
        loop = engine.loop(token_budget=length, prefill_chunk=length, is_caching=False)
        loop.add(random_ids(spec, length, seed=number), greedy(1))
        times.append(loop.run())
        loop.close()
    took, flop = spread_of(times[1:]), prompt_flop(spec, length)
    rate = flop / took.median_s
    of_own = rate / bench.ceilings.product_flop_s
    measured = f"{took.words}, {flop / 1e12:.1f} TFLOP, {rate / 1e12:.0f} TFLOP/s"
    measured += f", {of_own:.2f} of the product's rate in this run"
    yield Row(
        f"prefill 8 B, {length} tokens, of 790 TFLOP/s", measured, rate / _PRODUCT_FLOP_S, ">= 0.65"
    )


def overlap_rows(bench: Bench) -> Iterator[Row]:
    """0.6 B, 64 sequences: the same steps planned ahead, and one after another."""
    batch = min(64, bench.scale.workload_sequences)
    ahead, behind = (
        _steps(bench, bench.small, batch, bench.scale.context, is_ahead=is_ahead)
        for is_ahead in (True, False)
    )
    measured = f"on {ahead.words}, off {behind.words}"
    ratio = behind.median_s / ahead.median_s
    yield Row(f"overlap off against on, 0.6 B, B{batch}", measured, ratio, ">= 1.15")


def fp8_rows(bench: Bench) -> Iterator[Row]:
    spec, context = bench.scale.large, bench.scale.context
    wide = _steps(bench, bench.large, 1, context)
    narrow = _steps(bench, bench.large_fp8, 1, context)
    floor_s = step_floor_s(spec, bench.ceilings, 1, context, weight_bytes=1)
    measured = (
        f"fp8 {narrow.words}, bf16 {wide.words}, {floor_s / narrow.median_s:.2f} of its floor"
    )
    ratio = wide.median_s / narrow.median_s
    yield Row("8 B decode B1, bf16 against fp8 weights", measured, ratio, ">= 1.6")


def _decode_row(bench: Bench, engine: Engine, batch: int, context: int, reach: str) -> Row:
    spec = engine.runner.spec
    took = _steps(bench, engine, batch, context)
    floor_s = step_floor_s(spec, bench.ceilings, batch, batch * context)
    rate = batch / took.median_s
    measured = f"{took.words}, floor {1000 * floor_s:.3f} ms, {rate:,.0f} tokens/s"
    size = "8 B" if spec == bench.scale.large else "0.6 B"
    name = f"{size} bf16 decode, B{batch} at {context}, of its floor"
    return Row(name, measured, floor_s / took.median_s, reach)


def _steps(
    bench: Bench, engine: Engine, batch: int, context: int, *, is_ahead: bool = True
) -> Spread:
    loop = decoding_loop(bench, engine, batch, context, is_ahead=is_ahead)
    try:
        return spread_of(loop.step_times_s(WARM_STEPS, bench.scale.decode_steps))
    finally:
        loop.close()


def decoding_loop(
    bench: Bench, engine: Engine, batch: int, context: int, *, is_ahead: bool = True
) -> Loop:
    """Steps in which all decode; in their middle the mean context is `context` long."""
    num_steps = bench.scale.decode_steps
    length = context - WARM_STEPS - num_steps // 2
    budget = batch * context
    loop = engine.loop(
        is_ahead=is_ahead,
        max_running=batch,
        token_budget=budget,
        prefill_chunk=budget,
        is_caching=False,
    )
    for number in range(batch):
        prompt = random_ids(engine.runner.spec, length, seed=number)
        loop.add(prompt, greedy(WARM_STEPS + num_steps + 8))
    loop.claim_prompts()
    return loop


def _layers(spec: ModelSpec, num_layers: int) -> ModelSpec:
    return msgspec.structs.replace(spec, num_layers=num_layers)


def _attention_s(bench: Bench, spec: ModelSpec, batch: int, context: int) -> Spread:
    """Of one layer's answers to `batch` queries; each layer of the pool is an input set."""
    device, dtype = bench.device, torch.bfloat16
    per_row = -(-context // BLOCK_SIZE)
    pool = KvPool(spec, batch * per_row, BLOCK_SIZE, device=device, dtype=dtype)
    fill_randomly(pool)
    native = choose_native(device, dtype, spec.head_dim, BLOCK_SIZE)
    decode = decode_reference if native is None else native.paged_decode
    order = torch.randperm(batch * per_row, device=device) + 1
    table = order.view(batch, per_row).to(torch.int32)
    lengths = torch.full((batch,), context, device=device, dtype=torch.int32)
    q = torch.randn((batch, spec.num_heads, spec.head_dim), device=device, dtype=dtype)
    reach = Reach(spec.attention_scale)

    def answer(layer: int) -> torch.Tensor:
        return decode(q, pool.keys[layer], pool.values[layer], table, lengths, reach)

    acts = [lambda layer=layer: answer(layer) for layer in range(spec.num_layers)]
    with torch.inference_mode():
        return timed(acts, device, bench.scale.repeats)
