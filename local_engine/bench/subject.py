"""The measured model, a random Qwen3 of 41.6 M parameters, and an engine that runs it by hand."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import torch

from local_engine.core.limits import Limits
from local_engine.core.scheduler import Scheduler
from local_engine.core.sequence import Sequence
from local_engine.core.tiers import Tier
from local_engine.model.decoder import Decoder
from local_engine.model.spec import ModelSpec
from local_engine.runner.model_runner import ModelRunner
from local_engine.runner.share import ShareOptions
from local_engine.runner.warm_up import warm_up
from local_engine.sampling_params import SamplingParams


SPEC = ModelSpec(
    vocab_size=32_000,
    hidden_size=512,
    intermediate_size=1536,
    num_layers=8,
    num_heads=8,
    num_kv_heads=4,
    head_dim=64,
    context_window=4096,
    has_qk_norm=True,
    tie_word_embeddings=True,
)
NUM_BLOCKS = 6000
GREEDY = {"temperature": 0.0, "ignore_eos": True}


def cpu_us() -> float:
    """CPU time of this process: on a shared machine the only clock that is ours."""
    return time.process_time_ns() / 1000


def best_us(act: Callable[[], object], rounds: int) -> float:
    """The shortest of many rounds: everything that makes one longer is somebody else."""
    shortest = float("inf")
    for _ in range(rounds):
        started = cpu_us()
        act()
        shortest = min(shortest, cpu_us() - started)
    return shortest


def new_decoder() -> Decoder:
    torch.manual_seed(0)
    decoder = Decoder(SPEC)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    return decoder.requires_grad_(requires_grad=False)


def random_prompt(length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    found: list[int] = torch.randint(0, SPEC.vocab_size, (length,), generator=generator).tolist()
    return found


@dataclass
class Seen:
    """When a sequence's tokens came, in CPU microseconds."""

    started_us: float
    token_us: list[float] = field(default_factory=list)

    @property
    def first_us(self) -> float:
        return self.token_us[0] - self.started_us

    @property
    def last_us(self) -> float:
        return self.token_us[-1] - self.started_us

    def longest_gap_us(self, since: float = 0.0) -> float:
        times = [at for at in self.token_us if at >= since]
        return max(b - a for a, b in pairwise(times))


class Subject:
    """One runner, and a fresh scheduler for every measurement."""

    def __init__(self, decoder: Decoder) -> None:
        self.runner = ModelRunner(decoder, torch.device("cpu"), ShareOptions(num_blocks=NUM_BLOCKS))
        self.seen: dict[str, Seen] = {}
        self.scheduler = Scheduler(Limits(num_blocks=NUM_BLOCKS))
        # As the worker does at its start: the scheduler learns what steps take.
        warm_up(self.runner, self.scheduler)
        self._pace = self.scheduler.pace
        self._count = 0

    def restart(self, **limits: object) -> Scheduler:
        self.seen = {}
        self.scheduler = Scheduler(Limits(num_blocks=NUM_BLOCKS, **limits))  # type: ignore[arg-type]
        self.scheduler.pace = self._pace
        return self.scheduler

    def add(self, prompt: list[int], max_tokens: int, tier: Tier = Tier.STANDARD) -> str:
        self._count += 1
        params = SamplingParams(max_tokens=max_tokens, **GREEDY)  # type: ignore[arg-type]
        name = f"bench-{self._count}"
        window = SPEC.context_window
        self.scheduler.add(Sequence(name, prompt, params, context_window=window, tier=tier))
        self.seen[name] = Seen(cpu_us())
        return name

    def step(self) -> int:
        """One step; returns how many tokens it computed."""
        step = self.scheduler.schedule()
        assert step is not None, "somebody waits and nobody computes"
        started = cpu_us()
        results = self.runner.execute(step)
        took_s = (cpu_us() - started) / 1e6
        num_prompt_tokens = step.num_tokens - step.num_decode_tokens
        self.scheduler.pace.observe(step.num_decode_tokens, num_prompt_tokens, took_s)
        tokens = {name: result.token_ids for name, result in results.items()}
        finished = self.scheduler.complete(step, tokens, ())
        at = cpu_us()
        for name, found in tokens.items():
            self.seen[name].token_us += [at] * len(found)
        for sequence in finished:
            self.runner.free(sequence.sequence_id)
        return step.num_tokens

    def run(self) -> None:
        while self.scheduler.has_work:
            self.step()
