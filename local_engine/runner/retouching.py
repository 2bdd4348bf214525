"""What requests ask about single tokens, for many rows at once.

Before the choice: penalties, biases, bad words, and ends that would come too early. After it: how
likely the model itself found what was chosen, and what else. `sampler` says the same for one row.
"""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Many
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from local_engine.runner.batch import sent
from local_engine.runner.drawing import Row
from local_engine.runner.sampler import History, SampledToken, TokenLogprob, forbidden
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
    is_biased = bool(params.logit_bias) or params.min_tokens > 0
    return params.logprobs or is_biased or params.needs_history


@contextmanager
def retouched(
    logits: torch.Tensor, rows: Many[Row], eos_token_ids: Many[int]
) -> Iterator[torch.Tensor]:
    """Float32 scores [rows, vocabulary] as `sampler.adjusted` has them, to the last bit.

    They are `logits` itself, which is as it was afterwards: no vocabulary is copied for it.
    No place is written twice by one operation, so a GPU comes to the same in whatever order.
    """
    seen, penalties = _penalties(rows)
    touched, added = _additions(rows, eos_token_ids)
    if not (seen.size or touched.size):
        yield logits
        return
    numbers = [part.view(np.int32).ravel() for part in (seen, touched, penalties, added)]
    sizes = [seen.shape[1]] * 2 + [touched.shape[1]] * 2 + [seen.shape[1]] * 2 + [added.size]
    parts = torch.split(sent(np.concatenate(numbers), logits.device), sizes)
    factors, lost, more = (part.view(torch.float32) for part in parts[4:])
    before: list[tuple[tuple[torch.Tensor, ...], torch.Tensor]] = []
    try:
        if seen.size:
            where, found = _found(logits, *parts[:2])
            before.append((where, found))
            logits[where] = torch.where(found > 0, found / factors, found * factors) - lost
        if touched.size:
            where, found = _found(logits, *parts[2:4])
            before.append((where, found))
            logits[where] = found + more
        yield logits
    finally:
        for where, found in reversed(before):
            logits[where] = found


def _found(
    logits: torch.Tensor, *where: torch.Tensor
) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
    """Places and what stands there."""
    places = tuple(part.long() for part in where)
    return places, logits[places]


def _penalties(rows: Many[Row]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Rows and tokens [2, places]; what repetition divides by and the rest takes off there."""
    places: list[npt.NDArray[np.int32]] = [np.zeros((2, 0), np.int32)]
    amounts: list[npt.NDArray[np.float32]] = [np.zeros((2, 0), np.float32)]
    for row in rows:
        if row.seen is not None and len(token_ids := row.seen.token_ids):
            places.append(np.stack([np.full_like(token_ids, row.at), token_ids]))
            lost = row.seen.amounts.astype(np.float32)
            amounts.append(np.stack([np.full_like(lost, row.params.repetition_penalty), lost]))
    return np.concatenate(places, axis=1), np.concatenate(amounts, axis=1)


def _additions(
    rows: Many[Row], eos_token_ids: Many[int]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Rows and tokens [2, places], and what is added there: minus infinity forbids a token."""
    places: list[tuple[int, int]] = []
    amounts: list[float] = []
    for row in rows:
        params = row.params
        if not (params.logit_bias or params.bad_token_ids or row.position < params.min_tokens):
            continue
        tail = () if row.seen is None else row.seen.tail
        history = History((), tail, eos_token_ids, num_written=row.position)
        added = params.logit_bias | dict.fromkeys(forbidden(params, history), -np.inf)
        places += [(row.at, token_id) for token_id in added]
        amounts += added.values()
    return np.array(places, np.int32).reshape(-1, 2).T, np.array(amounts, np.float32)


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
