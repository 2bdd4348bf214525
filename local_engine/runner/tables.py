"""Block tables of sequences, kept between steps as rows of numbers: only growth is written."""

from collections.abc import Sequence as Many

import numpy as np
import numpy.typing as npt

from local_engine.core.sequence import Sequence


# Rows end in complete tiles of attention, whichever kernel reads them.
_WIDTH_STEP = 8
_FIRST_ROWS = 16


class BlockTables:
    """One row for every sequence that has appeared and was not freed yet."""

    def __init__(self) -> None:
        self._numbers = np.zeros((_FIRST_ROWS, _WIDTH_STEP), np.int32)
        self._spare = list(range(_FIRST_ROWS))
        # Its row, its epoch and how many of its blocks are written: blocks are only added, until a
        # preempted sequence starts over.
        self._known: dict[str, tuple[int, int, int]] = {}

    def take(self, sequences: Many[Sequence]) -> npt.NDArray[np.int32]:
        """The blocks of sequences, [sequences, blocks]; beyond a row's own blocks, any block."""
        longest = max(len(sequence.block_ids) for sequence in sequences)
        width = -(-longest // _WIDTH_STEP) * _WIDTH_STEP
        if width > self._numbers.shape[1]:
            more = max(width, 2 * self._numbers.shape[1]) - self._numbers.shape[1]
            self._numbers = np.pad(self._numbers, ((0, 0), (0, more)))
        rows = [self._row_of(sequence) for sequence in sequences]
        found: npt.NDArray[np.int32] = self._numbers[rows, :width]
        return found

    def free(self, sequence_id: str) -> None:
        """Forget a sequence; unknown ones are ignored."""
        known = self._known.pop(sequence_id, None)
        if known is not None:
            self._spare.append(known[0])

    def _row_of(self, sequence: Sequence) -> int:
        blocks, known = sequence.block_ids, self._known.get(sequence.sequence_id)
        if known is not None and known[2] == len(blocks) and known[1] == sequence.epoch:
            return known[0]
        if known is None:
            known = (self._take_row(), sequence.epoch, 0)
        row, epoch, written = known
        if epoch != sequence.epoch:
            written = 0
        self._numbers[row, written : len(blocks)] = blocks[written:]
        self._known[sequence.sequence_id] = (row, sequence.epoch, len(blocks))
        return row

    def _take_row(self) -> int:
        if not self._spare:
            count = len(self._numbers)
            self._numbers = np.pad(self._numbers, ((0, count), (0, 0)))
            self._spare = list(range(count, 2 * count))
        return self._spare.pop()
