"""Checks every kernel of a device against float64 on the host: fresh inputs, poisoned outputs.

Kernels are requested as the engine requests them, so the check covers whichever kernel serves
there. Meanwhile all uninitialised memory is NaN, and so is every place of a pool that was never
written.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from local_engine.core.sequence import Sequence
from local_engine.core.step import Item, Step
from local_engine.kernels.fast import HeadNorms
from local_engine.kernels.linear import choose_linear, triton_products
from local_engine.kernels.paged_attention import choose_native
from local_engine.kernels.quantised import (
    QUANTISED,
    quantise_fp8,
    quantise_int4,
    quantise_int8,
    widen_int4,
)
from local_engine.model.moe import grouped_reference
from local_engine.model.rope import rotate
from local_engine.model.spec import ModelSpec
from local_engine.runner.batch import FlatBatch, PagedAttention, flatten
from local_engine.runner.kv_pool import FP8, KvPool
from local_engine.sampling_params import SamplingParams


BLOCK_SIZE = 16
MOST = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}
# From where to where each sequence's tokens go: single ones first, as the runner lays them out.
SINGLES = ((0, 1), (14, 15), (15, 16), (16, 17), (130, 131), (1100, 1101))
CHUNKS = ((0, 7), (0, 130), (33, 100), (500, 777), (1024, 1040))


@dataclass(frozen=True)
class Check:
    """The difference's norm over the reference's, and the most that it may be."""

    name: str
    error: float
    most: float

    @property
    def is_passed(self) -> bool:
        """NaN never passes."""
        return self.error <= self.most


@contextmanager
def poisoned() -> Iterator[None]:
    """New memory is NaN, and the largest number of integers."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # noqa: FBT003 - torch's name for it
    try:
        assert bool(torch.empty(8).isnan().all()), "memory is not poisoned"
        yield
    finally:
        torch.use_deterministic_algorithms(False)  # noqa: FBT003 - see above


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    expected = expected.double().cpu()
    return float((found.double().cpu() - expected).norm() / expected.norm().clamp_min(1e-30))


def kernel_checks(device: torch.device) -> Iterator[Check]:
    for dtype, most in MOST.items():
        yield from _row_checks(device, dtype, most)
        yield from _product_checks(device, dtype, most)
    for dtype, kv_dtype, specs in _ATTENTION:
        for spec in specs:
            yield from _attention_checks(device, dtype, kv_dtype, spec)


def _spec(heads: int, kv_heads: int, dim: int, window: int = 0) -> ModelSpec:
    return ModelSpec(
        vocab_size=8,
        hidden_size=heads * dim,
        intermediate_size=8,
        num_layers=1,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=dim,
        context_window=4096,
        windows=(window,) if window else (),
    )


_SPECS = (_spec(32, 8, 128), _spec(16, 8, 128), _spec(6, 2, 64), _spec(4, 4, 32, window=100))
# Every pair of types is compiled for every shape: not all of them, for the sake of the clock.
_ATTENTION = (
    (torch.bfloat16, torch.bfloat16, _SPECS),
    (torch.bfloat16, FP8, _SPECS[1:3]),
    (torch.float32, torch.float32, _SPECS[1:]),
    (torch.float16, torch.float16, _SPECS[2:3]),
)


def _row_checks(device: torch.device, dtype: torch.dtype, most: float) -> Iterator[Check]:
    native = choose_native(device, dtype, 128, BLOCK_SIZE)
    if native is None:
        return
    for rows, size in ((1, 1024), (37, 4096), (5, 48 * 32)):
        x = torch.randn(rows, size, device=device, dtype=dtype)
        weight = torch.rand(size, device=device, dtype=dtype) + 0.5
        expected = F.rms_norm(x.double(), (size,), weight.double(), 1e-6)
        error = difference(native.rms_norm(x, weight, 1e-6), expected)
        yield Check(f"rms_norm {_named(dtype)} [{rows}, {size}]", error, most)
        gate, up = x.double().chunk(2, -1)
        error = difference(native.silu_times(x), F.silu(gate) * up)
        yield Check(f"silu_times {_named(dtype)} [{rows}, {size}]", error, most)
        wrong = (native.argmax(x.float()) != x.float().argmax(-1)).double().mean()
        yield Check(f"argmax [{rows}, {size}]", float(wrong), 0.0)


def _product_checks(device: torch.device, dtype: torch.dtype, most: float) -> Iterator[Check]:
    for rows, outs, ins in ((1, 384, 512), (33, 96, 256), (5, 40, 64)):
        weight = torch.randn(outs, ins, device=device)
        x = torch.randn(rows, ins, device=device, dtype=dtype)
        for kind, wide in _widened(weight).items():
            left = x.double()
            if kind == "int8":
                whole, scale = quantise_int8(x)
                left = whole.double() * scale.double()[:, None]
            found = QUANTISED[kind](weight, None)(x)
            name = f"{kind} product {_named(dtype)} [{rows}, {ins}] x [{outs}, {ins}]"
            yield Check(name, difference(found, left @ wide.t()), most)
    # As a decode step of one, one of several, and a chunk whose scores nobody asked for.
    make, plain = choose_linear(device, dtype), torch.randn(96, 64, device=device).to(dtype)
    for rows in (1, 3, 0):
        x = torch.randn(rows, 64, device=device).to(dtype)
        found, expected = make(plain, None)(x), x.double() @ plain.double().t()
        yield Check(
            f"chosen product {_named(dtype)}, {rows} rows", difference(found, expected), most
        )
    products = triton_products(device)
    if products is None:
        return
    experts = torch.randint(0, 8, (74,), device=device)
    x = torch.randn(37, 256, device=device, dtype=dtype)
    weights = torch.randn(8, 96, 256, device=device, dtype=dtype)
    expected = grouped_reference(x.double(), weights.double(), experts, 2)
    found = products.grouped_triton(x, weights, experts, 2)
    yield Check(f"grouped product {_named(dtype)}", difference(found, expected), most)


