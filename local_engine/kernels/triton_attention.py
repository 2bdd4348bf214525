"""Paged attention in Triton: split-KV decode with a join, and prefill of many prompts at once.

The heads that share a key/value head are folded into the rows of one product. Decode splits a long
context into segments, each of which keeps its maximum, its sum and its weighted values; a second
kernel joins them. Where numbers must not depend on the batch, a sequence is cut by its own length
alone. A tile of tokens is gathered from several blocks; weights are powers of two. Products take
the queries' type, for tensor cores; fp8 keys and values are widened to it. On the interpreter
everything is float32 or float16: bfloat16 is silently wrong there.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch.nn import functional as F

from local_engine.kernels.fast import Chunks
from local_engine.kernels.reach import Reach


# More of them keep more of the machine busy with one long context; each adds a row to combine.
NUM_SEGMENTS = 16
# By the bit length of the number of rows: 1; 2 and 3; from 4; 8; 16; 32; 64; 128 on.
_SEGMENT_TOKENS = (128, 128, 128, 256, 256, 512, 1024, 2048)
# Chunks among which a program searches for its own: one compiled kernel for all steps.
_CHUNKS = 512
# The alignment of these changes from step to step; nothing is recompiled for that.
_PLACES = ["table", "lengths", "ends", "firsts"]
_LOG2_E = 1.4426950408889634
_LOWEST = tl.constexpr(-1e30)


@dataclass(frozen=True, slots=True)
class Tiling:
    """How one kernel cuts its work: tokens and queries per tile, loads ahead, warps."""

    tokens: int
    rows: int = 16
    stages: int = 3
    warps: int = 4
    segment_tokens: int = 256
    """In decode, one program has at least this many tokens of a context."""


def decode_tiling(dtype: torch.dtype, dim: int, rows: int) -> Tiling:
    """What was fastest on an H200; for float32 or wide heads, what fits its memory.

    Few rows are cut into more segments, so that all of the machine works on them; with 0 rows the
    cut is the same for any number of them.
    """
    tokens = 256 if rows == 0 else _SEGMENT_TOKENS[min(rows.bit_length(), len(_SEGMENT_TOKENS)) - 1]
    if dtype.itemsize > 2 or dim > 128:
        return Tiling(tokens=32, stages=2, segment_tokens=tokens)
    return Tiling(tokens=64, stages=3, warps=2, segment_tokens=tokens)


def prefill_tiling(dtype: torch.dtype, dim: int) -> Tiling:
    """As `decode_tiling`."""
    if dtype.itemsize > 2 or dim > 128:
        return Tiling(tokens=32, rows=64, stages=2)
    return Tiling(tokens=64, rows=256, stages=2, warps=8)


@triton.jit
def _tile(
    keys, values, table, number, known, at_dim, at_token, dtype: tl.constexpr,
    KV_HEADS: tl.constexpr, BLOCK: tl.constexpr, IS_CUT: tl.constexpr,
):  # fmt: skip
    """The tile's tokens, their keys [dim, tokens] and their values [tokens, dim]."""
    token = number * at_token.shape[0] + at_token
    stride: tl.constexpr = KV_HEADS * at_dim.shape[0] * BLOCK
    base = tl.load(table + token // BLOCK).to(tl.int64) * stride
    inside = token % BLOCK
    # The compiler cannot know this of values it reads: a block's tokens lie side by side.
    in_keys = tl.max_contiguous(tl.multiple_of(base + inside, BLOCK), BLOCK)
    in_values = tl.multiple_of(base + inside * at_dim.shape[0], BLOCK)
    k = tl.load(keys + in_keys[None, :] + at_dim[:, None] * BLOCK)
    at_values = values + in_values[:, None] + at_dim[None, :]
    if IS_CUT:
        # What lies beyond the length may be anything, NaN included, which a weight of 0 does not
        # cancel.
        v = tl.load(at_values, mask=(token < known)[:, None], other=0.0)
    else:
        v = tl.load(at_values)
    return token, k.to(dtype), v.to(dtype)


@triton.jit
def _weigh(
    query, k, v, is_seen, scale, most, total, acc, IS_MASKED: tl.constexpr
):  # fmt: skip
    """Add one more tile by an online softmax, Milakov and Gimelshein (2018), in base two."""
    scores = tl.dot(query, k, input_precision="ieee") * scale
    if IS_MASKED:
        scores = tl.where(is_seen, scores, _LOWEST)
    new_most = tl.maximum(most, tl.max(scores, axis=1))
    weights = tl.exp2(scores - new_most[:, None])
    if IS_MASKED:
        # As long as nothing is visible at all, all scores are equal.
        weights = tl.where(is_seen, weights, 0.0)
    kept = tl.exp2(most - new_most)
    total = total * kept + tl.sum(weights, axis=1)
    acc = tl.dot(weights.to(v.dtype), v, acc * kept[:, None], input_precision="ieee")
    return new_most, total, acc


@triton.jit
def _share(
    length, window, TOKENS: tl.constexpr, SEGMENTS: tl.constexpr, LEAST: tl.constexpr
):  # fmt: skip
    """A context's first tile, its end, how many tiles a segment has, and how many segments."""
    first = tl.where(window > 0, tl.maximum(length - window, 0), 0) // TOKENS
    end = tl.cdiv(length, TOKENS)
    tiles = tl.maximum(tl.cdiv(end - first, SEGMENTS), LEAST)
    return first, end, tiles, tl.cdiv(end - first, tiles)


@triton.jit(do_not_specialize=["window", "table_width"], do_not_specialize_on_alignment=_PLACES)
def _decode_segment(
    q, keys, values, table, lengths, sums, highest, totals, out,
    scale, window, table_width,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, TOKENS: tl.constexpr, SEGMENTS: tl.constexpr, LEAST: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    row, kv_head, segment = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + row)
    first, end, tiles, used = _share(length, window, TOKENS, SEGMENTS, LEAST)
    if segment >= used:
        return
    group: tl.constexpr = HEADS // KV_HEADS
    at_row, at_dim, at_token = tl.arange(0, ROWS), tl.arange(0, DIM), tl.arange(0, TOKENS)
    head = row * HEADS + kv_head * group + at_row
    is_head = at_row < group
    mask = is_head[:, None]
    query = tl.load(q + head[:, None] * DIM + at_dim[None, :], mask=mask, other=0.0)
    table += row * table_width
    keys += kv_head * DIM * BLOCK
    values += kv_head * DIM * BLOCK
    most = tl.full((ROWS,), _LOWEST, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, DIM), tl.float32)
    begin = first + segment * tiles
    for tile in tl.range(begin, tl.minimum(begin + tiles, end), num_stages=STAGES):
        token, k, v = _tile(
            keys, values, table, tile, length, at_dim, at_token, query.dtype,
            KV_HEADS=KV_HEADS, BLOCK=BLOCK, IS_CUT=True,
        )  # fmt: skip
        is_seen = (token < length) & ((window == 0) | (token >= length - window))
        most, total, acc = _weigh(
            query, k, v, is_seen[None, :], scale, most, total, acc, IS_MASKED=True
        )
    if used == 1:
        answer = (acc / total[:, None]).to(out.dtype.element_ty)
        tl.store(out + head[:, None] * DIM + at_dim[None, :], answer, mask=mask)
    else:
        at = head * SEGMENTS + segment
        tl.store(highest + at, most, mask=is_head)
        tl.store(totals + at, total, mask=is_head)
        tl.store(sums + at[:, None] * DIM + at_dim[None, :], acc, mask=mask)


