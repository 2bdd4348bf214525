"""Norms, rotations, activations in Triton: RMSNorm, RMSNorm with RoPE and KV store, gated SiLU.

The references are `F.rms_norm`, `model.rope.rotate`, `KvPool.write` and `F.silu`. Arithmetic is
float32, whatever the tensors hold. On the interpreter everything is float32 or float16.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from local_engine.kernels.fast import HeadNorms


_SILU_TILE = 1024
# A step with this many rows is a prompt's; the second number is the rows one program stores.
_FIRST_PROMPT, _PROMPT_ROWS = 512, 16
_FP8_MOST = tl.constexpr(448.0)


@triton.jit
def _rms_norm(
    x, more, weight, total, out, dim, eps, SIZE: tl.constexpr, IS_SUM: tl.constexpr
):  # fmt: skip
    at = tl.arange(0, SIZE)
    place, is_inside = tl.program_id(0).to(tl.int64) * dim + at, at < dim
    values = tl.load(x + place, mask=is_inside, other=0.0).to(tl.float32)
    if IS_SUM:
        values += tl.load(more + place, mask=is_inside, other=0.0).to(tl.float32)
        # The rounded sum is both kept and normed.
        kept = values.to(total.dtype.element_ty)
        tl.store(total + place, kept, mask=is_inside)
        values = kept.to(tl.float32)
    inverse = 1.0 / tl.sqrt(tl.sum(values * values, axis=0) / dim + eps)
    scale = tl.load(weight + at, mask=is_inside, other=0.0).to(tl.float32)
    normed = values * inverse * scale
    tl.store(out + place, normed.to(out.dtype.element_ty), mask=is_inside)


def rms_norm_triton(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Rows [..., dim], each divided by its root mean square and multiplied by `weight`."""
    x = x.contiguous()
    out, dim = torch.empty_like(x), x.shape[-1]
    size = triton.next_power_of_2(dim)
    _rms_norm[(x.numel() // dim,)](
        x, x, weight, out, out, dim, eps, SIZE=size, IS_SUM=False, num_warps=_warps(size)
    )
    return out


def add_rms_norm_triton(
    x: torch.Tensor, more: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of both, and its rows normed as by `rms_norm_triton`; one pass over memory."""
    x, more = x.contiguous(), more.contiguous()
    total, out, dim = torch.empty_like(x), torch.empty_like(x), x.shape[-1]
    size = triton.next_power_of_2(dim)
    _rms_norm[(x.numel() // dim,)](
        x, more, weight, total, out, dim, eps, SIZE=size, IS_SUM=True, num_warps=_warps(size)
    )
    return total, out


def _warps(size: int) -> int:
    """Sixteen elements per thread, and at most the threads that a program has."""
    return max(1, min(16, size // 512))


@triton.jit
def _silu_times(gate_up, out, inner, SIZE: tl.constexpr):  # fmt: skip
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    gate = tl.load(gate_up + row * 2 * inner + at, mask=at < inner, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * inner + inner + at, mask=at < inner, other=0.0)
    weighed = gate / (1.0 + tl.exp(-gate)) * up.to(tl.float32)
    tl.store(out + row * inner + at, weighed.to(out.dtype.element_ty), mask=at < inner)


def silu_times_triton(gate_up: torch.Tensor) -> torch.Tensor:
    """[..., 2 * inner] as gate and up to silu(gate) * up, [..., inner]."""
    gate_up = gate_up.contiguous()
    inner = gate_up.shape[-1] // 2
    out = gate_up.new_empty((*gate_up.shape[:-1], inner))
    rows = gate_up.numel() // (2 * inner)
    size = min(_SILU_TILE, triton.next_power_of_2(inner))
    _silu_times[rows, triton.cdiv(inner, size)](gate_up, out, inner, SIZE=size)
    return out


@triton.jit
def _stored(x, pool, IS_FP8: tl.constexpr):  # fmt: skip
    if IS_FP8:
        x = tl.minimum(tl.maximum(x, -_FP8_MOST), _FP8_MOST)
    return x.to(pool.dtype.element_ty)


@triton.jit(do_not_specialize=["rows"], do_not_specialize_on_alignment=["blocks", "offsets"])
def _norm_turn_store(
    qkv, q_weight, k_weight, cosine, sine, blocks, offsets, keys, values, q_out, eps, rows,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, HAS_NORMS: tl.constexpr, IS_FP8: tl.constexpr,
):  # fmt: skip
    head, half = tl.program_id(1), DIM // 2
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at, is_row = tl.arange(0, DIM // 2)[None, :], (row < rows)[:, None]
    source = qkv + ((row * (HEADS + 2 * KV_HEADS) + head) * DIM)[:, None] + at
    low = tl.load(source, mask=is_row, other=0.0).to(tl.float32)
    high = tl.load(source + half, mask=is_row, other=0.0).to(tl.float32)
    block = tl.load(blocks + row, mask=row < rows, other=0).to(tl.int64)[:, None]
    offset = tl.load(offsets + row, mask=row < rows, other=0).to(tl.int64)[:, None]
    if head >= HEADS + KV_HEADS:
        in_values = (
            values + ((block * KV_HEADS + head - HEADS - KV_HEADS) * BLOCK + offset) * DIM + at
        )
        tl.store(in_values, _stored(low, values, IS_FP8), mask=is_row)
        tl.store(in_values + half, _stored(high, values, IS_FP8), mask=is_row)
    else:
        if HAS_NORMS:
            squares = tl.sum(low * low, axis=1) + tl.sum(high * high, axis=1)
            inverse = (1.0 / tl.sqrt(squares / DIM + eps))[:, None]
            weight = k_weight if head >= HEADS else q_weight
            low = low * inverse * tl.load(weight + at).to(tl.float32)
            high = high * inverse * tl.load(weight + half + at).to(tl.float32)
        turn = (row * DIM)[:, None] + at
        cos_low = tl.load(cosine + turn, mask=is_row, other=0.0).to(tl.float32)
        cos_high = tl.load(cosine + turn + half, mask=is_row, other=0.0).to(tl.float32)
        sin_low = tl.load(sine + turn, mask=is_row, other=0.0).to(tl.float32)
        sin_high = tl.load(sine + turn + half, mask=is_row, other=0.0).to(tl.float32)
        first = low * cos_low - high * sin_low
        second = high * cos_high + low * sin_high
        if head < HEADS:
            in_out = q_out + ((row * HEADS + head) * DIM)[:, None] + at
            tl.store(in_out, first.to(q_out.dtype.element_ty), mask=is_row)
            tl.store(in_out + half, second.to(q_out.dtype.element_ty), mask=is_row)
        else:
            in_keys = keys + (block * KV_HEADS + head - HEADS) * DIM * BLOCK + offset + at * BLOCK
            tl.store(in_keys, _stored(first, keys, IS_FP8), mask=is_row)
            tl.store(in_keys + half * BLOCK, _stored(second, keys, IS_FP8), mask=is_row)


def norm_turn_store_triton(
    qkv: torch.Tensor,
    norms: HeadNorms | None,
    turn: tuple[torch.Tensor, torch.Tensor],
    places: tuple[torch.Tensor, torch.Tensor],
    pools: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """As `NativeKernels.norm_turn_store`, in any float type; half the head is a power of two."""
    keys, values = pools
    kv_heads, dim, block = keys.shape[1], keys.shape[2], keys.shape[3]
    rows, width = qkv.shape
    heads = width // dim - 2 * kv_heads
    out = qkv.new_empty((rows, heads, dim))
    weights: Any = (norms.q_weight, norms.k_weight) if norms is not None else (qkv, qkv)
    cosine, sine = (part.contiguous() for part in turn)
    # The tokens of a block lie side by side among the keys: a prompt's are written together.
    tile = _PROMPT_ROWS if rows >= _FIRST_PROMPT else 1
    _norm_turn_store[triton.cdiv(rows, tile), heads + 2 * kv_heads](
        qkv.contiguous(), *weights, cosine, sine, *places, keys, values, out,
        norms.eps if norms is not None else 0.0, rows,
        HEADS=heads, KV_HEADS=kv_heads, DIM=dim, BLOCK=block, ROWS=tile,
        HAS_NORMS=norms is not None, IS_FP8=keys.dtype == torch.float8_e4m3fn,
        num_warps=1 if tile == 1 else 4,
    )  # fmt: skip
    return out
