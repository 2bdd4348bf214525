"""The queue of sequences that wait to start, and the order in which they do.

A sequence counts as its own tier, and as a better one once it has waited long. Within that tier
others may pass it while it does not fit, but not for ever. Starts, too, are shared between the
tiers by weight.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from local_engine.core.limits import Limits
from local_engine.core.sequence import Sequence
from local_engine.core.tiers import WEIGHTS, Tier


class Turn(NamedTuple):
    """The sequence to start next, and earlier ones that it passes because they do not fit."""

    sequence: Sequence
    passed: list[Sequence]


class WaitingLine:
    """One queue per tier; decides only the order, and takes no blocks."""

    def __init__(
        self,
        limits: Limits,
        *,
        is_over_share: Callable[[Sequence], bool],
        is_read_for: Callable[[Sequence], bool],
    ) -> None:
        """`is_over_share` says whether starting a sequence would exceed its tenant's share.

        `is_read_for` says whether another sequence is reading the same prefix already.
        """
        self._limits = limits
        self._is_read_for = is_read_for
        self._is_over_share = is_over_share
        self._queues: dict[Tier, deque[Sequence]] = {tier: deque() for tier in Tier}
        self._step_number = 0
        self._short_of_share: list[Sequence] = []
        self._full_tenants: set[str] = set()
        """In this step: tenants whose next sequence waits for room in their share."""
        self._turns: dict[str, Sequence] = {}
        """By tenant, the sequence that was passed often enough: none of its tenant goes before."""

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for queue in self._queues.values() for sequence in queue)

    def join(self, sequence: Sequence) -> None:
        sequence.arrived_at_step = self._step_number
        self._queues[sequence.tier].append(sequence)

    def rejoin(self, sequence: Sequence) -> None:
        """Put a preempted sequence at the front; it keeps its age."""
        self._queues[sequence.tier].appendleft(sequence)

    def leave(self, sequence: Sequence) -> None:
        self._queues[sequence.tier].remove(sequence)

    def begin_step(self) -> None:
        self._step_number += 1
        self._full_tenants.clear()
        self._turns.clear()
        for sequence in self:
            if sequence.num_passed and self._has_its_turn(sequence):
                self._turns.setdefault(sequence.tenant, sequence)

    def rank(self, sequence: Sequence) -> Tier:
        """The tier a sequence counts as: its own, or better once it has waited long."""
        waited = self._step_number - sequence.arrived_at_step
        return Tier(max(0, sequence.tier - waited // self._limits.ageing_steps))

    def next(
        self, tier: Tier, num_long: int, *, is_place_free: bool, fits: Callable[[Sequence], bool]
    ) -> Turn | None:
        """The sequence to start next in a tier: one of its own, or one that aged into it.

        `num_long` long prompts are being read.
        """
        self._short_of_share.clear()
        found = [self._first_of(queue, tier, num_long) for queue in self._queues.values()]
        candidates = [sequence for sequence in found if sequence is not None]
        if not candidates:
            return None
        first = candidates[0]
        oldest = min(candidates, key=lambda each: each.arrived_at_step)
        if oldest is first or self._has_its_turn(oldest):
            return self._turn_of(oldest, [])
        # Only a better tier's own may preempt others for a place; an aged one takes a free one.
        if not is_place_free:
            return self._turn_of(first, [])
        return self._turn_of(oldest, []) if fits(oldest) else self._turn_of(first, [oldest])

    def _has_its_turn(self, sequence: Sequence) -> bool:
        """Whether it was passed as often as its rank's weight is a multiple of its tier's."""
        return sequence.num_passed >= WEIGHTS[self.rank(sequence)] // WEIGHTS[sequence.tier]

    def _turn_of(self, starting: Sequence, passed: list[Sequence]) -> Turn:
        """It also passes lower tiers of its own tenant that wait for room in the share."""
        short = (
            each
            for each in self._short_of_share
            if each.tenant == starting.tenant and each.tier > starting.tier
        )
        return Turn(starting, [*passed, *short])

    def _first_of(self, queue: Iterable[Sequence], tier: Tier, num_long: int) -> Sequence | None:
        """The first that may start. While a long prompt is read, short ones pass the others."""
        limits, first_long = self._limits, None
        for sequence in queue:
            if self.rank(sequence) is not tier or not sequence.is_grammar_ready:
                continue
            turn = self._turns.get(sequence.tenant, sequence)
            if turn is not sequence and self.rank(turn) <= tier:
                continue
            if sequence.tenant in self._full_tenants:
                continue
            if self._is_over_share(sequence):
                # Otherwise its tenant's later sequences could keep the share full for ever.
                self._full_tenants.add(sequence.tenant)
                self._short_of_share.append(sequence)
                continue
            if self._is_read_for(sequence):
                continue
            if sequence.num_known <= limits.long_prompt or num_long == 0:
                return sequence
            if first_long is None and num_long < limits.max_long_prefills:
                first_long = sequence
        return first_long
