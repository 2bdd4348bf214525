"""A step as tensors: one flat row of tokens from many sequences, and the keys each one sees."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from local_engine.core.sequence import PENDING
from local_engine.core.step import Item, Step
from local_engine.kernels.fast import Chunks, FastKernels, HeadNorms
from local_engine.kernels.paged_attention import decode_reference, prefill_chunks_reference
from local_engine.kernels.reach import Reach
from local_engine.model.decoder import Turn
from local_engine.model.spec import ModelSpec
from local_engine.runner.kv_pool import KvPool
from local_engine.runner.tables import BlockTables


@dataclass(slots=True)
class FlatBatch:
    """Rows of single tokens first, then chunks; `rows` counts tokens from the batch's start."""

    items: list[Item]
    spans: list[tuple[int, int]]
    """The start and end position of each item."""
    num_singles: int
    token_ids: torch.Tensor
    positions: torch.Tensor
    blocks: torch.Tensor
    offsets: torch.Tensor
    table: torch.Tensor
    lengths: torch.Tensor
    first_rows: list[int]
    firsts: torch.Tensor
    """The first row of each chunk among the rows of all chunks, and finally their number."""
    sources: torch.Tensor
    """For each token, its row among the last chosen tokens, or -1 if it is in `token_ids`."""
    scored_rows: torch.Tensor
    """Rows whose scores are needed: the last of a sampled item, and those of its drafts."""
    pending: list[tuple[int, str]] = field(default_factory=list)
    """Rows whose token the previous step chooses, each with its sequence."""

    def fill(self, last_tokens: Mapping[str, int], on_device: Mapping[str, int]) -> None:
        """Put in the tokens that were not known when the step was planned, or their places."""
        token_ids, sources = self.token_ids.numpy(), self.sources.numpy()
        for row, name in self.pending:
            if (source := on_device.get(name)) is not None:
                token_ids[row], sources[row] = 0, source
            else:
                token_ids[row] = last_tokens.get(name, 0)

    def to(self, device: torch.device) -> "FlatBatch":
        """The same on a device, moved there in one piece; itself if it is there already."""
        if device.type == "cpu":
            return self
        parts = {name: getattr(self, name) for name in _TENSORS}
        moved = moved_together(list(parts.values()), device)
        found: dict[str, Any] = dict(zip(parts, moved, strict=True))
        return replace(self, **found)


_TENSORS = (
    *("token_ids", "positions", "blocks", "offsets"),
    *("table", "lengths", "firsts", "sources", "scored_rows"),
)


def sent(numbers: npt.NDArray[np.int32], device: torch.device) -> torch.Tensor:
    """The numbers on a device, by an asynchronous copy."""
    if device.type == "cpu":
        return torch.from_numpy(numbers)
    return torch.from_numpy(numbers).pin_memory().to(device, non_blocking=True)


def moved_together(parts: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """Integers of host memory as int32 on a device, sent in one piece."""
    numbers = [part.numpy().ravel() for part in parts]
    packed = sent(np.concatenate(numbers, dtype=np.int32, casting="same_kind"), device)
    pieces = torch.split(packed, [part.numel() for part in parts])
    return [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]


def flatten(step: Step, block_size: int, tables: BlockTables | None = None) -> FlatBatch:
    """Lay a step out in host memory, with placeholders for tokens not chosen yet."""
    singles = [item for item in step.items if item.end - item.start == 1]
    chunks = [item for item in step.items if item.end - item.start > 1]
    items = [*singles, *chunks]
    token_ids: list[int] = []
    first_rows: list[int] = []
    scored: list[int] = []
    pending: list[tuple[int, str]] = []
    for item in items:
        sequence, start, end = item.sequence, item.start, item.end
        first_rows.append(len(token_ids))
        token_ids += sequence.slice_known(start, end)
        if token_ids[-1] == PENDING:
            pending.append((len(token_ids) - 1, sequence.sequence_id))
        if sequence.params.prompt_logprobs is not None and start < sequence.num_prompt_tokens:
            scored += range(first_rows[-1], len(token_ids))
        elif item.is_sampled:
            scored += range(len(token_ids) - 1 - item.num_drafts, len(token_ids))
    table = (tables or BlockTables()).take([item.sequence for item in items])
    starts = np.array([item.start for item in items])
    ends = np.array([item.end for item in items])
    # For each token: its item, then its position, then the block that holds it.
    owners = np.repeat(np.arange(len(items)), ends - starts)
    at = np.arange(len(token_ids)) - np.array(first_rows)[owners] + starts[owners]
    num_singles = len(singles)
    firsts = [*first_rows[num_singles:], len(token_ids)]
    return FlatBatch(
        items=items,
        spans=[(item.start, item.end) for item in items],
        num_singles=num_singles,
        token_ids=torch.tensor(token_ids),
        positions=torch.from_numpy(at),
        blocks=torch.from_numpy(table[owners, at // block_size].astype(np.int64)),
        offsets=torch.from_numpy(at % block_size),
        table=torch.from_numpy(table),
        lengths=torch.from_numpy(ends.astype(np.int32)),
        first_rows=first_rows,
        firsts=torch.tensor(firsts, dtype=torch.int32) - firsts[0],
        sources=torch.full((len(token_ids),), -1),
        scored_rows=torch.tensor(scored, dtype=torch.long),
        pending=pending,
    )


class PagedAttention:
    """Called by the decoder in each layer: stores new keys and values, and attends to all."""

    def __init__(
        self, spec: ModelSpec, pool: KvPool, batch: FlatBatch, native: FastKernels | None
    ) -> None:
        self._spec = spec
        self._pool = pool
        self._batch = batch
        self._native = native
        self._decode = decode_reference if native is None else native.paged_decode
        self._prefill = prefill_chunks_reference if native is None else native.paged_prefill
        singles = batch.num_singles
        self._singles = batch.table[:singles].contiguous()
        self._lengths = batch.lengths[:singles]
        first = batch.first_rows[singles] if len(batch.spans) > singles else 0
        self._chunks = Chunks(
            spans=batch.spans[singles:],
            first_rows=[row - first for row in batch.first_rows[singles:]],
            table=batch.table[singles:],
            ends=batch.lengths[singles:],
            firsts=batch.firsts,
        )

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """[tokens, heads, dim] to [tokens, heads * dim]."""
        self._pool.write(layer, self._batch.blocks, self._batch.offsets, k, v)
        return self._look(layer, q)

    def fused(
        self, layer: int, qkv: torch.Tensor, norms: HeadNorms | None, turn: Turn
    ) -> torch.Tensor | None:
        """As `Attend.fused`; not for Gemma, whose norms add one to the scale."""
        if self._native is None or (norms is not None and self._spec.norm_is_offset):
            return None
        places = (self._batch.blocks, self._batch.offsets)
        pools = (self._pool.keys[layer], self._pool.values[layer])
        return self._look(layer, self._native.norm_turn_store(qkv, norms, turn, places, pools))

    def _look(self, layer: int, q: torch.Tensor) -> torch.Tensor:
        batch, pool = self._batch, self._pool
        keys, values = pool.keys[layer], pool.values[layer]
        reach = Reach(self._spec.attention_scale, self._spec.window_of(layer))
        singles, parts = batch.num_singles, []
        if singles:
            found = self._decode(q[:singles], keys, values, self._singles, self._lengths, reach)
            parts.append(found)
        if self._chunks.spans:
            parts.append(self._prefill(q[singles:], keys, values, self._chunks, reach))
        return torch.cat(parts).flatten(-2) if len(parts) > 1 else parts[0].flatten(-2)
