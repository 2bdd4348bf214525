"""Scheduler and runner joined by hand: what the worker does, without process or socket."""

from collections.abc import Sequence as Many
from typing import Any

import torch

from local_engine.core.limits import Limits
from local_engine.core.scheduler import Scheduler
from local_engine.core.sequence import Sequence
from local_engine.model.decoder import Decoder
from local_engine.runner.model_runner import ModelRunner, Ranks
from local_engine.runner.sampler import SampledToken
from local_engine.runner.share import ShareOptions
from local_engine.sampling_params import SamplingParams


CPU = torch.device("cpu")


class EngineLoop:
    """Adds sequences, runs steps, and remembers what every sequence wrote."""

    def __init__(
        self,
        decoder: Decoder,
        ranks: Ranks | None = None,
        *,
        is_deterministic: bool = False,
        kv_dtype: torch.dtype | None = None,
        **limits: Any,
    ) -> None:
        self.limits = Limits(**{"num_blocks": 256, "watermark": 0.0, **limits})
        options = ShareOptions(
            num_blocks=self.limits.num_blocks,
            block_size=self.limits.block_size,
            num_host_blocks=self.limits.num_host_blocks,
            is_deterministic=is_deterministic,
            kv_dtype=kv_dtype,
        )
        self.runner = ModelRunner(decoder, CPU, options, ranks=ranks)
        self.scheduler = Scheduler(self.limits)
        self.told: dict[str, list[SampledToken]] = {}
        """What came of each sequence, in order."""
        self.num_steps = 0
        self._count = 0

    def add(self, prompt: Many[int], params: SamplingParams, **fields: Any) -> Sequence:
        self._count += 1
        window = self.runner.spec.context_window
        sequence = Sequence(str(self._count), list(prompt), params, context_window=window, **fields)
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> bool:
        """One step; false when there was nothing to do."""
        step = self.scheduler.schedule()
        if step is None:
            return False
        results = self.runner.execute(step)
        for name, result in results.items():
            self.told.setdefault(name, []).extend(result.tokens)
        tokens = {name: result.token_ids for name, result in results.items()}
        for sequence in self.scheduler.complete(step, tokens, self.runner.spec.eos_token_ids):
            self.runner.free(sequence.sequence_id)
        self.scheduler.check()
        self.num_steps += 1
        return True

    def run(self) -> None:
        while self.scheduler.has_work:
            assert self.step(), "somebody waits and nobody computes"


def greedy(max_tokens: int, **fields: Any) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, **fields)


def greedy_tokens(decoder: Decoder, prompt: Many[int], max_tokens: int, **limits: Any) -> list[int]:
    """What one sequence writes on an engine of its own. It uses the decoder up."""
    loop = EngineLoop(decoder, **limits)
    sequence = loop.add(prompt, greedy(max_tokens))
    loop.run()
    return list(sequence.output_token_ids)
