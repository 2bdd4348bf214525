"""Runs the engine's loop as its worker does, without process or socket: plan, compute, conclude.

Everything the GPU benchmarks know of scheduler and runner is here.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from local_engine.core.limits import Limits
from local_engine.core.scheduler import Scheduler
from local_engine.core.sequence import Sequence
from local_engine.core.step import Step
from local_engine.kernels.linear import MakeLinear
from local_engine.model.decoder import Decoder
from local_engine.runner.graphs import CudaRecorder, record_plainly
from local_engine.runner.kv_pool import KvPool
from local_engine.runner.model_runner import ModelRunner
from local_engine.runner.overlap import Computed, choose_lane
from local_engine.runner.share import ShareOptions
from local_engine.runner.timeline import Timeline
from local_engine.runner.warm_up import warm_up
from local_engine.sampling_params import SamplingParams


BLOCK_SIZE = 16
_PIECE_BLOCKS = 512
_ANY_TOKEN = 7


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)


@dataclass(frozen=True)
class Engine:
    """A runner, ready: decode steps recorded, and random keys and values in its whole pool."""

    runner: ModelRunner
    num_blocks: int

    def loop(self, *, is_ahead: bool = True, **limits: Any) -> "Loop":
        """A fresh scheduler over the same runner; nothing of an earlier one can be met again."""
        chosen: dict[str, Any] = {"watermark": 0.0, "long_prompt": 1 << 30, **limits}
        return Loop(self.runner, Limits(num_blocks=self.num_blocks, **chosen), is_ahead=is_ahead)


def new_engine(
    decoder: Decoder,
    device: torch.device,
    *,
    kv_tokens: int,
    most_rows: int,
    make_linear: MakeLinear | None = None,
    is_recorded: bool = True,
    timeline: Timeline | None = None,
    **choices: Any,
) -> Engine:
    """It uses the decoder up; `most_rows` is the largest decode step that is recorded."""
    num_blocks = -(-kv_tokens // BLOCK_SIZE)
    options = ShareOptions(
        num_blocks=num_blocks, block_size=BLOCK_SIZE, make_linear=make_linear, **choices
    )
    runner = ModelRunner(decoder, device, options, timeline=timeline)
    fill_randomly(runner.pool)
    if is_recorded:
        record = CudaRecorder() if device.type == "cuda" else record_plainly
        runner.record_decodes(record, most_rows)
    # As the worker does at its start: what a machine compiles is part of no measurement.
    warm_up(runner, Scheduler(Limits(num_blocks=num_blocks)))
    return Engine(runner, num_blocks)


def fill_randomly(pool: KvPool) -> None:
    """Normal numbers in every block: a context is there without anybody having computed it."""
    for tensor in (*pool.keys, *pool.values):
        for piece in torch.split(tensor, _PIECE_BLOCKS):
            piece.copy_(torch.randn(piece.shape, device=piece.device, dtype=torch.bfloat16))


class Loop:
    """The worker's loop; with `is_ahead` the next step is planned while one is computed."""

    def __init__(self, runner: ModelRunner, limits: Limits, *, is_ahead: bool) -> None:
        self.scheduler = Scheduler(limits)
        self.num_steps = 0
        self._runner = runner
        self._lane = choose_lane(runner, is_ahead=is_ahead)
        self._flight: tuple[Step, Callable[[], Computed]] | None = None
        self._sequences: dict[str, Sequence] = {}

    def add(self, prompt: list[int], params: SamplingParams) -> Sequence:
        name = f"bench-{len(self._sequences)}"
        window = self._runner.spec.context_window
        sequence = Sequence(name, prompt, params, context_window=window)
        self.scheduler.add(sequence)
        self._sequences[name] = sequence
        return sequence

    def claim_prompts(self) -> None:
        """Say of all prompts that they are computed: what lies in the pool is random anyway.

        For steps that decode, where only the size of a context matters.
        """
        while any(not sequence.num_output_tokens for sequence in self._sequences.values()):
            step = self.scheduler.schedule()
            assert step is not None, "every prompt fits into the pool"
            tokens = {
                item.sequence.sequence_id: [_ANY_TOKEN] if item.is_sampled else []
                for item in step.items
            }
            self.scheduler.complete(step, tokens, ())

    def advance(self) -> bool:
        """Start the next step and conclude the one before; false if there was neither."""
        before, self._flight = self._flight, None
        step = self.scheduler.schedule() if self.scheduler.has_work else None
        prepared = None if step is None else self._runner.prepare(step)
        if step is not None and self._lane.is_ahead:
            self.scheduler.expect(step)
        if step is not None and prepared is not None:
            self._flight = (step, self._lane.start(prepared))
        computed = None if before is None else before[1]()
        if before is not None and computed is not None:
            self._conclude(before[0], computed)
        if self._flight is not None and not self._lane.is_ahead:
            (step, land), self._flight = self._flight, None
            self._conclude(step, land())
        return before is not None or step is not None

    def run(self) -> float:
        """Until nothing is left; seconds on the wall."""
        started = time.perf_counter()
        while self.advance():
            pass
        return time.perf_counter() - started

    def step_times_s(self, num_warm: int, num_steps: int) -> list[float]:
        """Of so many steps after the first ones, from one conclusion to the next."""
        for _ in range(num_warm):
            self.advance()
        times = []
        for _ in range(num_steps):
            started = time.perf_counter()
            self.advance()
            times.append(time.perf_counter() - started)
        return times

    def close(self) -> None:
        """End everything that still runs, and the lane."""
        for sequence in self._sequences.values():
            self.scheduler.end(sequence)
            self._runner.free(sequence.sequence_id)
        flight, self._flight = self._flight, None
        # A device that was lost is lost for this step too; why, the step before has said.
        with suppress(RuntimeError):
            if flight is not None:
                flight[1]()
        self._lane.close()

    def _conclude(self, step: Step, computed: Computed) -> None:
        self.num_steps += 1
        num_prompt_tokens = step.num_tokens - step.num_decode_tokens
        self.scheduler.pace.observe(step.num_decode_tokens, num_prompt_tokens, computed.took_s)
        tokens = {name: result.token_ids for name, result in computed.results.items()}
        for sequence in self.scheduler.complete(step, tokens, ()):
            self._runner.free(sequence.sequence_id)