def _widened(weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """What weights in fewer bits stand for, in float64."""
    fp8, fp8_scale = quantise_fp8(weight)
    int8, int8_scale = quantise_int8(weight)
    return {
        "fp8": fp8.double() * fp8_scale.double()[:, None],
        "int8": int8.double() * int8_scale.double()[:, None],
        "int4": widen_int4(*quantise_int4(weight)).double(),
    }


def _attention_checks(
    device: torch.device, dtype: torch.dtype, kv_dtype: torch.dtype, spec: ModelSpec
) -> Iterator[Check]:
    """Steps of single tokens, of prompt chunks, and of both: stored, then looked at."""
    shape = f"{spec.num_heads}/{spec.num_kv_heads}x{spec.head_dim}"
    shape += f" window {spec.window_of(0)}" if spec.windows else ""
    for kind, spans in (("decode", SINGLES), ("prefill", CHUNKS), ("mixed", (*SINGLES, *CHUNKS))):
        batch, num_blocks = laid_out(spans)
        pools = pool_pair(spec, num_blocks, batch, device, kv_dtype)
        for has_norms in (None, False, True):
            way = {None: "plain", False: "fused", True: "fused with norms"}[has_norms]
            name = f"{kind} attention {way} {_named(dtype)} kv {_named(kv_dtype)} {shape}"
            error = _attention_error(spec, batch, pools, device, dtype, has_norms)
            if error is not None:
                yield Check(name, error, MOST[dtype])


def _attention_error(
    spec: ModelSpec,
    batch: FlatBatch,
    pools: tuple[KvPool, KvPool],
    device: torch.device,
    dtype: torch.dtype,
    has_norms: bool | None,  # noqa: FBT001 - three ways of one thing
) -> float | None:
    """Of one layer; `None` where the device has no fused kernel for it."""
    native = choose_native(device, dtype, spec.head_dim, BLOCK_SIZE, pools[0].keys[0].dtype)
    ours = PagedAttention(spec, pools[0], batch.to(device), native)
    reference = PagedAttention(spec, pools[1], batch, None)
    heads, kv_heads, dim = spec.num_heads, spec.num_kv_heads, spec.head_dim
    rows = len(batch.token_ids)
    qkv = torch.randn(rows, (heads + 2 * kv_heads) * dim).to(dtype)
    sizes = [heads * dim, kv_heads * dim, kv_heads * dim]
    if has_norms is None:
        q, k, v = (part.view(rows, -1, dim) for part in torch.split(qkv, sizes, -1))
        found = ours(0, *(part.contiguous().to(device) for part in (q, k, v)))
        return difference(found, reference(0, q.double(), k, v))
    scales = torch.rand(2, dim).to(dtype) + 0.5
    norms = HeadNorms(scales[0].to(device), scales[1].to(device), 1e-6) if has_norms else None
    angles = torch.rand(rows, 1, dim // 2) * 6
    turn = tuple(torch.cat([part] * 2, -1).to(dtype) for part in (angles.cos(), angles.sin()))
    answer = ours.fused(0, qkv.to(device), norms, (turn[0].to(device), turn[1].to(device)))
    if answer is None:
        return None
    q, k, v = (part.view(rows, -1, dim).double() for part in torch.split(qkv, sizes, -1))
    if has_norms:
        q = F.rms_norm(q, (dim,), scales[0].double(), 1e-6)
        k = F.rms_norm(k, (dim,), scales[1].double(), 1e-6)
    q, k = (rotate(part, turn[0].double(), turn[1].double()) for part in (q, k))
    # Kernels keep what they turned in float32 until it is stored: rounded once.
    return difference(answer, reference(0, q, k, v))


def laid_out(spans: tuple[tuple[int, int], ...]) -> tuple[FlatBatch, int]:
    """A step of sequences with these spans, and how many blocks they hold in all, in no order."""
    counts = [-(-end // BLOCK_SIZE) for _, end in spans]
    free = (torch.randperm(sum(counts)) + 1).tolist()
    items = []
    for number, ((start, end), count) in enumerate(zip(spans, counts, strict=True)):
        tokens = torch.randint(0, 8, (end,)).tolist()
        sequence = Sequence(str(number), tokens, SamplingParams(), context_window=end + 1)
        sequence.block_ids, free = free[:count], free[count:]
        items.append(Item(sequence, start, end, sequence.epoch))
    return flatten(Step(items), BLOCK_SIZE), sum(counts)


def pool_pair(
    spec: ModelSpec, num_blocks: int, batch: FlatBatch, device: torch.device, dtype: torch.dtype
) -> tuple[KvPool, KvPool]:
    """The same on the device and on the host: NaN but for what was computed before the step."""
    ours, host = (
        KvPool(spec, num_blocks, BLOCK_SIZE, device=each, dtype=dtype)
        for each in (device, torch.device("cpu"))
    )
    shape = (spec.num_kv_heads, spec.head_dim)
    for layer in range(spec.num_layers):
        for tensor in (host.keys[layer], host.values[layer]):
            tensor.copy_(torch.full(tensor.shape, math.nan))
        for number, (start, _) in enumerate(batch.spans):
            at = torch.arange(start)
            blocks = batch.table[number].long()[at // BLOCK_SIZE]
            k, v = torch.randn(start, *shape), torch.randn(start, *shape)
            host.write(layer, blocks, at % BLOCK_SIZE, k, v)
        ours.keys[layer].copy_(host.keys[layer])
        ours.values[layer].copy_(host.values[layer])
    return ours, host


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
