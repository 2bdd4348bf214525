"""Schedules which tokens each step computes: one loop without phases.

Every step hands out a token budget so that computed tokens catch up with known ones. Sequences that
only need their next token come first, so no answer waits for another request's prompt; the rest of
the budget goes to prompts, shared between tiers, but only as much as does not slow the decoding
sequences too far. A sequence is admitted when its prompt fits above the watermark; when blocks run
out, the lowest tier's least computed sequence starts over, usually from the prefix cache.
"""

from collections import Counter
from collections.abc import Mapping

from local_engine.core.allocation import BlockAllocation
from local_engine.core.events import EventLog
from local_engine.core.limits import Limits, NeverFits, QueueFull
from local_engine.core.pace import Pace
from local_engine.core.sequence import FinishReason, Sequence
from local_engine.core.step import Item, Step
from local_engine.core.tiers import DeficitRoundRobin, Tier
from local_engine.core.waiting_line import Turn, WaitingLine


class Scheduler:
    """Owns the queues and, through `BlockAllocation`, every block."""

    def __init__(self, limits: Limits, events: EventLog | None = None) -> None:
        self.limits = limits
        self.events = events if events is not None else EventLog()
        self.blocks = BlockAllocation(
            limits.num_blocks,
            limits.block_size,
            self.events,
            num_host_blocks=limits.num_host_blocks,
            is_caching=limits.is_caching,
        )
        self.pace = Pace()
        self.num_preemptions = 0
        self._running: list[Sequence] = []
        self._prefilling: list[Sequence] = []
        self._line = WaitingLine(
            limits,
            is_over_share=lambda each: self._is_over_share(each, each.num_known),
            is_read_for=self._is_read_for,
        )
        self._tiers = DeficitRoundRobin()
        self._is_admitting = True
        self._tenant_blocks = max(1, int(limits.num_blocks * limits.tenant_share))
        self.most_tokens = self._tenant_blocks * limits.block_size
        self._watermark = int(limits.num_blocks * limits.watermark)

    @property
    def num_waiting(self) -> int:
        return len(self._line)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def has_work(self) -> bool:
        """Whether there are sequences, or blocks of ended ones that have yet to be zeroed."""
        return bool(self._running) or self.num_waiting > 0 or self.blocks.has_copies

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; raises `QueueFull`, or `NeverFits` before anything is computed."""
        needed = self.blocks.blocks_for(sequence.num_prompt_tokens + sequence.max_tokens)
        if needed > self._tenant_blocks:
            raise NeverFits(needed, self._tenant_blocks)
        # A place among the running ones that is still free counts as room in the queue.
        places = self.limits.max_waiting + self.limits.max_running - len(self._running)
        if self.num_waiting >= places:
            raise QueueFull(self.num_waiting)
        self._line.join(sequence)

    def end(self, sequence: Sequence, reason: FinishReason = FinishReason.ABORT) -> None:
        """End a sequence from outside, wherever it stands; its blocks are back at once."""
        if not sequence.is_finished:
            sequence.finish_reason = reason
            self._leave(sequence)

    def schedule(self) -> Step | None:
        """Plan the next step; `None` if no sequence can compute anything now."""
        self._line.begin_step()
        step = Step([])
        step.num_decode_tokens = self._plan_decodes(step)
        decodes = tuple(step.items)
        budget = self.limits.token_budget - step.num_decode_tokens
        chunk = min(budget, self._chunk_beside(step.num_decode_tokens))
        if chunk > 0:
            self._plan_prefills(step, chunk)
        if step.preempted:  # Prompts may have taken the places of decoding sequences.
            gone = set(step.preempted)
            step.num_decode_tokens = sum(d.end - d.start for d in decodes if d.sequence not in gone)
        step.copies = self.blocks.take_copies()
        return step if step.items or step.copies else None

    def expect(self, step: Step) -> None:
        """Let the next step be planned before this one's tokens are known (overlap)."""
        for item in step.items:
            item.sequence.num_pending += item.is_sampled

    def complete(
        self, step: Step, tokens: Mapping[str, list[int]], eos_token_ids: tuple[int, ...]
    ) -> list[Sequence]:
        """Take the runner's new tokens of each sampled item; returns the finished sequences.

        With drafts a runner may return several tokens: the accepted ones and one more.
        """
        finished: list[Sequence] = []
        size = self.limits.block_size
        for item in step.items:
            sequence = item.sequence
            if sequence.is_finished:
                continue
            new = tokens[sequence.sequence_id] if item.is_sampled else []
            is_done = self._accept(item, new, eos_token_ids)
            if item.epoch == sequence.epoch and item.end // size > sequence.num_published:
                computed = min(item.end, len(sequence.token_ids), sequence.num_computed_tokens)
                self.blocks.publish(sequence, computed)
            if is_done:
                self._leave(sequence)
                finished.append(sequence)
        return finished

    def check(self) -> None:
        """Check what must hold between steps; raises `AssertionError`."""
        self.blocks.pool.check()
        everybody = [*self._running, *self._line]
        assert len(everybody) == len(set(everybody)), "a sequence is queued twice"
        holders = Counter(block_id for each in everybody for block_id in each.block_ids)
        assert holders == self.blocks.pool.holders(), "a block is held by more or fewer than know"
        held = self.blocks.held_by_tenant.values()
        assert sum(held) == len(holders), "a block counts for no tenant"
        assert max(held, default=0) <= self._tenant_blocks, "a tenant holds more than its share"

    def _accept(self, item: Item, tokens: list[int], eos_token_ids: tuple[int, ...]) -> bool:
        """Append new tokens; whether one of them ended the sequence."""
        sequence = item.sequence
        if not item.is_sampled:
            return False
        if sequence.num_pending:
            sequence.num_pending -= 1
        if item.num_drafts:
            sequence.draft_token_ids = []
            if item.epoch == sequence.epoch:
                # Keys and values of drafts that were not accepted will be written over.
                sequence.num_computed_tokens -= item.num_drafts + 1 - len(tokens)
        for token_id in tokens:
            sequence.append(token_id, eos_token_ids)
            if sequence.finish_reason is not None:
                return True
        return False

    def _plan_decodes(self, step: Step) -> int:
        """Add an item for each running sequence that lacks only its next token and drafts.

        The others, whose prompt is not fully read, are remembered for `_plan_prefills`.
        """
        items, block_size = step.items, self.limits.block_size
        # After one token for every sequence, drafts share the rest of the budget.
        self._prefilling, spare = [], max(0, self.limits.token_budget - len(self._running))
        for sequence in tuple(self._running):
            del sequence.draft_token_ids[spare:]
            start, num_drafts = sequence.num_computed_tokens, len(sequence.draft_token_ids)
            end = len(sequence.token_ids) + sequence.num_pending + num_drafts
            if end - start != 1 + num_drafts:
                if end - start > 1:
                    self._prefilling.append(sequence)
                continue
            if sequence.num_pending and not _may_run_ahead(sequence):
                continue
            is_sure = end <= len(sequence.block_ids) * block_size and not step.preempted
            if not is_sure and not self._make_room(step, sequence, end):
                continue
            items.append(Item(sequence, start, end, sequence.epoch, num_drafts))
            sequence.num_computed_tokens, spare = end, spare - num_drafts
        return step.num_tokens

    def _make_room(self, step: Step, sequence: Sequence, end: int) -> bool:
        """Get blocks up to `end`, from others if need be; false if `sequence` itself yields."""
        if sequence not in self._running:
            return False
        while True:
            is_over = self._is_over_share(sequence, end)
            if not is_over and self.blocks.grow(sequence, end):
                return True
            # Newest first: of two equal sequences the later one makes room.
            running = reversed(self._running)
            rivals = [s for s in running if not is_over or s.tenant == sequence.tenant]
            victim = max(rivals, key=self._as_victim)
            self._preempt(step, victim)
            if victim is sequence:
                return False

    def _is_over_share(self, sequence: Sequence, end: int) -> bool:
        missing = self.blocks.blocks_for(end) - len(sequence.block_ids)
        held = self.blocks.held_by_tenant.get(sequence.tenant, 0)
        if missing <= 0 or held + missing <= self._tenant_blocks:
            return False
        # A waiting sequence adopts blocks that others of its tenant hold already.
        shared = 0 if sequence.block_ids else self.blocks.num_adoptable_held(sequence)
        return held + missing - shared > self._tenant_blocks

    def _is_read_for(self, sequence: Sequence) -> bool:
        """Whether a running sequence of no lower rank reads the same prefix: its blocks are shared.

        So all choices of a request cost one prompt, and so do equal prompts that come together.
        """
        rank = self._line.rank
        return any(
            reader.num_published < len(reader.block_hashes)
            and self.blocks.is_read_by(sequence, reader)
            and rank(reader) <= rank(sequence)
            for reader in self._running
        )

    def _preempt(self, step: Step, victim: Sequence) -> None:
        step.items[:] = [item for item in step.items if item.sequence is not victim]
        if victim in self._prefilling:
            self._prefilling.remove(victim)
        step.preempted.append(victim)
        self._running.remove(victim)
        self.blocks.free(victim)
        victim.draft_token_ids = []
        victim.epoch += 1
        victim.num_preemptions += 1
        self.num_preemptions += 1
        self._line.rejoin(victim)

    def _chunk_beside(self, num_decode_tokens: int) -> int:
        """How many prompt tokens may join a step without slowing its decoders too far."""
        if self.limits.is_paced and (chunk := self.pace.chunk(num_decode_tokens)):
            return max(chunk, self.limits.block_size)
        return self.limits.prefill_chunk if num_decode_tokens else self.limits.token_budget

    def _plan_prefills(self, step: Step, chunk: int) -> None:
        """Share `chunk` prompt tokens between tiers, started prompts before waiting ones."""
        self._is_admitting = not step.preempted
        active = set(map(self._line.rank, self._prefilling))
        if self._is_admitting:
            active |= set(map(self._line.rank, self._line))
        if not active:
            return
        shares = self._tiers.shares(active, chunk)
        left = chunk
        for is_extra in (False, True):
            for tier, share in shares.items():
                taken = self._serve_tier(step, tier, left if is_extra else min(share, left))
                self._tiers.spend(tier, taken, chunk)
                left -= taken
                if left <= 0:
                    return

    def _serve_tier(self, step: Step, tier: Tier, share: int) -> int:
        """Spend up to `share` tokens on one tier's prompts; returns how many were spent."""
        planned = {item.sequence for item in step.items}
        started = [s for s in self._prefilling if self._line.rank(s) is tier and s not in planned]
        oldest, others = started[:1], started[1:]
        while self._is_admitting and (turn := self._next_turn(tier)) is not None:
            sequence = turn.sequence
            sooner = sum(s.num_missing for s in others if s.num_missing <= sequence.num_known)
            if sooner >= share:
                break
            # Any later sequence, of a lower tier too, would take the blocks that it waits for.
            self._is_admitting = self._admit(step, sequence)
            if self._is_admitting:
                others.append(sequence)
                for each in turn.passed:
                    each.num_passed += 1
        left = share
        # The first started gets half for sure; the rest goes to those with the least left.
        for sequence in oldest:
            left -= self._plan_chunk(step, sequence, -(-left // 2) if others else left)
        for sequence in sorted(others, key=lambda s: s.num_missing):
            left -= self._plan_chunk(step, sequence, left)
        return share - left

    def _plan_chunk(self, step: Step, sequence: Sequence, budget: int) -> int:
        missing = sequence.num_missing
        num_tokens = min(missing, budget)
        start = sequence.num_computed_tokens
        if num_tokens <= 0 or not self._make_room(step, sequence, start + num_tokens):
            return 0
        is_sampled = num_tokens == missing
        step.items.append(
            Item(sequence, start, start + num_tokens, sequence.epoch, is_sampled=is_sampled)
        )
        sequence.num_computed_tokens = start + num_tokens
        return num_tokens

    def _next_turn(self, tier: Tier) -> Turn | None:
        num_long = sum(s.num_known > self.limits.long_prompt for s in self._prefilling)
        is_place_free = len(self._running) < self.limits.max_running
        return self._line.next(tier, num_long, is_place_free=is_place_free, fits=self._fits)

    def _admit(self, step: Step, sequence: Sequence) -> bool:
        """Start a waiting sequence if its whole prompt fits, at a lower tier's cost if need be."""
        while True:
            if len(self._running) < self.limits.max_running:
                self.blocks.adopt_prefix(sequence)
                if self._fits(sequence):
                    self._line.leave(sequence)
                    self._running.append(sequence)
                    self._prefilling.append(sequence)
                    return True
                self.blocks.free(sequence)
            victim = self._victim_for(sequence)
            if victim is None:
                return False
            self._preempt(step, victim)

    def _fits(self, sequence: Sequence) -> bool:
        missing = self.blocks.blocks_for(sequence.num_known) - len(sequence.block_ids)
        # The watermark keeps room for running sequences; alone, a sequence may use everything.
        spare = self._watermark if self._running else 0
        left = self.blocks.pool.num_free - missing - spare
        return left >= 0 and left >= self._num_promised()

    def _num_promised(self) -> int:
        """Blocks still needed by admitted prompts that are not fully read."""
        blocks_for = self.blocks.blocks_for
        return sum(blocks_for(s.num_known) - len(s.block_ids) for s in self._prefilling)

    def _victim_for(self, sequence: Sequence) -> Sequence | None:
        """The sequence that a priority one may preempt: batch work not preempted too often.

        Sequences that were passed are spared: they waited for a turn only to lose it.
        """
        if sequence.tier is not Tier.PRIORITY:
            return None
        most = self.limits.max_preemptions
        batch = [
            each
            for each in self._running
            if each.tier is Tier.BATCH and each.num_preemptions < most and not each.num_passed
        ]
        return max(batch, key=self._as_victim, default=None)

    def _as_victim(self, sequence: Sequence) -> tuple[int, int]:
        """Sorts victims last: the lowest tier, then the sequence that loses the least.

        One that started over too often counts as a better tier, or it would never finish.
        """
        is_spared = sequence.num_preemptions // self.limits.max_preemptions
        return max(0, sequence.tier - is_spared), -sequence.num_computed_tokens

    def _leave(self, sequence: Sequence) -> None:
        if sequence in self._running:
            self._running.remove(sequence)
        else:
            self._line.leave(sequence)
        self.blocks.free(sequence)


def _may_run_ahead(sequence: Sequence) -> bool:
    """Whether the token after a pending one can be computed before the pending one is known."""
    is_at_length = sequence.num_output_tokens + sequence.num_pending >= sequence.max_tokens
    return not is_at_length and not sequence.params.is_narrowed
