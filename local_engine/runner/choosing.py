"""Chooses the tokens of a step from its scores, on the device where it can.

If every row can be chosen on the device, nothing waits: the tokens stay there, the next step reads
them there, and their numbers arrive while it is computed. If some request needs more (a grammar,
allowed tokens, drafts, scores of a prompt), rows are chosen one by one, as `sampler` says.
"""

import math
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from local_engine.core.sequence import Sequence
from local_engine.core.step import Item
from local_engine.kernels.fast import FastKernels
from local_engine.model.spec import ModelSpec
from local_engine.runner.batch import FlatBatch, moved_together
from local_engine.runner.drawing import Row, choose_drawing
from local_engine.runner.retouching import described, is_asked_about, ranked, retouched, sending
from local_engine.runner.sampler import History, SampledToken, describe_token, sample
from local_engine.runner.seen import Seen
from local_engine.runner.timeline import Timeline
from local_engine.text.grammar import Grammar, GrammarRefused


@dataclass(slots=True)
class Kept:
    """What a sequence keeps between its steps, besides its blocks."""

    seed: int
    is_drawn: bool
    """Whether many rows like this can be drawn at once; decided once, not at every token."""
    is_likeliest: bool
    """Whether it is always the likeliest token, and nothing else is asked."""
    grammar: Grammar | None = None
    seen: Seen | None = None
    """The tokens before, if penalties or bad words need them."""
    allowed: torch.Tensor | None = None
    """True for each token of the vocabulary that the request allows; None if all are."""
    num_described: int = 0
    """Prompt tokens whose log-probabilities were reported: a sequence that starts over repeats
    none."""


@dataclass(slots=True)
class Result:
    """What a step added to one sequence."""

    tokens: list[SampledToken] = field(default_factory=list)
    prompt_logprobs: list[SampledToken] = field(default_factory=list)
    refusal: str | None = None
    """Why its grammar cannot be followed any further; the step's other sequences are not
    affected."""
    is_broken: bool = False
    """The model's scores are not numbers, as after an overflow: whatever was chosen is no
    answer."""

    @property
    def token_ids(self) -> list[int]:
        return [token.token_id for token in self.tokens]


@dataclass(slots=True)
class Choice:
    """A step's tokens, arrived or still on their way."""

    collect: Callable[[], dict[str, Result]]
    """Waits for them, if necessary; to be called once."""
    rows: dict[str, int] | None = None
    """The place of each sequence's token in `Chooser.last`; None if rows are chosen one by one."""


# If there are more rows, they are chosen one by one, like those that need a closer look.
_MOST_ROWS = 4096


