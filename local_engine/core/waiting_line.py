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
    """Who may start next, and whom it passes although they came sooner, because they do not fit."""

    sequence: Sequence
    passed: list[Sequence]


class WaitingLine:
    """One queue per tier; decides order only, and takes no block."""

    def __init__(
        self,
        limits: Limits,
        *,
        is_over_share: Callable[[Sequence], bool],
        is_read_for: Callable[[Sequence], bool],
    ) -> None:
        """`is_over_share` says whether starting a sequence is more than its tenant may hold.

        `is_read_for` says whether another one is reading what it would read.
        """
        self._limits = limits
        self._is_read_for = is_read_for
        self._is_over_share = is_over_share
        self._queues: dict[Tier, deque[Sequence]] = {tier: deque() for tier in Tier}
        self._step_number = 0
        self._short_of_share: list[Sequence] = []
        self._full_tenants: set[str] = set()
        """Of this step: whose turn it was, had they not had to wait for their tenant's share."""
        self._turns: dict[str, Sequence] = {}
        """Who has been passed often enough, by tenant: nobody of its tenant starts before it."""

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for queue in self._queues.values() for sequence in queue)

    def join(self, sequence: Sequence) -> None:
        sequence.arrived_at_step = self._step_number
        self._queues[sequence.tier].append(sequence)

    def rejoin(self, sequence: Sequence) -> None:
        """Who was pushed back comes first, and is as old as it was."""
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
        """Who may start next: of its own tier, or whom it has waited long enough to pass.

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
        # Only a better tier's own may push others back for a place; who has aged takes a free one.
        if not is_place_free:
            return self._turn_of(first, [])
        return self._turn_of(oldest, []) if fits(oldest) else self._turn_of(first, [oldest])

    def _has_its_turn(self, sequence: Sequence) -> bool:
        """Whether as many of a better tier passed it as that weighs more."""
        return sequence.num_passed >= WEIGHTS[self.rank(sequence)] // WEIGHTS[sequence.tier]

    def _turn_of(self, starting: Sequence, passed: list[Sequence]) -> Turn:
        """Of its own tenant it also passes who waits for the share that it takes a part of."""
        short = (
            each
            for each in self._short_of_share
            if each.tenant == starting.tenant and each.tier > starting.tier
        )
        return Turn(starting, [*passed, *short])

    def _first_of(self, queue: Iterable[Sequence], tier: Tier, num_long: int) -> Sequence | None:
        """The first who may start. While a long prompt is being read, short ones pass the rest."""
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
                # Its tenant's next ones would hold the share for as long as there are any.
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
