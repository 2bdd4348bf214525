"""Chooses the next token from the decoder's scores.

Order: penalties, logit bias, temperature, top-k, top-p, min-p. Reported log-probabilities are
those of the model itself, before any of it.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from local_engine.core.sampling_params import SamplingParams


_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and the natural logarithm of the probability the model gave it."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class SampledToken:
    """The chosen token; its log-probability and the best alternatives where asked for."""

    token_id: int
    logprob: float | None = None
    top: tuple[TokenLogprob, ...] = ()


def sample(
    logits: torch.Tensor, params: SamplingParams, output_token_ids: Iterable[int], seed: int
) -> SampledToken:
    """Choose from float32 `logits` [vocabulary].

    Randomness depends on `seed` and the number of tokens written so far alone, so that a request
    repeats itself whatever else is running.
    """
    written = list(output_token_ids)
    scores = _adjusted(logits, params, written)
    if params.is_greedy:
        token_id = int(scores.argmax())
    else:
        probabilities = truncated_probabilities(scores, params)
        generator = torch.Generator(device="cpu")
        generator.manual_seed((seed * _GOLDEN + len(written)) % (1 << 63))
        token_id = int(torch.multinomial(probabilities, 1, generator=generator))
    if not params.logprobs:
        return SampledToken(token_id)
    logprobs = logits.log_softmax(dim=-1)
    best = logprobs.topk(min(params.top_logprobs, len(logprobs)))
    top = tuple(
        TokenLogprob(int(index), float(value))
        for value, index in zip(best.values, best.indices, strict=True)
    )
    return SampledToken(token_id, float(logprobs[token_id]), top)


def truncated_probabilities(scores: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Probabilities [vocabulary] after temperature, top-k, top-p and min-p; they sum to one."""
    # Shifting first keeps tiny temperatures from overflowing to infinity.
    scaled = (scores - scores.max()) / max(params.temperature, 1e-4)
    probabilities = scaled.softmax(dim=-1)
    ordered, order = probabilities.sort(descending=True, stable=True)
    kept = torch.ones_like(ordered, dtype=torch.bool)
    if params.top_k > 0:
        kept[params.top_k :] = False
    if params.top_p < 1.0:
        # A token stays while the likelier ones before it do not reach top_p yet.
        within = torch.where(kept, ordered, 0.0)
        within = within / within.sum()
        kept &= within.cumsum(dim=-1) - within < params.top_p
    if params.min_p > 0.0:
        kept &= ordered >= params.min_p * ordered[0]
    kept[0] = True
    chosen = torch.zeros_like(probabilities)
    chosen[order[kept]] = ordered[kept]
    return chosen / chosen.sum()


def _adjusted(logits: torch.Tensor, params: SamplingParams, written: list[int]) -> torch.Tensor:
    has_penalty = params.presence_penalty != 0.0 or params.frequency_penalty != 0.0
    if not (has_penalty and written) and not params.logit_bias:
        return logits
    scores = logits.clone()
    if has_penalty:
        for token_id, count in Counter(written).items():
            scores[token_id] -= params.presence_penalty + count * params.frequency_penalty
    for token_id, bias in params.logit_bias.items():
        scores[token_id] += bias
    return scores
