"""A device that works on by itself, played on a CPU: tokens are not to be had before they are asked
for, and then only in the order in which steps were launched."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from local_engine.runner.timeline import Mark


@dataclass(frozen=True)
class LateMark:
    number: int

    def seconds_to(self, later: Mark) -> float:
        assert isinstance(later, LateMark)
        assert later.number > self.number, "a step ends after it began"
        return 0.001 * (later.number - self.number)


class LateTimeline:
    """Computes at once, as a CPU does, and keeps the tokens to itself."""

    works_on = True

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.num_under_way = 0
        self.most_under_way = 0
        """Of how many steps tokens were under way at the same time, at the most."""
        self.is_lost = False

    def mark(self) -> Mark:
        return LateMark(next(self._numbers))

    def sending(self, parts: list[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
        # The places are written over by the step after: what travels is a copy.
        travelling = [part.clone() for part in parts]
        self.num_under_way += 1
        self.most_under_way = max(self.most_under_way, self.num_under_way)

        def here() -> list[torch.Tensor]:
            self.num_under_way -= 1
            return travelling

        return here

    def catch_up(self) -> None:
        if self.is_lost:
            raise RuntimeError("an illegal memory access was encountered")
