"""Attention over paged keys and values: all decode rows together, all prompt chunks together.

Keys are stored as [block, kv_head, dim, token] and values as [block, kv_head, token, dim]. The
torch functions are the reference and run anywhere; on a CPU in float32 compiled kernels read
straight from the blocks, on CUDA Triton kernels do. The choice is made once.
"""

import importlib
import importlib.util
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F

from local_engine.kernels.fast import Chunks, FastKernels
from local_engine.kernels.native import NativeKernels, native_kernels
from local_engine.kernels.reach import Reach


def _taken(pool: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """Blocks of a pool; indexing does not support fp8, so bytes are taken and viewed as fp8."""
    if pool.dtype.itemsize > 1:
        return pool[blocks]
    return pool.view(torch.uint8)[blocks].view(pool.dtype)


def gather_keys(keys: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """[rows, blocks] of a key pool to [rows, kv_heads, tokens, dim]."""
    found = _taken(keys, blocks)
    rows, num_blocks, heads, dim, size = found.shape
    return found.permute(0, 2, 1, 4, 3).reshape(rows, heads, num_blocks * size, dim)


def gather_values(values: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """[rows, blocks] of a value pool to [rows, kv_heads, tokens, dim]."""
    found = _taken(values, blocks)
    rows, num_blocks, heads, size, dim = found.shape
    return found.permute(0, 2, 1, 3, 4).reshape(rows, heads, num_blocks * size, dim)


def decode_reference(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    reach: Reach,
) -> torch.Tensor:
    """One query per row against all tokens of its row, or the last `window` of them."""
    rows, heads, dim = q.shape
    kv_heads = keys.shape[1]
    k, v = gather_keys(keys, table).to(q.dtype), gather_values(values, table).to(q.dtype)
    at = torch.arange(k.shape[2], device=q.device)
    seen = at < lengths[:, None]
    if reach.window:
        seen &= at >= lengths[:, None] - reach.window
    # Padding beyond a row's length may hold anything, and a weight of 0 does not cancel a NaN.
    unseen = ~seen[:, None, :, None]
    k, v = k.masked_fill(unseen, 0.0), v.masked_fill(unseen, 0.0)
    out = F.scaled_dot_product_attention(
        q.view(rows, kv_heads, heads // kv_heads, dim),
        k,
        v,
        attn_mask=seen[:, None, None, :],
        scale=reach.scale,
    )
    return out.reshape(rows, heads, dim)


def prefill_reference(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    blocks: torch.Tensor,
    start: int,
    reach: Reach,
) -> torch.Tensor:
    """Queries [tokens, heads, dim] at positions `start` … of one sequence with these blocks."""
    num_tokens, heads, _ = q.shape
    first = max(0, start - reach.window + 1) // keys.shape[3] if reach.window else 0
    offset, end = first * keys.shape[3], start + num_tokens
    k = gather_keys(keys, blocks[None, first:])[:, :, : end - offset].to(q.dtype)
    v = gather_values(values, blocks[None, first:])[:, :, : end - offset].to(q.dtype)
    mask = None
    if start > 0 or reach.window:
        at = torch.arange(offset, end, device=q.device)
        here = torch.arange(start, end, device=q.device)[:, None]
        mask = at <= here
        if reach.window:
            mask &= at > here - reach.window
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        k,
        v,
        attn_mask=mask,
        is_causal=mask is None,
        scale=reach.scale,
        enable_gqa=heads != k.shape[1],
    )
    return out[0].transpose(0, 1)


def prefill_chunks_reference(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    chunks: Chunks,
    reach: Reach,
) -> torch.Tensor:
    """As `FastKernels.paged_prefill`: one chunk after the other."""
    size, parts = keys.shape[3], []
    for index, (start, end) in enumerate(chunks.spans):
        first, blocks = chunks.first_rows[index], chunks.table[index, : -(-end // size)]
        rows = q[first : first + end - start]
        parts.append(prefill_reference(rows, keys, values, blocks, start, reach))
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def choose_native(
    device: torch.device,
    dtype: torch.dtype,
    head_dim: int,
    block_size: int,
    kv_dtype: torch.dtype | None = None,
    *,
    is_deterministic: bool = False,
) -> FastKernels | None:
    """The machine's own kernels, if they support its types and shapes."""
    if has_triton(device):
        kernels = triton_kernels(is_deterministic=is_deterministic)
        return kernels if head_dim >= 16 and not head_dim & head_dim - 1 else None
    if device.type != "cpu" or {dtype, kv_dtype or dtype} != {torch.float32}:
        return None
    part = NativeKernels.head_part
    if head_dim % part or not 2 * part <= head_dim <= 1024:
        return None
    if block_size != NativeKernels.block_size:
        return None
    return native_kernels()


@cache
def has_triton(device: torch.device) -> bool:
    """Whether Triton can run: it compiles only for GPUs, and is installed with the extra `gpu`."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None


@cache
def triton_kernels(*, is_deterministic: bool = False) -> FastKernels:
    """The Triton kernels, imported only if they can run."""
    module: Any = importlib.import_module("local_engine.kernels.triton_kernels")
    kernels: FastKernels = module.TritonKernels(is_deterministic=is_deterministic)
    return kernels
