"""Whatever comes in whatever order: no block is lost, shared by mistake or held by nobody."""

import itertools
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from local_engine.core.limits import Limits, NeverFits, QueueFull
from local_engine.core.scheduler import Scheduler
from local_engine.core.sequence import Sequence
from local_engine.core.step import Step
from local_engine.core.tiers import Tier
from local_engine.sampling_params import SamplingParams
from tests.local_engine.core_steps import replay


NUM_BLOCKS, BLOCK_SIZE, EOS = 24, 4, 0


class Engine(RuleBasedStateMachine):
    """A scheduler under random arrivals, aborts, drafts, overlapping steps and cache clearings."""

    def __init__(self) -> None:
        super().__init__()
        limits = Limits(
            num_blocks=NUM_BLOCKS,
            block_size=BLOCK_SIZE,
            max_running=5,
            max_waiting=4,
            token_budget=20,
            prefill_chunk=7,
            long_prompt=20,
            tenant_share=0.75,
            ageing_steps=6,
            num_host_blocks=6,
        )
        self.scheduler = Scheduler(limits)
        self.alive: list[Sequence] = []
        self.in_flight: list[Step] = []
        self.numbers = itertools.count()

    @rule(
        prompt=st.lists(st.integers(1, 3), min_size=1, max_size=40),
        max_tokens=st.integers(1, 30),
        tier=st.sampled_from(Tier),
        tenant=st.sampled_from(["a", "b"]),
        is_zeroed=st.booleans(),
    )
    def arrive(self, prompt: list[int], max_tokens: int, tier: Tier, **fields: Any) -> None:
        sequence = Sequence(
            str(next(self.numbers)),
            prompt,
            SamplingParams(max_tokens=max_tokens),
            context_window=64,
            tier=tier,
            salt=fields["tenant"].encode(),
            **fields,
        )
        try:
            self.scheduler.add(sequence)
        except NeverFits:
            needed = -(-(len(prompt) + sequence.max_tokens) // BLOCK_SIZE)
            assert needed > NUM_BLOCKS * 0.75
        except QueueFull:
            assert self.scheduler.num_waiting >= 4
        else:
            self.alive.append(sequence)

    @precondition(lambda self: len(self.in_flight) < 2)
    @rule()
    def launch(self) -> None:
        step = self.scheduler.schedule()
        if step is None or not step.items:
            return
        assert step.num_tokens <= 20
        writers = [
            block
            for item in step.items
            for block in item.sequence.block_ids[item.start // BLOCK_SIZE :]
        ]
        assert len(writers) == len(set(writers)), "two sequences write one block"
        self.scheduler.expect(step)
        self.in_flight.append(step)

    @precondition(lambda self: self.in_flight)
    @rule(token=st.integers(0, 3), num_accepted=st.integers(0, 4))
    def land(self, token: int, num_accepted: int) -> None:
        step = self.in_flight.pop(0)
        tokens = {}
        for item in step.items:
            accepted = item.sequence.draft_token_ids[: min(num_accepted, item.num_drafts)]
            tokens[item.sequence.sequence_id] = [*accepted, token]
        self.scheduler.complete(step, tokens, (EOS,))
        self.alive = [sequence for sequence in self.alive if not sequence.is_finished]

    @rule(num_steps=st.integers(2, 20), token=st.integers(0, 3))
    def go_on(self, num_steps: int, token: int) -> None:
        """So that sequences grow out of their blocks, and what is cached has to make room."""
        for _ in range(num_steps):
            self.launch()
            while self.in_flight:
                self.land(token, 4)
            self.every_block_is_free_or_held_by_somebody()

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def leave(self, data: Any) -> None:
        sequence = data.draw(st.sampled_from(self.alive))
        self.scheduler.end(sequence)
        self.alive.remove(sequence)

    @precondition(lambda self: not self.in_flight)
    @rule(drafts=st.lists(st.integers(1, 3), min_size=1, max_size=4))
    def guess(self, drafts: list[int]) -> None:
        for sequence in self.alive:
            room = sequence.max_tokens - sequence.num_output_tokens - 1
            if sequence.num_output_tokens and sequence.num_missing == 1 and room > 0:
                sequence.draft_token_ids = drafts[:room]

    @rule()
    def clear(self) -> None:
        self.scheduler.blocks.clear_cache()

    @invariant()
    def every_block_is_free_or_held_by_somebody(self) -> None:
        self.scheduler.check()

    @invariant()
    def the_event_log_says_what_the_cache_holds(self) -> None:
        events = [event for _, event in self.scheduler.events.since(0)]
        pool = self.scheduler.blocks.pool
        assert replay(events) == {h: block.block_id for h, block in pool._found.items()}

    def teardown(self) -> None:
        """Everybody still there gets to an end within a bound, and then nothing is held."""
        while self.in_flight:
            self.land(1, 0)
        for _ in range(2000):
            if not self.alive:
                break
            self.go_on(1, 1)
        assert not self.alive, "somebody starves"
        self.the_event_log_says_what_the_cache_holds()
        assert self.scheduler.blocks.pool.num_free == NUM_BLOCKS
        # What a gone sequence left to be zeroed is done by a step of its own.
        self.scheduler.schedule()
        assert not self.scheduler.has_work


TestEngine = Engine.TestCase
TestEngine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
