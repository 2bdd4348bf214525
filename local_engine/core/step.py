"""One step of the engine: what the scheduler plans and a runner computes."""

from dataclasses import dataclass, field

from local_engine.core.allocation import BlockCopy
from local_engine.core.sequence import Sequence


@dataclass(slots=True)
class Item:
    """Tokens `start` … `end` of one sequence in one step."""

    sequence: Sequence
    start: int
    end: int
    epoch: int
    num_drafts: int = 0
    is_sampled: bool = True
    """Whether the last token's scores are needed: the chunk reaches the last known token."""


@dataclass(slots=True)
class Step:
    """One unit of work for the runner: first the copies in order, then all items at once."""

    items: list[Item]
    copies: tuple[BlockCopy, ...] = ()
    preempted: list[Sequence] = field(default_factory=list)
    num_decode_tokens: int = 0

    @property
    def num_tokens(self) -> int:
        return sum(item.end - item.start for item in self.items)
