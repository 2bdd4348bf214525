"""Where a step finds the tokens that the step before it chooses."""

from typing import Any

from local_engine.core.sequence import Sequence
from local_engine.core.step import Item, Step
from local_engine.runner.batch import flatten
from local_engine.sampling_params import SamplingParams


def running_ahead(name: str) -> Any:
    """A decode item whose token is still being computed."""
    sequence = Sequence(name, [5, 6, 7], SamplingParams(), context_window=64)
    sequence.block_ids, sequence.num_pending = [4], 1
    return Item(sequence, 3, 4, sequence.epoch)


def test_a_pending_token_is_read_where_it_was_chosen_or_filled_in() -> None:
    known = Sequence("known", [5, 6, 7, 8], SamplingParams(), context_window=64)
    known.block_ids = [2]
    items = [running_ahead("far"), Item(known, 3, 4, 0), running_ahead("here")]
    batch = flatten(Step([*items, running_ahead("gone")]), block_size=16)
    batch.fill({"here": 11, "far": 12}, {"far": 3, "known": 2})
    assert batch.sources.tolist() == [3, -1, -1, -1]
    assert batch.token_ids.tolist() == [0, 8, 11, 0]
    assert batch.positions.tolist() == [3, 3, 3, 3]
    assert batch.blocks.tolist() == [4, 2, 4, 4]
