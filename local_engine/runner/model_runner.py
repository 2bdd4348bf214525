"""Runs steps on one device: one forward pass for all items, then one choice per sampled item."""

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch

from local_engine.core.allocation import BlockCopy
from local_engine.core.scheduler import Item, Step
from local_engine.core.sequence import Sequence
from local_engine.kernels.linear import MakeLinear
from local_engine.kernels.paged_attention import choose_native
from local_engine.model.decoder import Decoder
from local_engine.model.spec import ModelSpec
from local_engine.runner.batch import FlatBatch, PagedAttention, flatten
from local_engine.runner.fusing import fuse, is_recordable
from local_engine.runner.graphs import DecodeGraphs, Record
from local_engine.runner.kv_pool import KvPool
from local_engine.runner.sampler import (
    History,
    SampledToken,
    choose_draw,
    describe_token,
    draw_plain,
    is_plain,
    sample,
)
from local_engine.text.grammar import Grammar


class Ranks(Protocol):
    """The other ranks: told what is about to be computed, before it is."""

    def step(self, step: Step, batch: FlatBatch | None) -> None: ...

    def text(self, token_ids: list[int]) -> None: ...


@dataclass(slots=True)
class Kept:
    """What a sequence keeps between its steps beside its blocks."""

    seed: int
    is_plain: bool
    """Scores and noise alone decide; asked once, not at every token."""
    grammar: Grammar | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A step laid out: everything computing needs of sequences that go on changing."""

    copies: tuple[BlockCopy, ...]
    step: Step
    batch: FlatBatch | None


@dataclass(slots=True)
class Result:
    """What a step added to one sequence."""

    tokens: list[SampledToken] = field(default_factory=list)
    prompt_logprobs: list[SampledToken] = field(default_factory=list)

    @property
    def token_ids(self) -> list[int]:
        return [token.token_id for token in self.tokens]


class ModelRunner:
    """Owns the decoder, its pool of keys and values, and the grammars of running sequences."""

    def __init__(  # noqa: PLR0913 - each is a choice of its own, made once at the start
        self,
        decoder: Decoder,
        device: torch.device,
        *,
        num_blocks: int,
        block_size: int = 16,
        num_host_blocks: int = 0,
        make_linear: MakeLinear | None = None,
        ranks: Ranks | None = None,
        is_deterministic: bool = False,
        kv_dtype: torch.dtype | None = None,
    ) -> None:
        self.spec: ModelSpec = decoder.spec
        self.dtype = decoder.model.norm.weight.dtype
        self._decoder = decoder.to(device).eval()
        shape = (self.spec.head_dim, block_size, kv_dtype)
        self._native = choose_native(device, self.dtype, *shape)
        fuse(
            self._decoder,
            device,
            self._native,
            make_linear=make_linear,
            is_deterministic=is_deterministic,
        )
        self._is_recordable = is_recordable(
            decoder, device, make_linear, is_deterministic=is_deterministic
        )
        self._draw = choose_draw(device)
        self._graphs: DecodeGraphs | None = None
        self._ranks = ranks
        self.device = device
        self._block_size = block_size
        self.pool = KvPool(
            self.spec,
            num_blocks,
            block_size,
            device=device,
            dtype=kv_dtype or self.dtype,
            num_host_blocks=num_host_blocks,
        )
        self._kept: dict[str, Kept] = {}
        self._last_tokens: dict[str, int] = {}

    def execute(self, step: Step) -> dict[str, Result]:
        """Prepare and compute a step."""
        return self.compute(self.prepare(step))

    def prepare(self, step: Step) -> Prepared:
        """Lay a step out; to be done before anything else is planned."""
        batch = flatten(step, self._block_size) if step.items else None
        return Prepared(step.copies, step, batch)

    @torch.inference_mode()
    def compute(self, prepared: Prepared) -> dict[str, Result]:
        """A result for every item of a step, with tokens if it was sampled."""
        self.pool.apply(prepared.copies)
        if prepared.batch is not None:
            prepared.batch.fill(self._last_tokens)
        if self._ranks is not None:
            self._ranks.step(prepared.step, prepared.batch)
        if prepared.batch is None:
            return {}
        batch = prepared.batch.to(self.device)
        results = {item.sequence.sequence_id: Result() for item in batch.items}
        logits = None if self._graphs is None else self._graphs.scores(batch)
        if logits is None:
            logits = self._scores(batch)
        if len(logits):
            self._choose(batch, logits, results)
        return results

    def _scores(self, batch: FlatBatch) -> torch.Tensor:
        """One forward pass, and the scores of the rows that somebody asked for."""
        attend = PagedAttention(self.spec, self.pool, batch, self._native)
        hidden = self._decoder(batch.token_ids, batch.positions, attend)
        return self._decoder.logits(hidden[batch.scored_rows])

    @property
    def clock_s(self) -> Callable[[], float]:
        """By which a step is timed, so that the scheduler knows how much the next one may hold.

        On a CPU it is what the computing thread worked: a busy neighbour makes every step longer,
        and smaller ones would only make more of them. A device and other ranks are waited for.
        """
        is_alone = self.device.type == "cpu" and self._ranks is None
        return time.thread_time if is_alone else time.monotonic

    @torch.inference_mode()
    def record_decodes(self, record: Record, most: int) -> None:
        """From now on steps of up to `most` single tokens are played from recordings.

        With other ranks, or experts that multiply one by one, they are computed as ever.
        """
        if self._ranks is not None or not self._is_recordable:
            return
        self._graphs = DecodeGraphs(
            self._scores,
            record,
            most=most,
            table_width=-(-self.spec.context_window // self._block_size),
            device=self.device,
        )

    @property
    def num_played(self) -> int:
        """Steps that were played from a recording."""
        return 0 if self._graphs is None else self._graphs.num_played

    @torch.inference_mode()
    def embed(self, token_ids: list[int]) -> list[float]:
        """The mean of a text's hidden states, scaled to length one."""
        if self._ranks is not None:
            self._ranks.text(token_ids)
        hidden = self._decoder(torch.tensor([token_ids], device=self.device))[0].float()
        mean = hidden.mean(dim=0)
        embedding: list[float] = (mean / mean.norm()).tolist()
        return embedding

    def attach_grammar(self, sequence: Sequence, grammar: Grammar) -> None:
        """From now on the sequence's tokens follow `grammar`."""
        self._state_of(sequence).grammar = grammar

    def free(self, sequence_id: str) -> None:
        """Drop what is kept for a sequence; unknown ids are fine."""
        self._kept.pop(sequence_id, None)
        self._last_tokens.pop(sequence_id, None)

    def _choose(self, batch: FlatBatch, logits: torch.Tensor, results: dict[str, Result]) -> None:
        native = self._native
        likeliest = (logits.argmax(dim=-1) if native is None else native.argmax(logits)).tolist()
        first, sampled = 0, []
        for item in batch.items:
            result = results[item.sequence.sequence_id]
            num_rows = self._describe_prompt(item, logits, first, result)
            first += num_rows
            if not item.is_sampled:
                continue
            num_rows = 1 + item.num_drafts if num_rows == 0 else 0
            # A prompt whose rows were all described ends in the row that is sampled.
            start = first if num_rows else first - 1
            sampled.append((item, range(start, start + 1 + item.num_drafts)))
            first += num_rows
        for row, token_id in self._drawn(logits, sampled).items():
            likeliest[row] = token_id
        for item, rows in sampled:
            result = results[item.sequence.sequence_id]
            result.tokens += self._accepted(item, logits, likeliest, rows)
            self._last_tokens[item.sequence.sequence_id] = result.tokens[-1].token_id

    def _drawn(self, logits: torch.Tensor, sampled: list[tuple[Item, range]]) -> dict[int, int]:
        """Tokens for all rows that scores and noise alone decide."""
        plain = [
            (row, item.sequence.params, self._state_of(item.sequence).seed, at)
            for item, rows in sampled
            if not item.sequence.params.is_greedy and self._state_of(item.sequence).is_plain
            for at, row in enumerate(rows, _position_of(item))
        ]
        return draw_plain(self._draw, logits, plain)

    def _accepted(
        self, item: Item, logits: torch.Tensor, likeliest: list[int], rows: range
    ) -> Iterator[SampledToken]:
        """Choose row by row while the draft says the same; the first that differs is the last.

        A draft is one token and no distribution, so choosing from the true distribution and
        comparing *is* rejection sampling: the draft stands with exactly its own probability, and
        the output is the one that would have been without drafts, draw by draw.
        """
        sequence = item.sequence
        params, kept = sequence.params, self._state_of(sequence)
        # Without placeholders: who looks at its own words is never planned ahead of them.
        written = list(sequence.output_token_ids) if params.needs_history else []
        drafts = [*sequence.draft_token_ids, None]
        for at, (row, draft) in enumerate(zip(rows, drafts, strict=False), _position_of(item)):
            if kept.is_plain:
                token = SampledToken(likeliest[row])
            else:
                allowed = None if kept.grammar is None else kept.grammar.allowed()
                history = History(
                    sequence.token_ids[: sequence.num_prompt_tokens],
                    written,
                    self.spec.eos_token_ids,
                    allowed,
                    at,
                )
                token = sample(logits[row].cpu(), params, history, kept.seed)
            if kept.grammar is not None:
                kept.grammar.accept(token.token_id)
            written.append(token.token_id)
            yield token
            if token.token_id != draft:
                return

    def _describe_prompt(self, item: Item, logits: torch.Tensor, first: int, result: Result) -> int:
        """Log-probabilities of prompt tokens, where asked for; returns the rows they took."""
        sequence, num_top = item.sequence, item.sequence.params.prompt_logprobs
        if num_top is None or item.start >= sequence.num_prompt_tokens:
            return 0
        for at in range(item.start, min(item.end, sequence.num_prompt_tokens - 1)):
            row = logits[first + at - item.start].cpu()
            described = describe_token(row, sequence.token_ids[at + 1], num_top)
            result.prompt_logprobs.append(described)
        return item.end - item.start

    def _state_of(self, sequence: Sequence) -> Kept:
        found = self._kept.get(sequence.sequence_id)
        if found is None:
            seed = sequence.params.seed
            plain = is_plain(sequence.params)
            found = Kept(secrets.randbits(63) if seed is None else seed, plain)
            self._kept[sequence.sequence_id] = found
        return found


def _position_of(item: Item) -> int:
    """How many tokens were written before the first one that this item chooses."""
    return item.end - item.num_drafts - item.sequence.num_prompt_tokens


def choose_device(name: str) -> torch.device:
    """The device called `name`; "auto" is the GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)
