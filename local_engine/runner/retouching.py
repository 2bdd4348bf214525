"""Applies requests' penalties and biases to scores of many rows at once, and reports likelihoods.

Before the choice: penalties, biases, bad words, and ends that would come too early. After it: how
likely the model itself found the chosen token, and which others it found likely. `sampler` does the
same for one row.
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


# This many rows over a complete vocabulary fit into a CPU's caches: with 64 each costs three times
# more.
_MOST_RANKED = 8


@dataclass(frozen=True, slots=True)
class Described:
    """Log-probabilities of some rows: of the chosen tokens and of the likeliest ones."""

    at: list[int]
    """The rows, among those for which tokens were chosen."""
    nums_top: list[int]
    """How many alternatives each of them asked for."""
    chosen: torch.Tensor
    top: torch.Tensor
    top_ids: torch.Tensor


def is_asked_about(params: SamplingParams) -> bool:
    """Whether a request asks for anything about single tokens."""
    is_biased = bool(params.logit_bias) or params.min_tokens > 0
    return params.logprobs or is_biased or params.looks_back or params.is_narrowed


@contextmanager
def retouched(
    logits: torch.Tensor, rows: Many[Row], eos_token_ids: Many[int], newest: torch.Tensor
) -> Iterator[torch.Tensor]:
    """Float32 scores [rows, vocabulary], bit for bit as `sampler.adjusted` gives them.

    `newest` [rows] is the token that each row has read last: if that was written, `Row.seen` is
    what came before it, since only the device may know it yet.

    They are `logits` itself, which is restored afterwards: no vocabulary is copied. One operation
    never writes two values to a place, so a GPU gives the same result in any order.
    """
    asked = (_penalties(rows), _firsts(rows), _additions(rows, eos_token_ids), _begun(rows))
    if not any(whole.size for wholes, _ in asked for whole in wholes):
        yield logits
        return
    wholes, amounts = _sent(asked, logits.device)
    at, token_ids, first_at, touched_at, touched_ids, begun_at, begun_ids, begun_by = wholes
    factors, lost, more, first_factors, first_lost, added = amounts
    before: list[tuple[tuple[torch.Tensor, ...], torch.Tensor]] = []

    def found(*where: torch.Tensor) -> torch.Tensor:
        before.append((where, logits[where]))
        return before[-1][1]

    try:
        if at.numel() or first_at.numel():
            written = newest[first_at]
            first, scores = found(first_at, written), found(at, token_ids)
            logits[first_at, written] = _penalised(first, first_factors, first_lost)
            # A newest token that was also written before is among these, which have the last word.
            lost = torch.where(token_ids == newest[at], more, lost)
            logits[at, token_ids] = _penalised(scores, factors, lost)
        if touched_at.numel():
            logits[touched_at, touched_ids] = found(touched_at, touched_ids) + added
        if begun_at.numel():
            # Several words may end alike: what is added twice is 0, or minus infinity.
            found(begun_at, begun_ids)
            ends = torch.where(newest[begun_at] == begun_by, -torch.inf, 0.0)
            logits.index_put_((begun_at, begun_ids), ends, accumulate=True)
        yield logits
    finally:
        for where, scores in reversed(before):
            logits[where] = scores


_Wholes = list[npt.NDArray[np.int32]]
_Amounts = list[npt.NDArray[np.float32]]


def _sent(
    asked: Many[tuple[_Wholes, _Amounts]], device: torch.device
) -> tuple[Many[torch.Tensor], Many[torch.Tensor]]:
    """All integers and all amounts on a device, by one copy."""
    wholes = [part for parts, _ in asked for part in parts]
    amounts = [part for _, parts in asked for part in parts]
    packed = sent(np.concatenate([*wholes, *(part.view(np.int32) for part in amounts)]), device)
    sizes = [[part.size for part in parts] for parts in (wholes, amounts)]
    ids, numbers = torch.split(packed, [sum(each) for each in sizes])
    return torch.split(ids.long(), sizes[0]), torch.split(numbers.view(torch.float32), sizes[1])


def _penalised(scores: torch.Tensor, factors: torch.Tensor, lost: torch.Tensor) -> torch.Tensor:
    return torch.where(scores > 0, scores / factors, scores * factors) - lost


def _penalties(rows: Many[Row]) -> tuple[_Wholes, _Amounts]:
    """Rows and tokens; the divisor for repetition, and what the other penalties subtract.

    The last amounts apply if the token is also the newest one.
    """
    wholes = [np.zeros((2, 0), np.int32)]
    amounts = [np.zeros((3, 0), np.float32)]
    for row in rows:
        if row.seen is not None and len(token_ids := row.seen.token_ids):
            wholes.append(np.stack([np.full_like(token_ids, row.at), token_ids]))
            lost = [row.seen.amounts(more).astype(np.float32) for more in (0, row.position > 0)]
            factors = np.full_like(lost[0], row.params.repetition_penalty)
            amounts.append(np.stack([factors, *lost]))
    return [*np.concatenate(wholes, axis=1)], [*np.concatenate(amounts, axis=1)]


def _firsts(rows: Many[Row]) -> tuple[_Wholes, _Amounts]:
    """Rows; the divisor of their newest token if it is new, and what is subtracted from it."""
    found = [
        (row.at, row.params.repetition_penalty, row.seen.first_amount)
        for row in rows
        if row.seen is not None and row.position > 0 and row.params.has_penalties
    ]
    at, factors, lost = np.array(found, np.float64).reshape(-1, 3).T
    return [at.astype(np.int32)], [factors.astype(np.float32), lost.astype(np.float32)]


def _additions(rows: Many[Row], eos_token_ids: Many[int]) -> tuple[_Wholes, _Amounts]:
    """Rows and tokens, and what is added there: minus infinity forbids a token."""
    places: list[tuple[int, int]] = []
    amounts: list[float] = []
    for row in rows:
        params = row.params
        if not (params.logit_bias or params.bad_token_ids or row.position < params.min_tokens):
            continue
        history = History(eos_token_ids=eos_token_ids, num_written=row.position)
        added = params.logit_bias | dict.fromkeys(forbidden(params, history), -np.inf)
        places += [(row.at, token_id) for token_id in added]
        amounts += added.values()
    return [*np.array(places, np.int32).reshape(-1, 2).T], [np.array(amounts, np.float32)]


def _begun(rows: Many[Row]) -> tuple[_Wholes, _Amounts]:
    """Rows, tokens that end a bad word, and the token before, which completes its start."""
    found = [
        (row.at, last, by)
        for row in rows
        if row.seen is not None and row.position > 0
        for *start, by, last in (word for word in row.params.bad_token_ids if len(word) > 1)
        if not start or row.seen.tail[-len(start) :] == start
    ]
    return [*np.array(found, np.int32).reshape(-1, 3).T], []


def described(logits: torch.Tensor, rows: list[Row], tokens: torch.Tensor) -> Described | None:
    """What to report about `tokens` [rows], chosen from these rows; None if nobody asks."""
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
    """The log-probabilities of given tokens, such as a prompt's, by the scores before each.

    `logits` is float32 [tokens, vocabulary]; `num_top` alternatives are given for each token.
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
    """Start sending tokens [rows] and scores [rows] to the host, with what is reported on them."""
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
