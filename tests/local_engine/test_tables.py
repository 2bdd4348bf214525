"""Rows of blocks that are kept between steps say what the sequences themselves say."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from local_engine.runner.tables import BlockTables


@dataclass
class Holder:
    """A sequence, as far as a table looks at it."""

    sequence_id: str
    epoch: int = 0
    block_ids: list[int] = field(default_factory=lambda: [1])

    def preempt(self) -> None:
        self.epoch += 1
        self.block_ids = [99]


changes = st.lists(
    st.tuples(st.integers(0, 39), st.sampled_from(["grow", "preempt", "free", "look"])),
    max_size=60,
)


@given(changes, st.integers(1, 20))
def test_a_row_begins_with_its_sequences_blocks(
    done: list[tuple[int, str]], step_blocks: int
) -> None:
    tables, number = BlockTables(), 0
    holders: Any = [Holder(str(name)) for name in range(40)]
    for name, change in done:
        holder = holders[name]
        if change == "grow":
            number += 1
            holder.block_ids += range(number, number + step_blocks)
        elif change == "preempt":
            holder.preempt()
        elif change == "free":
            tables.free(holder.sequence_id)
        else:
            some = holders[name : name + 20]
            found = tables.take(some)
            for row, one in zip(found, some, strict=True):
                assert row[: len(one.block_ids)].tolist() == one.block_ids
            assert found.shape[1] % 8 == 0


def test_a_freed_row_is_given_to_somebody_else() -> None:
    tables = BlockTables()
    for name in range(500):
        holder: Any = Holder(str(name))
        tables.take([holder])
        tables.free(holder.sequence_id)
        tables.free("nobody")
    assert len(tables._numbers) == 16
