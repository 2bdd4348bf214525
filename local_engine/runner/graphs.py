"""Decode steps of fixed sizes, recorded once and played again: one launch instead of hundreds.

A recording reads its inputs from buffers that never move; rows that nobody asked for are padded and
write into block 0, which belongs to nobody. Steps with prompts in them are computed as ever.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from local_engine.runner.batch import FlatBatch


Forward = Callable[[FlatBatch], torch.Tensor]
# Computes a batch once and returns what computes it again, from the same buffers into the same.
Record = Callable[[Forward, FlatBatch], Callable[[], torch.Tensor]]
_SMALL = (1, 2, 4, 8)
_STEP = 16
_MOST = 256


def record_plainly(forward: Forward, batch: FlatBatch) -> Callable[[], torch.Tensor]:
    """No recording at all: buffers and padding as they would be, on any device."""
    return lambda: forward(batch)


class CudaRecorder:
    """Recordings that share one pool of memory; the largest is made first."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, forward: Forward, batch: FlatBatch) -> Callable[[], torch.Tensor]:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            # What compiles or allocates for good does it before the recording.
            forward(batch)
            forward(batch)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            out = forward(batch)

        def play() -> torch.Tensor:
            graph.replay()
            return out

        return play


class DecodeGraphs:
    """Recordings for batches of single tokens, up to `most` rows and `table_width` blocks each."""

    def __init__(
        self,
        forward: Forward,
        record: Record,
        *,
        most: int,
        table_width: int,
        device: torch.device,
    ) -> None:
        self.num_played = 0
        self._sizes = graph_sizes(min(most, _MOST))
        self._inputs = _blank(self._sizes[-1], table_width, device)
        self._plays = {
            size: record(forward, _first_rows(self._inputs, size)) for size in reversed(self._sizes)
        }

    def scores(self, batch: FlatBatch) -> torch.Tensor | None:
        """Scores of every row; `None` if the batch is not one that was recorded."""
        rows, width = batch.table.shape
        is_decode = batch.num_singles == len(batch.spans) == len(batch.scored_rows)
        if not is_decode or rows > self._sizes[-1] or width > self._inputs.table.shape[1]:
            return None
        size = next(size for size in self._sizes if size >= rows)
        inputs = self._inputs
        for name in ("token_ids", "positions", "blocks", "offsets"):
            buffer: torch.Tensor = getattr(inputs, name)
            buffer[rows:size] = 0
            buffer[:rows].copy_(getattr(batch, name))
        inputs.table[:rows, :width].copy_(batch.table)
        inputs.table[rows:size, 0] = 0
        inputs.lengths[:rows].copy_(batch.lengths)
        inputs.lengths[rows:size] = 1
        self.num_played += 1
        return self._plays[size]()[:rows]


def graph_sizes(most: int) -> list[int]:
    """1, 2, 4, 8, 16 and on in steps of 16; the last one holds `most`."""
    sizes = [size for size in _SMALL if size < most]
    return [*sizes, *range(_STEP, most, _STEP), most] if most > _SMALL[-1] else [*sizes, most]


def _blank(rows: int, table_width: int, device: torch.device) -> FlatBatch:
    def whole(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    return FlatBatch(
        items=[],
        spans=[(0, 1)] * rows,
        num_singles=rows,
        token_ids=whole(rows),
        positions=whole(rows),
        blocks=whole(rows),
        offsets=whole(rows),
        table=whole(rows, table_width, dtype=torch.int32),
        lengths=whole(rows, dtype=torch.int32) + 1,
        first_rows=list(range(rows)),
        scored_rows=torch.arange(rows, device=device),
    )


def _first_rows(batch: FlatBatch, rows: int) -> FlatBatch:
    """Views of the first rows: what is copied into the buffers is seen by every size."""
    return replace(
        batch,
        spans=batch.spans[:rows],
        num_singles=rows,
        token_ids=batch.token_ids[:rows],
        positions=batch.positions[:rows],
        blocks=batch.blocks[:rows],
        offsets=batch.offsets[:rows],
        table=batch.table[:rows],
        lengths=batch.lengths[:rows],
        first_rows=batch.first_rows[:rows],
        scored_rows=batch.scored_rows[:rows],
    )
