"""What requests ask about single tokens, for many rows at once and without looking at their words.

Before the choice: biases, and ends that would come too early. After it: how likely the model itself
found what was chosen, and what else. `sampler` says the same for one row that looks back as well.
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
import torch

from local_engine.runner.batch import sent
from local_engine.runner.drawing import Row
from local_engine.runner.sampler import SampledToken, TokenLogprob
from local_engine.runner.timeline import Timeline
from local_engine.sampling_params import SamplingParams


# As many rows over a whole vocabulary as a CPU's caches hold: with 64 each costs three times more.
_MOST_RANKED = 8


@dataclass(frozen=True, slots=True)
class Described:
    """Log-probabilities of some rows: of the chosen tokens and of the likeliest ones."""

    at: list[int]
    """The rows, among those that were chosen for."""
    nums_top: list[int]
    """How many alternatives each of them asked for."""
    chosen: torch.Tensor
    top: torch.Tensor
    top_ids: torch.Tensor


def is_asked_about(params: SamplingParams) -> bool:
    """Whether a request asks anything about single tokens."""
    return params.logprobs or bool(params.logit_bias) or params.min_tokens > 0


def retouched(
    logits: torch.Tensor, rows: Iterable[Row], eos_token_ids: Iterable[int]
) -> torch.Tensor:
    """Float32 scores [rows, vocabulary] with biases added; the same tensor where there are none.

    An end that comes before `min_tokens` gets minus infinity.
    """
    places: list[tuple[int, int]] = []
    amounts: list[float] = []
    for row in rows:
        params = row.params
        places += [(row.at, token_id) for token_id in params.logit_bias]
        amounts += params.logit_bias.values()
        if row.position < params.min_tokens:
            ends = {*eos_token_ids, *params.stop_token_ids}
            places += [(row.at, token_id) for token_id in ends]
            amounts += [-np.inf] * len(ends)
    if not places:
        return logits
    numbers = np.array(places, np.int32).T.ravel()
    packed = np.concatenate([numbers, np.array(amounts, np.float32).view(np.int32)])
    at, token_ids, added = torch.split(sent(packed, logits.device), [len(places)] * 3)
    where = (at.long(), token_ids.long())
    return logits.index_put(where, added.view(torch.float32), accumulate=True)


def described(logits: torch.Tensor, rows: list[Row], tokens: torch.Tensor) -> Described | None:
    """What is to be told of `tokens` [rows], chosen from these rows; nothing if nobody asks."""
    at = [number for number, row in enumerate(rows) if row.params.logprobs]
    if not at:
        return None
    nums_top = [rows[number].params.top_logprobs for number in at]
    places = np.array([[rows[number].at for number in at], at], np.int32)
    there = sent(places.ravel(), logits.device).long()
    scored, among = torch.split(there, len(at))
    logprobs = logits[scored].log_softmax(dim=-1)
    best = logprobs.topk(min(max(nums_top), logprobs.shape[1]))
    chosen = logprobs.gather(1, tokens[among].unsqueeze(1)).squeeze(1)
    return Described(at, nums_top, chosen, best.values, best.indices)


def ranked(logits: torch.Tensor, token_ids: Many[int], num_top: int) -> list[SampledToken]:
    """Of given tokens, such as a prompt's, what the scores before each of them said.

    `logits` is float32 [tokens, vocabulary]; `num_top` alternatives are named to each token.
    """
    given = sent(np.array(token_ids, np.int32), logits.device).long()[:, None]
    parts = []
    pieces = (torch.split(each, _MOST_RANKED) for each in (logits, given))
    for scores, its in zip(*pieces, strict=True):
        logprobs = scores.log_softmax(dim=-1)
        mine, best = logprobs.gather(1, its), logprobs.topk(min(num_top, logprobs.shape[1]))
        parts.append((mine[:, 0], 1 + (logprobs > mine).sum(dim=1), best.indices, best.values))
    told = (torch.cat(column).tolist() for column in zip(*parts, strict=True))
    return [
        SampledToken(token_id, logprob, tuple(map(TokenLogprob, top_ids, top)), rank)
        for token_id, logprob, rank, top_ids, top in zip(token_ids, *told, strict=True)
    ]


def sending(
    timeline: Timeline, chosen: tuple[torch.Tensor, torch.Tensor], about: Described | None
) -> Callable[[], list[tuple[SampledToken, float]]]:
    """Tokens [rows] and their scores [rows] on their way home, with what is told of them."""
    if about is None:
        bare = timeline.sending([*chosen])

        def bare_here() -> list[tuple[SampledToken, float]]:
            token_ids, scores = (part.tolist() for part in bare())
            return list(zip(map(SampledToken, token_ids), scores, strict=True))

        return bare_here
    arriving = timeline.sending([*chosen, about.chosen, about.top, about.top_ids])

    def here() -> list[tuple[SampledToken, float]]:
        token_ids, scores, logprobs, top, top_ids = (part.tolist() for part in arriving())
        found = [SampledToken(token_id) for token_id in token_ids]
        for number, (at, count) in enumerate(zip(about.at, about.nums_top, strict=True)):
            best = zip(top_ids[number][:count], top[number][:count], strict=True)
            alternatives = tuple(TokenLogprob(token_id, value) for token_id, value in best)
            found[at] = SampledToken(token_ids[at], logprobs[number], alternatives)
        return list(zip(found, scores, strict=True))

    return here
