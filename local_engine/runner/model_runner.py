"""Runs prefill and decode steps of one sequence after another on one device."""

import secrets
from collections.abc import Sequence as Tokens
from dataclasses import dataclass

import torch

from local_engine.core.scheduler import Step
from local_engine.core.sequence import Sequence
from local_engine.model.decoder import Decoder
from local_engine.model.kv_cache import KvCache
from local_engine.model.spec import ModelSpec
from local_engine.runner.sampler import SampledToken, sample


@dataclass(frozen=True, slots=True)
class _Running:
    """What one sequence keeps between its steps."""

    cache: KvCache
    seed: int


class ModelRunner:
    """Owns the decoder and the caches of the sequences that run on it."""

    def __init__(self, decoder: Decoder, device: torch.device) -> None:
        self._decoder = decoder.to(device).eval()
        self._device = device
        self._dtype = next(decoder.parameters()).dtype
        self._running: dict[str, _Running] = {}

    @property
    def spec(self) -> ModelSpec:
        return self._decoder.spec

    @torch.inference_mode()
    def execute(self, step: Step) -> SampledToken | None:
        """Compute the step's chunk; a token if the chunk reaches the sequence's end."""
        sequence = step.sequence
        running = self._state_of(sequence)
        hidden = self._decoder(self._as_batch(step.chunk.token_ids), running.cache)
        sequence.advance(step.chunk)
        if not step.chunk.is_sampled:
            return None
        logits = self._decoder.logits(hidden[0, -1]).cpu()
        return sample(logits, sequence.params, sequence.output_token_ids, running.seed)

    def free(self, sequence_id: str) -> None:
        """Drop what is kept for a sequence; unknown ids are fine."""
        self._running.pop(sequence_id, None)

    def _state_of(self, sequence: Sequence) -> _Running:
        found = self._running.get(sequence.sequence_id)
        if found is None:
            seed = sequence.params.seed
            cache = KvCache(self.spec, device=self._device, dtype=self._dtype)
            found = _Running(cache, secrets.randbits(63) if seed is None else seed)
            self._running[sequence.sequence_id] = found
        return found

    def _as_batch(self, token_ids: Tokens[int]) -> torch.Tensor:
        return torch.tensor([token_ids], dtype=torch.long, device=self._device)


def choose_device(name: str) -> torch.device:
    """The device called `name`; "auto" is the GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