@triton.jit(do_not_specialize=["window"], do_not_specialize_on_alignment=["lengths"])
def _join_segments(
    sums, highest, totals, lengths, out, window,
    HEADS: tl.constexpr, DIM: tl.constexpr, TOKENS: tl.constexpr, SEGMENTS: tl.constexpr,
    LEAST: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    _, _, _, used = _share(tl.load(lengths + row), window, TOKENS, SEGMENTS, LEAST)
    if used == 1:
        return
    at = row * HEADS + head
    segment, at_dim = tl.arange(0, SEGMENTS), tl.arange(0, DIM)
    is_used = segment < used
    most = tl.load(highest + at * SEGMENTS + segment, mask=is_used, other=_LOWEST)
    total = tl.load(totals + at * SEGMENTS + segment, mask=is_used, other=0.0)
    share = tl.exp2(most - tl.max(most, axis=0))
    parts = tl.load(
        sums + (at * SEGMENTS + segment)[:, None] * DIM + at_dim[None, :],
        mask=is_used[:, None], other=0.0,
    )  # fmt: skip
    joined = tl.sum(parts * share[:, None], axis=0) / tl.sum(total * share, axis=0)
    tl.store(out + at * DIM + at_dim, joined.to(out.dtype.element_ty))


def decode_triton(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    reach: Reach,
    tiling: Tiling | None = None,
) -> torch.Tensor:
    """As `paged_attention.decode_reference`; the head dimension is a power of two."""
    rows, heads, dim = q.shape
    kv_heads, block = keys.shape[1], keys.shape[3]
    tiling = tiling or decode_tiling(q.dtype, dim, rows)
    table = _widened(table, tiling.tokens // block)
    q = q.contiguous()
    sums = torch.empty((rows, heads, NUM_SEGMENTS, dim), device=q.device, dtype=torch.float32)
    highest = torch.empty((rows, heads, NUM_SEGMENTS), device=q.device, dtype=torch.float32)
    totals = torch.empty_like(highest)
    out = torch.empty_like(q)
    least = max(1, tiling.segment_tokens // tiling.tokens)
    # A product needs at least 16 rows on tensor cores; unused ones are masked.
    padded = max(16, triton.next_power_of_2(heads // kv_heads))
    _decode_segment[rows, kv_heads, NUM_SEGMENTS](
        q, keys, values, table, lengths, sums, highest, totals, out,
        reach.scale * _LOG2_E, reach.window, table.shape[1],
        HEADS=heads, KV_HEADS=kv_heads, DIM=dim, BLOCK=block, ROWS=padded, TOKENS=tiling.tokens,
        SEGMENTS=NUM_SEGMENTS, LEAST=least, STAGES=tiling.stages, num_warps=tiling.warps,
    )  # fmt: skip
    _join_segments[rows, heads](
        sums, highest, totals, lengths, out, reach.window,
        HEADS=heads, DIM=dim, TOKENS=tiling.tokens, SEGMENTS=NUM_SEGMENTS, LEAST=least,
    )  # fmt: skip
    return out


@triton.jit(
    do_not_specialize=["num_chunks", "num_tiles", "window", "table_width"],
    do_not_specialize_on_alignment=_PLACES,
)
def _prefill(
    q, keys, values, table, ends, firsts, out, num_chunks, num_tiles, scale, window, table_width,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, TOKENS: tl.constexpr, CHUNKS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    group: tl.constexpr = HEADS // KV_HEADS
    queries: tl.constexpr = ROWS // group
    kv_head = tl.program_id(1)
    # A prompt's last queries see the most: they start first, so that nothing waits for them.
    tile = num_tiles - 1 - tl.program_id(0)
    # A chunk's tiles begin at the tile of its first row, plus one for each chunk before it.
    at_chunk = tl.arange(0, CHUNKS)
    rows_before = tl.load(firsts + at_chunk, mask=at_chunk < num_chunks, other=1 << 30)
    chunk = tl.sum((rows_before // queries + at_chunk <= tile).to(tl.int32), axis=0) - 1
    first_row, next_row = tl.load(firsts + chunk), tl.load(firsts + chunk + 1)
    end = tl.load(ends + chunk)
    start = end - (next_row - first_row)
    first_query = (tile - first_row // queries - chunk) * queries
    if start + first_query >= end:
        return
    at_row, at_dim, at_token = tl.arange(0, ROWS), tl.arange(0, DIM), tl.arange(0, TOKENS)
    here = start + first_query + at_row // group
    is_row = (here < end) & (at_row < queries * group)
    head = kv_head * group + at_row % group
    place = ((first_row + first_query + at_row // group) * HEADS + head).to(tl.int64) * DIM
    query = tl.load(q + place[:, None] + at_dim[None, :], mask=is_row[:, None], other=0.0)
    table += chunk.to(tl.int64) * table_width
    keys += kv_head * DIM * BLOCK
    values += kv_head * DIM * BLOCK
    most = tl.full((ROWS,), _LOWEST, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, DIM), tl.float32)
    last = tl.minimum(start + first_query + queries, end)
    first_tile = tl.where(window > 0, tl.maximum(start + first_query - window + 1, 0), 0) // TOKENS
    # Every query of this tile sees all tokens before here, if there is no window.
    num_whole = tl.where(window > 0, first_tile, (start + first_query + 1) // TOKENS)
    for number in tl.range(first_tile, num_whole, num_stages=STAGES):
        _, k, v = _tile(
            keys, values, table, number, last, at_dim, at_token, query.dtype,
            KV_HEADS=KV_HEADS, BLOCK=BLOCK, IS_CUT=False,
        )  # fmt: skip
        most, total, acc = _weigh(query, k, v, is_row, scale, most, total, acc, IS_MASKED=False)
    for number in tl.range(num_whole, tl.cdiv(last, TOKENS), num_stages=1):
        token, k, v = _tile(
            keys, values, table, number, last, at_dim, at_token, query.dtype,
            KV_HEADS=KV_HEADS, BLOCK=BLOCK, IS_CUT=True,
        )  # fmt: skip
        is_seen = token[None, :] <= here[:, None]
        is_seen &= (window == 0) | (token[None, :] > here[:, None] - window)
        most, total, acc = _weigh(query, k, v, is_seen, scale, most, total, acc, IS_MASKED=True)
    answer = (acc / tl.maximum(total, 1e-30)[:, None]).to(out.dtype.element_ty)
    tl.store(out + place[:, None] + at_dim[None, :], answer, mask=is_row[:, None])


def prefill_triton(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    chunks: Chunks,
    reach: Reach,
    tiling: Tiling | None = None,
) -> torch.Tensor:
    """Each chunk as by `paged_attention.prefill_reference`, all of them in one launch."""
    num_rows, heads, dim = q.shape
    kv_heads, block = keys.shape[1], keys.shape[3]
    tiling = tiling or prefill_tiling(q.dtype, dim)
    table = _widened(chunks.table, tiling.tokens // block)
    q, out = q.contiguous(), torch.empty_like(q)
    group, num_chunks = heads // kv_heads, len(chunks.spans)
    rows = max(tiling.rows, triton.next_power_of_2(group))
    num_tiles = num_rows // (rows // group) + num_chunks
    places = max(_CHUNKS, triton.next_power_of_2(num_chunks))
    _prefill[num_tiles, kv_heads](
        q, keys, values, table, chunks.ends, chunks.firsts, out,
        num_chunks, num_tiles, reach.scale * _LOG2_E, reach.window, table.shape[1],
        HEADS=heads, KV_HEADS=kv_heads, DIM=dim, BLOCK=block, ROWS=rows, TOKENS=tiling.tokens,
        CHUNKS=places, STAGES=tiling.stages, num_warps=tiling.warps,
    )  # fmt: skip
    return out


def _widened(table: torch.Tensor, blocks: int) -> torch.Tensor:
    """Rows of complete tiles: what a tile reads beyond a sequence's blocks is block 0."""
    missing = -table.shape[1] % max(blocks, 1)
    return F.pad(table, (0, missing)) if missing else table.contiguous()
