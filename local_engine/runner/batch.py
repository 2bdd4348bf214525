"""A step as tensors: one flat row of tokens from many sequences, and where each one looks."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch

from local_engine.core.scheduler import Item, Step
from local_engine.core.sequence import PENDING
from local_engine.kernels.fast import FastKernels, HeadNorms
from local_engine.kernels.paged_attention import decode_reference, prefill_reference
from local_engine.kernels.reach import Reach
from local_engine.model.decoder import Turn
from local_engine.model.spec import ModelSpec
from local_engine.runner.kv_pool import KvPool


@dataclass(slots=True)
class FlatBatch:
    """Rows of single tokens first, then chunks; `rows` counts tokens from the batch's start."""

    items: list[Item]
    spans: list[tuple[int, int]]
    """From which position to which each item goes."""
    num_singles: int
    token_ids: torch.Tensor
    positions: torch.Tensor
    blocks: torch.Tensor
    offsets: torch.Tensor
    table: torch.Tensor
    lengths: torch.Tensor
    first_rows: list[int]
    scored_rows: torch.Tensor
    """Rows whose scores somebody asked for: the last of a sampled item, and its drafts'."""
    pending: list[tuple[int, str]] = field(default_factory=list)
    """Rows whose token the step before chooses, and of which sequence it is."""

    def fill(self, last_tokens: Mapping[str, int]) -> None:
        """Put in the tokens that were not known when the step was planned."""
        for row, name in self.pending:
            self.token_ids[row] = last_tokens.get(name, 0)

    def to(self, device: torch.device) -> "FlatBatch":
        """The same on a device; itself, if it is there."""
        if device.type == "cpu":
            return self
        moved = {
            name: getattr(self, name).pin_memory().to(device, non_blocking=True)
            for name in ("token_ids", "positions", "blocks", "offsets", "table", "lengths")
        }
        return replace(self, **moved, scored_rows=self.scored_rows.to(device))


def flatten(step: Step, block_size: int) -> FlatBatch:
    """Lay a step out in host memory, with placeholders where a token is not chosen yet."""
    items = sorted(step.items, key=lambda item: item.end - item.start > 1)
    token_ids: list[int] = []
    positions: list[int] = []
    blocks: list[int] = []
    first_rows: list[int] = []
    scored: list[int] = []
    pending: list[tuple[int, str]] = []
    width = max(len(item.sequence.block_ids) for item in items)
    rows: list[list[int]] = []
    for item in items:
        sequence, start, end = item.sequence, item.start, item.end
        first_rows.append(len(token_ids))
        token_ids += sequence.slice_known(start, end)
        if token_ids[-1] == PENDING:
            pending.append((len(token_ids) - 1, sequence.sequence_id))
        positions += range(start, end)
        held = sequence.block_ids
        rows.append([*held, *[0] * (width - len(held))])
        blocks += [held[at // block_size] for at in range(start, end)]
        if sequence.params.prompt_logprobs is not None and start < sequence.num_prompt_tokens:
            scored += range(first_rows[-1], len(token_ids))
        elif item.is_sampled:
            scored += range(len(token_ids) - 1 - item.num_drafts, len(token_ids))
    at = torch.tensor(positions)
    return FlatBatch(
        items=items,
        spans=[(item.start, item.end) for item in items],
        num_singles=sum(item.end - item.start == 1 for item in items),
        token_ids=torch.tensor(token_ids),
        positions=at,
        blocks=torch.tensor(blocks),
        offsets=at % block_size,
        table=torch.tensor(rows, dtype=torch.int32),
        lengths=torch.tensor([item.end for item in items], dtype=torch.int32),
        first_rows=first_rows,
        scored_rows=torch.tensor(scored, dtype=torch.long),
        pending=pending,
    )


class PagedAttention:
    """What the decoder calls in each layer: store new keys and values, look at all of them."""

    def __init__(
        self, spec: ModelSpec, pool: KvPool, batch: FlatBatch, native: FastKernels | None
    ) -> None:
        self._spec = spec
        self._pool = pool
        self._batch = batch
        self._native = native
        self._decode = decode_reference if native is None else native.paged_decode
        self._prefill = prefill_reference if native is None else native.paged_prefill
        self._singles = batch.table[: batch.num_singles].contiguous()
        self._lengths = batch.lengths[: batch.num_singles].contiguous()

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """[tokens, heads, dim] to [tokens, heads * dim]."""
        self._pool.write(layer, self._batch.blocks, self._batch.offsets, k, v)
        return self._look(layer, q)

    def fused(
        self, layer: int, qkv: torch.Tensor, norms: HeadNorms | None, turn: Turn
    ) -> torch.Tensor | None:
        """As `Attend.fused`; Gemma's norms are added to one and not for the compiled kernel."""
        if self._native is None or (norms is not None and self._spec.norm_is_offset):
            return None
        places = (self._batch.blocks, self._batch.offsets)
        pools = (self._pool.keys[layer], self._pool.values[layer])
        return self._look(layer, self._native.norm_turn_store(qkv, norms, turn, places, pools))

    def _look(self, layer: int, q: torch.Tensor) -> torch.Tensor:
        batch, pool = self._batch, self._pool
        keys, values = pool.keys[layer], pool.values[layer]
        reach = Reach(self._spec.attention_scale, self._spec.window_of(layer))
        num_singles = batch.num_singles
        parts = []
        if num_singles:
            singles = q[:num_singles]
            parts.append(self._decode(singles, keys, values, self._singles, self._lengths, reach))
        for index in range(num_singles, len(batch.spans)):
            (start, end), first = batch.spans[index], batch.first_rows[index]
            blocks = batch.table[index, : -(-end // pool.block_size)]
            rows = q[first : first + end - start]
            parts.append(self._prefill(rows, keys, values, blocks, start, reach))
        return torch.cat(parts).flatten(-2) if len(parts) > 1 else parts[0].flatten(-2)
