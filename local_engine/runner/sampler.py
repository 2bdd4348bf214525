"""Chooses the next token from the decoder's scores.

Order: penalties, logit bias, forbidden and not yet allowed tokens, grammar, temperature, top-k,
top-p, min-p. Reported log-probabilities are those of the model itself, before any of it.
"""

from collections.abc import Sequence as Tokens
from dataclasses import dataclass

import numpy as np
import torch

from local_engine.kernels.sampling_noise import gumbel, row_key
from local_engine.sampling_params import SamplingParams


# Sorting a complete vocabulary for one token is slow; the likeliest few nearly always hold top_p.
_FIRST_CANDIDATES = 1024


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and the natural logarithm of the probability the model gave it."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class SampledToken:
    """The chosen token; its log-probability and the best alternatives if asked for."""

    token_id: int
    logprob: float | None = None
    top: tuple[TokenLogprob, ...] = ()
    rank: int | None = None
    """1 for the likeliest token; known only for a prompt's tokens."""


@dataclass(frozen=True, slots=True)
class History:
    """What a choice may depend on, besides the scores."""

    prompt: Tokens[int] = ()
    written: Tokens[int] = ()
    eos_token_ids: Tokens[int] = ()
    allowed: torch.Tensor | None = None
    """True for each token of the vocabulary that a grammar, or the request itself, allows next."""
    num_written: int = 0
    """How many tokens came before; `written` names them only if `params.looks_back`."""


def sample(
    logits: torch.Tensor, params: SamplingParams, history: History, seed: int
) -> SampledToken:
    """Choose from float32 `logits` [vocabulary].

    Randomness depends only on `seed` and the number of tokens written so far, so that a request
    repeats itself whatever else is running.
    """
    scores = adjusted(logits, params, history)
    if params.is_greedy:
        token_id = int(scores.argmax())
    else:
        probabilities = truncated_probabilities(scores, params)
        kept = probabilities.nonzero()[:, 0]
        noise = gumbel(kept, row_key(seed, history.num_written))
        token_id = int(kept[(probabilities[kept].log() + noise).argmax()])
    return describe_token(logits, token_id, params.top_logprobs if params.logprobs else None)


def describe_token(logits: torch.Tensor, token_id: int, num_top: int | None) -> SampledToken:
    """The token with its log-probability and `num_top` alternatives; without both for `None`."""
    if num_top is None:
        return SampledToken(token_id)
    logprobs = logits.log_softmax(dim=-1)
    best = logprobs.topk(min(num_top, len(logprobs)))
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
    if params.top_k <= 0 and params.top_p >= 1.0 and params.min_p <= 0.0:
        return probabilities
    ordered, order = _candidates(probabilities, params)
    kept = torch.ones_like(ordered, dtype=torch.bool)
    if params.top_k > 0:
        kept[params.top_k :] = False
    if params.top_p < 1.0:
        # A token stays while the likelier ones before it do not reach top_p yet.
        mass = ordered[kept].sum() if params.top_k > 0 else probabilities.sum()
        within = torch.where(kept, ordered, 0.0) / mass
        kept &= within.cumsum(dim=-1) - within < params.top_p
    if params.min_p > 0.0:
        kept &= ordered >= params.min_p * ordered[0]
    kept[0] = True
    # Tokens with equal probability are treated alike.
    kept |= ordered >= ordered[kept][-1]
    chosen = torch.zeros_like(probabilities)
    chosen[order[kept]] = ordered[kept]
    return chosen / chosen.sum()


def _candidates(
    probabilities: torch.Tensor, params: SamplingParams
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens in descending order, as many as the truncations can possibly keep."""
    size = probabilities.shape[-1]
    count = max(_FIRST_CANDIDATES, params.top_k)
    if count < size and size > 4 * _FIRST_CANDIDATES:
        found = probabilities.topk(count)
        is_enough = (
            0 < params.top_k <= count
            or bool(found.values[-1] < params.min_p * found.values[0])
            or (params.top_p < 1.0 and float(found.values.sum()) > params.top_p)
        )
        if is_enough:
            return found.values, found.indices
    ordered, order = probabilities.sort(descending=True, stable=True)
    return ordered, order


def adjusted(logits: torch.Tensor, params: SamplingParams, history: History) -> torch.Tensor:
    """Scores after everything that changes single tokens; the input itself if nothing does."""
    scores = logits
    if params.has_penalties:
        scores = _penalised(scores.clone(), params, history)
    if params.logit_bias:
        scores = scores.clone()
        where = torch.tensor(list(params.logit_bias), device=scores.device)
        scores[where] += torch.tensor(list(params.logit_bias.values()), device=scores.device)
    never = forbidden(params, history)
    if history.allowed is not None:
        return scores.masked_fill(~_within(history.allowed, never), -torch.inf)
    if never:
        scores = scores.clone()
        scores[never] = -torch.inf
    return scores


def _within(allowed: torch.Tensor, never: list[int]) -> torch.Tensor:
    """What a grammar allows and nobody forbids; all that it allows if nothing would be left.

    Without any candidate the first token of the vocabulary would be chosen, which follows no rule.
    """
    if not never:
        return allowed
    left = allowed.clone()
    left[never] = False
    return left if left.any() else allowed


def _penalised(scores: torch.Tensor, params: SamplingParams, history: History) -> torch.Tensor:
    """As many operations for a long text as for a short one, since this runs for every token."""
    if params.repetition_penalty != 1.0:
        texts = [*history.prompt, *history.written]
        seen = torch.tensor(texts, dtype=torch.long, device=scores.device)
        found = scores[seen]
        factor = params.repetition_penalty
        scores[seen] = torch.where(found > 0, found / factor, found * factor)
    if history.written and (params.presence_penalty or params.frequency_penalty):
        token_ids, counts = np.unique(history.written, return_counts=True)
        amounts = params.presence_penalty + counts * params.frequency_penalty
        where, amount = torch.from_numpy(token_ids), torch.from_numpy(amounts)
        scores[where.to(scores.device)] -= amount.to(scores.device, torch.float32)
    return scores


def forbidden(params: SamplingParams, history: History) -> list[int]:
    """End tokens that come too early, and the last token of every bad word that has begun."""
    never: list[int] = []
    if history.num_written < params.min_tokens:
        never += [*history.eos_token_ids, *params.stop_token_ids]
    for word in params.bad_token_ids:
        *start, last = word
        if not start or list(history.written[-len(start) :]) == start:
            never.append(last)
    return never