class Chooser:
    """Keeps the seeds and grammars of running sequences, and chooses their tokens."""

    def __init__(
        self,
        spec: ModelSpec,
        device: torch.device,
        native: FastKernels | None,
        timeline: Timeline,
    ) -> None:
        self._spec = spec
        self._native = native
        self._timeline = timeline
        self._drawing = choose_drawing(device)
        self._kept: dict[str, Kept] = {}
        self.last: torch.Tensor | None = None
        """The tokens of the previous step, if the device works asynchronously: always in the same
        place, as recordings require."""
        if timeline.works_on:
            self.last = torch.zeros(_MOST_ROWS, dtype=torch.int64, device=device)

    def known(self, token_ids: torch.Tensor, sources: torch.Tensor) -> torch.Tensor:
        """`token_ids`, with the tokens chosen in the previous step where `sources` says so."""
        if self.last is None:
            return token_ids
        return torch.where(sources < 0, token_ids, self.last[sources.clamp(min=0)])

    def choose(self, batch: FlatBatch, logits: torch.Tensor) -> Choice:
        """The results of `logits` [scored rows, vocabulary] for every item of the batch."""
        sampled = [item for item in batch.items if item.is_sampled]
        newest = self._newest(batch, sampled, logits.device)
        if self.last is not None and self._is_all_drawn(batch, sampled):
            return self._choose_together(batch, logits, sampled, newest, self.last)
        return Choice(lambda: self._choose_singly(batch, logits, newest))

    def _newest(self, batch: FlatBatch, sampled: list[Item], device: torch.device) -> torch.Tensor:
        """The token that each scored row has read last; nothing if no row looks back."""
        if not any(item.sequence.params.looks_back for item in sampled):
            return batch.token_ids[:0]
        rows = batch.scored_rows
        if self.last is None:
            return batch.token_ids[rows]
        return self.known(*moved_together([batch.token_ids[rows], batch.sources[rows]], device))

    def attach_grammar(self, sequence: Sequence, grammar: Grammar) -> None:
        self._state_of(sequence).grammar = grammar

    def free(self, sequence_id: str) -> None:
        self._kept.pop(sequence_id, None)

    def _is_all_drawn(self, batch: FlatBatch, sampled: list[Item]) -> bool:
        return len(batch.scored_rows) == len(sampled) <= _MOST_ROWS and all(
            not item.num_drafts
            and self._state_of(item.sequence).is_drawn
            and item.sequence.params.prompt_logprobs is None
            for item in sampled
        )

    def _choose_together(
        self,
        batch: FlatBatch,
        logits: torch.Tensor,
        sampled: list[Item],
        newest: torch.Tensor,
        last: torch.Tensor,
    ) -> Choice:
        names = {item.sequence.sequence_id: row for row, item in enumerate(sampled)}
        if not sampled:
            return Choice(lambda: {item.sequence.sequence_id: Result() for item in batch.items}, {})
        rows: list[Row] = []
        if not all(self._state_of(item.sequence).is_likeliest for item in sampled):
            rows = [self._row(row, item, _position_of(item)) for row, item in enumerate(sampled)]
        with retouched(logits, rows, self._spec.eos_token_ids, newest) as scores:
            if all(row.params.is_greedy for row in rows):
                tokens = self._likeliest(scores)
            else:
                tokens = self._drawing.draw(scores, rows)
        last[: len(sampled)].copy_(tokens)
        # The chosen score may not be a number: the model's score of the token is returned with it.
        weights = logits.gather(1, tokens.unsqueeze(1)).squeeze(1)
        arriving = sending(self._timeline, (tokens, weights), described(logits, rows, tokens))

        def collect() -> dict[str, Result]:
            results = {item.sequence.sequence_id: Result() for item in batch.items}
            for item, (token, weight) in zip(sampled, arriving(), strict=True):
                result = results[item.sequence.sequence_id]
                result.is_broken = not math.isfinite(weight)
                result.tokens += () if result.is_broken else (token,)
            return results

        return Choice(collect, names)

    def _choose_singly(
        self, batch: FlatBatch, logits: torch.Tensor, newest: torch.Tensor
    ) -> dict[str, Result]:
        results = {item.sequence.sequence_id: Result() for item in batch.items}
        if not len(logits):
            return results
        first, sampled = 0, []
        for item in batch.items:
            result = results[item.sequence.sequence_id]
            num_rows = self._describe_prompt(item, logits, first, result)
            first += num_rows
            if not item.is_sampled:
                continue
            num_rows = 1 + item.num_drafts if num_rows == 0 else 0
            # If all rows of a prompt were described, the last one is the row that is sampled.
            start = first if num_rows else first - 1
            sampled.append((item, range(start, start + 1 + item.num_drafts)))
            first += num_rows
        drawn = [
            self._row(row, item, at)
            for item, rows in sampled
            if self._state_of(item.sequence).is_drawn
            for at, row in enumerate(rows, _position_of(item))
        ]
        with retouched(logits, drawn, self._spec.eos_token_ids, newest) as scores:
            likeliest = self._likeliest(scores).tolist()
            for row, token_id in self._drawn(scores, drawn).items():
                likeliest[row] = token_id
        for item, rows in sampled:
            result = results[item.sequence.sequence_id]
            try:
                for token in self._accepted(item, logits, likeliest, rows, newest):
                    result.tokens.append(token)
            except GrammarRefused as error:
                result.refusal = str(error)
        _break_off(logits, sampled, results)
        return results

    def _likeliest(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.argmax(dim=-1) if self._native is None else self._native.argmax(logits)

    def _row(self, row: int, item: Item, position: int) -> Row:
        sequence, kept = item.sequence, self._state_of(item.sequence)
        if (seen := kept.seen) is not None:
            end = sequence.num_prompt_tokens + _position_of(item) - 1
            seen.note(sequence.token_ids[sequence.num_prompt_tokens + seen.num_written : end])
            # The row counts only if all drafts before it are accepted; its newest token is the last
            # of them.
            if num_drafts := position - _position_of(item):
                drafts = sequence.draft_token_ids[: num_drafts - 1]
                seen = seen.followed_by([sequence.token_ids[end], *drafts])
        return Row(row, sequence.params, kept.seed, position, seen)

    def _drawn(self, scores: torch.Tensor, rows: list[Row]) -> dict[int, int]:
        """Tokens for those rows whose choice also depends on noise."""
        noisy = [row for row in rows if not row.params.is_greedy]
        if not noisy:
            return {}
        chosen = self._drawing.draw(scores, noisy).tolist()
        return dict(zip([row.at for row in noisy], chosen, strict=True))

    def _accepted(
        self,
        item: Item,
        logits: torch.Tensor,
        likeliest: list[int],
        rows: range,
        newest: torch.Tensor,
    ) -> Iterator[SampledToken]:
        """Choose row by row while the draft agrees; the first token that differs is the last.

        A draft is one token and no distribution, so choosing from the true distribution and
        comparing *is* rejection sampling: the draft is kept with exactly its own probability, and
        the output is the one that would have been without drafts, draw by draw.
        """
        sequence = item.sequence
        params, kept = sequence.params, self._state_of(sequence)
        written: list[int] = []
        if params.looks_back and not kept.is_drawn and (num_written := _position_of(item)):
            end = sequence.num_prompt_tokens + num_written - 1
            written = sequence.token_ids[sequence.num_prompt_tokens : end]
            # The sequence itself may not know this token yet.
            written.append(int(newest[rows.start]))
        drafts = [*sequence.draft_token_ids, None]
        for at, (row, draft) in enumerate(zip(rows, drafts, strict=False), _position_of(item)):
            if kept.is_drawn:
                token = SampledToken(likeliest[row])
                if params.logprobs:
                    scores = logits[row].cpu()
                    token = describe_token(scores, token.token_id, params.top_logprobs)
            else:
                token = self._looked_at(sequence, logits[row].cpu(), kept, written, at)
            if kept.grammar is not None:
                kept.grammar.accept(token.token_id)
            written.append(token.token_id)
            yield token
            if token.token_id != draft:
                return

    def _looked_at(
        self, sequence: Sequence, scores: torch.Tensor, kept: Kept, written: list[int], at: int
    ) -> SampledToken:
        history = History(
            sequence.token_ids[: sequence.num_prompt_tokens],
            written,
            self._spec.eos_token_ids,
            kept.allowed if kept.grammar is None else kept.grammar.allowed(),
            at,
        )
        if not math.isfinite(scores.max()):
            return SampledToken(int(scores.argmax()))  # It is not numbers that would be weighed.
        return sample(scores, sequence.params, history, kept.seed)

    def _describe_prompt(self, item: Item, logits: torch.Tensor, first: int, result: Result) -> int:
        """Log-probabilities of prompt tokens, if asked for; returns the rows they took."""
        sequence, num_top = item.sequence, item.sequence.params.prompt_logprobs
        if num_top is None or item.start >= sequence.num_prompt_tokens:
            return 0
        kept, end = self._state_of(sequence), min(item.end, sequence.num_prompt_tokens - 1)
        start = max(item.start, kept.num_described)
        if start < end:
            rows = logits[first + start - item.start : first + end - item.start]
            result.prompt_logprobs += ranked(rows, sequence.token_ids[start + 1 : end + 1], num_top)
        kept.num_described = max(kept.num_described, end)
        return item.end - item.start

    def _state_of(self, sequence: Sequence) -> Kept:
        found = self._kept.get(sequence.sequence_id)
        if found is None:
            params = sequence.params
            prompt = sequence.token_ids[: sequence.num_prompt_tokens]
            is_drawn = self._drawing.can_draw(params)
            found = Kept(
                seed=secrets.randbits(63) if params.seed is None else params.seed,
                is_drawn=is_drawn,
                seen=Seen(params, prompt) if is_drawn and params.looks_back else None,
                is_likeliest=params.is_greedy and not is_asked_about(params),
                allowed=self._mask_of(params.allowed_token_ids),
            )
            self._kept[sequence.sequence_id] = found
        return found

    def _mask_of(self, token_ids: tuple[int, ...] | None) -> torch.Tensor | None:
        if token_ids is None:
            return None
        mask = torch.zeros(self._spec.vocab_size, dtype=torch.bool)
        mask[list(token_ids)] = True
        return mask


def _break_off(
    logits: torch.Tensor, sampled: list[tuple[Item, range]], results: dict[str, Result]
) -> None:
    """Withdraw what was chosen from scores that are not numbers, and report it.

    The chosen score tells: a NaN or an infinity among the scores counts as the highest.
    """
    chosen = [
        (row, token.token_id, results[item.sequence.sequence_id])
        for item, rows in sampled
        for row, token in zip(rows, results[item.sequence.sequence_id].tokens, strict=False)
    ]
    if not chosen:
        return
    rows, token_ids = [row for row, _, _ in chosen], [token_id for _, token_id, _ in chosen]
    # On a CPU numpy takes a sixth of torch's time for so little.
    scores = logits.numpy() if logits.is_cpu else logits
    are_numbers = np.isfinite(torch.as_tensor(scores[rows, token_ids]).cpu().numpy())
    for is_number, (_, _, result) in zip(are_numbers.tolist(), chosen, strict=True):
        result.is_broken |= not is_number
    for _, _, result in chosen:
        if result.is_broken:
            result.tokens = []


def _position_of(item: Item) -> int:
    """How many tokens were written before the first one that this item chooses."""
    return item.end - item.num_drafts - item.sequence.num_prompt_tokens
