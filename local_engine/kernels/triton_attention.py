"""Paged attention in Triton: split-KV decode with a reduction, and prefill by blocks of queries.

The heads that share a key/value head are folded into the rows of one product. Decode splits long
contexts into a fixed number of segments, so that a sequence's numbers do not depend on the batch;
each segment keeps its maximum, its sum and its weighted values, and a second kernel joins them.
Products take the queries' type, for tensor cores; fp8 keys and values are widened to it.
On the interpreter everything is float32 or float16: bfloat16 is wrong there, silently.
"""

import torch
import triton
import triton.language as tl

from local_engine.kernels.reach import Reach


NUM_SEGMENTS = 8


@triton.jit
def _decode_segment(
    q, keys, values, table, lengths, sums, highest, totals,
    scale, window, table_width,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, SEGMENTS: tl.constexpr,
):  # fmt: skip
    row, kv_head, segment = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    group: tl.constexpr = HEADS // KV_HEADS
    at_row, at_dim, at_token = tl.arange(0, ROWS), tl.arange(0, DIM), tl.arange(0, BLOCK)
    head = kv_head * group + at_row
    is_head = at_row < group
    length = tl.load(lengths + row)
    first = tl.where(window > 0, tl.maximum(length - window, 0), 0)
    num_blocks = tl.cdiv(length, BLOCK)
    per_segment = tl.cdiv(num_blocks, SEGMENTS)
    query = tl.load(
        q + (row * HEADS + head)[:, None] * DIM + at_dim[None, :], mask=is_head[:, None], other=0.0
    )
    most = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, DIM), tl.float32)
    number = segment * per_segment
    end = tl.minimum(number + per_segment, num_blocks)
    while number < end:
        block = tl.load(table + row * table_width + number).to(tl.int64)
        base = (block * KV_HEADS + kv_head) * DIM * BLOCK
        k = tl.load(keys + base + at_dim[:, None] * BLOCK + at_token[None, :]).to(query.dtype)
        v = tl.load(values + base + at_token[:, None] * DIM + at_dim[None, :]).to(query.dtype)
        position = number * BLOCK + at_token
        is_seen = (position < length) & (position >= first)
        # What lies beyond the length may be anything, NaN included.
        k = tl.where(is_seen[None, :], k, 0.0)
        v = tl.where(is_seen[:, None], v, 0.0)
        scores = tl.where(is_seen[None, :], tl.dot(query, k, input_precision="ieee") * scale, -1e30)
        new_most = tl.maximum(most, tl.max(scores, axis=1))
        kept = tl.exp(most - new_most)
        weights = tl.where(is_seen[None, :], tl.exp(scores - new_most[:, None]), 0.0)
        total = total * kept + tl.sum(weights, axis=1)
        acc = acc * kept[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        most = new_most
        number += 1
    at = (row * HEADS + head) * SEGMENTS + segment
    tl.store(highest + at, most, mask=is_head)
    tl.store(totals + at, total, mask=is_head)
    tl.store(sums + at[:, None] * DIM + at_dim[None, :], acc, mask=is_head[:, None])


@triton.jit
def _join_segments(
    sums, highest, totals, out, DIM: tl.constexpr, SEGMENTS: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0)
    segment, at_dim = tl.arange(0, SEGMENTS), tl.arange(0, DIM)
    most = tl.load(highest + at * SEGMENTS + segment)
    total = tl.load(totals + at * SEGMENTS + segment)
    share = tl.exp(most - tl.max(most, axis=0))
    parts = tl.load(sums + (at * SEGMENTS + segment)[:, None] * DIM + at_dim[None, :])
    joined = tl.sum(parts * share[:, None], axis=0) / tl.sum(total * share, axis=0)
    tl.store(out + at * DIM + at_dim, joined.to(out.dtype.element_ty))


def decode_triton(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    reach: Reach,
) -> torch.Tensor:
    """As `paged_attention.decode_reference`; the head dimension is a power of two."""
    rows, heads, dim = q.shape
    kv_heads, block = keys.shape[1], keys.shape[3]
    q = q.contiguous()
    sums = torch.empty((rows, heads, NUM_SEGMENTS, dim), device=q.device, dtype=torch.float32)
    highest = torch.empty((rows, heads, NUM_SEGMENTS), device=q.device, dtype=torch.float32)
    totals = torch.empty_like(highest)
    out = torch.empty_like(q)
    # A product needs at least 16 rows on tensor cores; unused ones are masked.
    padded = max(16, triton.next_power_of_2(heads // kv_heads))
    _decode_segment[rows, kv_heads, NUM_SEGMENTS](
        q, keys, values, table, lengths, sums, highest, totals,
        reach.scale, reach.window, table.shape[1],
        HEADS=heads, KV_HEADS=kv_heads, DIM=dim, BLOCK=block, ROWS=padded, SEGMENTS=NUM_SEGMENTS,
    )  # fmt: skip
    _join_segments[(rows * heads,)](sums, highest, totals, out, DIM=dim, SEGMENTS=NUM_SEGMENTS)
    return out


@triton.jit
def _prefill(
    q, keys, values, blocks, out, start, num_tokens, scale, window,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    group: tl.constexpr = HEADS // KV_HEADS
    tokens: tl.constexpr = ROWS // group
    at_row, at_dim, at_token = tl.arange(0, ROWS), tl.arange(0, DIM), tl.arange(0, BLOCK)
    token = tile * tokens + at_row // group
    is_row = (token < num_tokens) & (at_row < tokens * group)
    row = token * HEADS + kv_head * group + at_row % group
    query = tl.load(q + row[:, None] * DIM + at_dim[None, :], mask=is_row[:, None], other=0.0)
    here = start + token
    most = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, DIM), tl.float32)
    last = tl.minimum(start + (tile + 1) * tokens, start + num_tokens)
    first = tl.where(window > 0, tl.maximum(start + tile * tokens - window + 1, 0), 0)
    number = first // BLOCK
    while number * BLOCK < last:
        base = (tl.load(blocks + number).to(tl.int64) * KV_HEADS + kv_head) * DIM * BLOCK
        k = tl.load(keys + base + at_dim[:, None] * BLOCK + at_token[None, :]).to(query.dtype)
        v = tl.load(values + base + at_token[:, None] * DIM + at_dim[None, :]).to(query.dtype)
        position = number * BLOCK + at_token
        is_used = position < last
        k = tl.where(is_used[None, :], k, 0.0)
        v = tl.where(is_used[:, None], v, 0.0)
        is_seen = position[None, :] <= here[:, None]
        is_seen &= (window == 0) | (position[None, :] > here[:, None] - window)
        scores = tl.where(is_seen, tl.dot(query, k, input_precision="ieee") * scale, -1e30)
        new_most = tl.maximum(most, tl.max(scores, axis=1))
        kept = tl.exp(most - new_most)
        weights = tl.where(is_seen, tl.exp(scores - new_most[:, None]), 0.0)
        total = total * kept + tl.sum(weights, axis=1)
        acc = acc * kept[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        most = new_most
        number += 1
    answer = (acc / tl.maximum(total, 1e-30)[:, None]).to(out.dtype.element_ty)
    tl.store(out + row[:, None] * DIM + at_dim[None, :], answer, mask=is_row[:, None])


def prefill_triton(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    blocks: torch.Tensor,
    start: int,
    reach: Reach,
) -> torch.Tensor:
    """As `paged_attention.prefill_reference`."""
    num_tokens, heads, dim = q.shape
    kv_heads, block = keys.shape[1], keys.shape[3]
    q, out = q.contiguous(), torch.empty_like(q)
    group = heads // kv_heads
    rows = max(16, triton.next_power_of_2(group) * 8)
    tiles = triton.cdiv(num_tokens, rows // group)
    _prefill[tiles, kv_heads](
        q, keys, values, blocks, out, start, num_tokens, reach.scale, reach.window,
        HEADS=heads, KV_HEADS=kv_heads, DIM=dim, BLOCK=block, ROWS=rows,
    )  # fmt: skip
    return out
