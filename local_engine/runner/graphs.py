"""Decode steps of fixed sizes, recorded once and replayed: one launch instead of hundreds.

A recording reads its inputs from buffers that never move; unused rows are padding and write into
block 0, which belongs to no sequence. Steps that contain prompts are computed without recordings.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from local_engine.runner.batch import FlatBatch, sent


Forward = Callable[[FlatBatch], torch.Tensor]
# Computes a batch once and returns a function that computes it again, with the same buffers.
Record = Callable[[Forward, FlatBatch], Callable[[], torch.Tensor]]
# One number per row each, and its value in rows that are not used.
_FIELDS = {
    "token_ids": 0,
    "positions": 0,
    "blocks": 0,
    "offsets": 0,
    "lengths": 1,
    "sources": -1,
}
_SMALL = (1, 2, 4, 8)
_STEP = 16
_MOST = 256


def record_plainly(forward: Forward, batch: FlatBatch) -> Callable[[], torch.Tensor]:
    """No recording: buffers and padding as with one, on any device."""
    return lambda: forward(batch)


class CudaRecorder:
    """Recordings that share one pool of memory; the largest is made first."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, forward: Forward, batch: FlatBatch) -> Callable[[], torch.Tensor]:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            # Compilation and permanent allocations have to happen before the recording.
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
        # A batch's table ends in complete tiles of attention.
        self._fields = torch.zeros(
            (len(_FIELDS), self._sizes[-1]), dtype=torch.int32, device=device
        )
        self._fields[list(_FIELDS).index("lengths")] = 1
        self._fields[list(_FIELDS).index("sources")] = -1
        self._inputs = _blank(self._fields, -(-table_width // 8) * 8)
        self._plays = {
            size: record(forward, _first_rows(self._inputs, size)) for size in reversed(self._sizes)
        }

    def scores(self, batch: FlatBatch) -> torch.Tensor | None:
        """Scores of every row; `None` if there is no recording for the batch."""
        rows, width = batch.table.shape
        is_decode = batch.num_singles == len(batch.spans) == len(batch.scored_rows)
        if not is_decode or rows > self._sizes[-1] or width > self._inputs.table.shape[1]:
            return None
        size = next(size for size in self._sizes if size >= rows)
        self._put(batch, rows, width)
        self.num_played += 1
        return self._plays[size]()[:rows]

    def _put(self, batch: FlatBatch, rows: int, width: int) -> None:
        """Copy a batch into the buffers, in one piece; unused rows are padded."""
        inputs, most = self._inputs, self._sizes[-1]
        numbers = np.zeros(len(_FIELDS) * most + rows * width, np.int32)
        fields = numbers[: len(_FIELDS) * most].reshape(len(_FIELDS), most)
        for field, (name, padding) in zip(fields, _FIELDS.items(), strict=True):
            field[:rows] = getattr(batch, name).numpy()
            field[rows:] = padding
        numbers[fields.size :] = batch.table.numpy().ravel()
        arrived = sent(numbers, inputs.table.device)
        self._fields.copy_(arrived[: fields.size].view(fields.shape))
        inputs.table[:rows, :width].copy_(arrived[fields.size :].view(rows, width))


def graph_sizes(most: int) -> list[int]:
    """1, 2, 4, 8, 16 and on in steps of 16; the last one holds `most`."""
    sizes = [size for size in _SMALL if size < most]
    return [*sizes, *range(_STEP, most, _STEP), most] if most > _SMALL[-1] else [*sizes, most]


def _blank(fields: torch.Tensor, table_width: int) -> FlatBatch:
    """A batch of single tokens whose numbers are the rows of `fields`."""
    rows, device = fields.shape[1], fields.device
    return FlatBatch(
        items=[],
        spans=[(0, 1)] * rows,
        num_singles=rows,
        **dict(zip(_FIELDS, fields, strict=True)),
        table=torch.zeros((rows, table_width), dtype=torch.int32, device=device),
        first_rows=list(range(rows)),
        firsts=torch.zeros(1, dtype=torch.int32, device=device),
        scored_rows=torch.arange(rows, device=device),
    )


def _first_rows(batch: FlatBatch, rows: int) -> FlatBatch:
    """Views of the first rows: what is copied into the buffers is visible to every size."""
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
        sources=batch.sources[:rows],
        first_rows=batch.first_rows[:rows],
        scored_rows=batch.scored_rows[:rows],
    )
