"""Norms, turns and activations in Triton: RMSNorm, RMSNorm with RoPE and KV store, SiLU times gate.

The references are `F.rms_norm`, `model.rope.rotate`, `KvPool.write` and `F.silu`. Arithmetic is
float32 whatever the tensors hold. On the interpreter everything is float32 or float16.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from local_engine.kernels.fast import HeadNorms


_SILU_TILE = 1024
_FP8_MOST = tl.constexpr(448.0)


@triton.jit
def _rms_norm(x, weight, out, dim, eps, SIZE: tl.constexpr):  # fmt: skip
    row, at = tl.program_id(0), tl.arange(0, SIZE)
    values = tl.load(x + row * dim + at, mask=at < dim, other=0.0).to(tl.float32)
    inverse = 1.0 / tl.sqrt(tl.sum(values * values, axis=0) / dim + eps)
    scale = tl.load(weight + at, mask=at < dim, other=0.0).to(tl.float32)
    normed = values * inverse * scale
    tl.store(out + row * dim + at, normed.to(out.dtype.element_ty), mask=at < dim)


def rms_norm_triton(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Rows [..., dim], each divided by its root mean square and multiplied by `weight`."""
    x = x.contiguous()
    out, dim = torch.empty_like(x), x.shape[-1]
    _rms_norm[(x.numel() // dim,)](x, weight, out, dim, eps, SIZE=triton.next_power_of_2(dim))
    return out


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


@triton.jit
def _norm_turn_store(
    qkv, q_weight, k_weight, cosine, sine, blocks, offsets, keys, values, q_out, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    HAS_NORMS: tl.constexpr, IS_FP8: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    half: tl.constexpr = DIM // 2
    at = tl.arange(0, half)
    source = qkv + (row * (HEADS + 2 * KV_HEADS) + head) * DIM
    low = tl.load(source + at).to(tl.float32)
    high = tl.load(source + half + at).to(tl.float32)
    block, offset = tl.load(blocks + row), tl.load(offsets + row)
    if head >= HEADS + KV_HEADS:
        base = (block * KV_HEADS + head - HEADS - KV_HEADS) * BLOCK * DIM + offset * DIM
        tl.store(values + base + at, _stored(low, values, IS_FP8))
        tl.store(values + base + half + at, _stored(high, values, IS_FP8))
    else:
        if HAS_NORMS:
            squares = tl.sum(low * low, axis=0) + tl.sum(high * high, axis=0)
            inverse = 1.0 / tl.sqrt(squares / DIM + eps)
            weight = k_weight if head >= HEADS else q_weight
            low = low * inverse * tl.load(weight + at).to(tl.float32)
            high = high * inverse * tl.load(weight + half + at).to(tl.float32)
        turn = row * DIM + at
        cos_low = tl.load(cosine + turn).to(tl.float32)
        cos_high = tl.load(cosine + turn + half).to(tl.float32)
        sin_low = tl.load(sine + turn).to(tl.float32)
        sin_high = tl.load(sine + turn + half).to(tl.float32)
        first = low * cos_low - high * sin_low
        second = high * cos_high + low * sin_high
        if head < HEADS:
            out = q_out + (row * HEADS + head) * DIM
            tl.store(out + at, first.to(q_out.dtype.element_ty))
            tl.store(out + half + at, second.to(q_out.dtype.element_ty))
        else:
            base = (block * KV_HEADS + head - HEADS) * DIM * BLOCK + offset
            tl.store(keys + base + at * BLOCK, _stored(first, keys, IS_FP8))
            tl.store(keys + base + (half + at) * BLOCK, _stored(second, keys, IS_FP8))


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
    _norm_turn_store[rows, heads + 2 * kv_heads](
        qkv.contiguous(), *weights, cosine, sine, *places, keys, values, out,
        norms.eps if norms is not None else 0.0,
        HEADS=heads, KV_HEADS=kv_heads, DIM=dim, BLOCK=block,
        HAS_NORMS=norms is not None, IS_FP8=keys.dtype == torch.float8_e4m3fn,
    )  # fmt: skip
    return out
