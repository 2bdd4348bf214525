"""Runs steps on one device: one forward pass for all items, then one choice per sampled item.

A step is launched and later collected. A GPU works on its own between the two, and the next step
may be launched before this one is collected: its tokens are read on the device, where they were
chosen.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from local_engine.core.allocation import BlockCopy
from local_engine.core.sequence import Sequence
from local_engine.core.step import Step
from local_engine.model.decoder import Decoder
from local_engine.model.errors import ModelRefused
from local_engine.model.spec import ModelSpec
from local_engine.runner.batch import FlatBatch, PagedAttention, flatten
from local_engine.runner.choosing import Choice, Chooser, Result
from local_engine.runner.fusing import is_recordable
from local_engine.runner.graphs import DecodeGraphs, Record
from local_engine.runner.share import Share, ShareOptions
from local_engine.runner.tables import BlockTables
from local_engine.runner.timeline import Mark, Timeline, choose_timeline
from local_engine.text.grammar import Grammar


class Ranks(Protocol):
    """The other ranks: each is told what to compute before rank 0 computes it."""

    def step(self, step: Step, batch: FlatBatch | None) -> None: ...

    def text(self, token_ids: list[int]) -> None: ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """A step laid out with all that computing needs, since its sequences keep changing."""

    copies: tuple[BlockCopy, ...]
    step: Step
    batch: FlatBatch | None


@dataclass(slots=True)
class Launched:
    """A step that the device has been told to compute."""

    choice: Choice | None = None
    marks: tuple[Mark, Mark] | None = None
    """Times before and after, on the device's own clock."""
    results: dict[str, Result] | None = None
    error: Exception | None = None
    """Why there are no results; raised only when they are collected."""

    @property
    def took_s(self) -> float:
        """How long the device worked on it; known once its results have arrived."""
        assert self.marks is not None, "only a device that works on by itself has its own time"
        started, ended = self.marks
        return started.seconds_to(ended)


class ModelRunner:
    """Owns the decoder, its pool of keys and values, and the grammars of running sequences."""

    def __init__(
        self,
        decoder: Decoder,
        device: torch.device,
        options: ShareOptions,
        *,
        ranks: Ranks | None = None,
        timeline: Timeline | None = None,
    ) -> None:
        share = Share(decoder, device, options)
        self.spec: ModelSpec = share.spec
        self.dtype, self.device = share.dtype, device
        self._decoder, self._native, self.pool = share.decoder, share.native, share.pool
        self._is_recordable = is_recordable(
            decoder, device, options.make_linear, is_deterministic=options.is_deterministic
        )
        self.timeline = timeline or choose_timeline(device)
        self._chooser = Chooser(self.spec, device, self._native, self.timeline)
        self._graphs: DecodeGraphs | None = None
        self._ranks = ranks
        self._block_size = options.block_size
        self._tables = BlockTables()
        self._launched = Launched()
        self._last_tokens: dict[str, int] = {}

    def execute(self, step: Step) -> dict[str, Result]:
        """Prepare and compute a step."""
        return self.compute(self.prepare(step))

    def prepare(self, step: Step) -> Prepared:
        """Lay a step out; call it before anything else is planned."""
        batch = flatten(step, self._block_size, self._tables) if step.items else None
        return Prepared(step.copies, step, batch)

    def compute(self, prepared: Prepared) -> dict[str, Result]:
        """A result for every item of a step, with tokens if it was sampled."""
        return self.collect(self.launch(prepared))

    @torch.inference_mode()
    def launch(self, prepared: Prepared) -> Launched:
        """Tell the device what to compute; a GPU goes on working after this returns."""
        before = self._launched.choice
        if before is not None and before.rows is None:
            # Tokens that are chosen row by row must be known before the next step uses them.
            self._settle(self._launched)
        started = self.timeline.mark()
        self.pool.apply(prepared.copies)
        batch, launched = prepared.batch, Launched()
        if batch is not None and batch.pending:
            batch.fill(self._last_tokens, (before and before.rows) or {})
        if self._ranks is not None:
            self._ranks.step(prepared.step, batch)
        if batch is not None:
            logits = None if self._graphs is None else self._graphs.scores(batch)
            if logits is None:
                logits = self._scores(batch.to(self.device))
            launched.choice = self._chooser.choose(batch, logits)
            self._launched = launched
        if started is not None:
            ended = self.timeline.mark()
            assert ended is not None, "the device is the same"
            launched.marks = (started, ended)
        return launched

    @torch.inference_mode()
    def collect(self, launched: Launched) -> dict[str, Result]:
        """Wait for a step's results, if necessary; raises any error from choosing its tokens."""
        self._settle(launched)
        if launched.error is not None:
            raise launched.error
        return launched.results or {}

    def _settle(self, launched: Launched) -> None:
        if launched.results is not None or launched.error is not None or launched.choice is None:
            return
        try:
            launched.results = launched.choice.collect()
        except Exception as error:  # noqa: BLE001 - the step after this one has done nothing wrong
            launched.error = error
            return
        for name, result in launched.results.items():
            if result.tokens:
                self._last_tokens[name] = result.tokens[-1].token_id

    def _scores(self, batch: FlatBatch) -> torch.Tensor:
        """One forward pass, and the scores of the rows that need them."""
        attend = PagedAttention(self.spec, self.pool, batch, self._native)
        token_ids = self._chooser.known(batch.token_ids, batch.sources)
        hidden = self._decoder(token_ids, batch.positions, attend)
        return self._decoder.logits(hidden[batch.scored_rows])

    @property
    def clock_s(self) -> Callable[[], float]:
        """The clock that times steps, so that the scheduler knows how much the next one may hold.

        On a CPU it counts the computing thread's own time: a busy neighbour makes every step
        longer, and smaller steps would only be more steps. With a device or other ranks it counts
        the time waited.
        """
        is_alone = self.device.type == "cpu" and self._ranks is None
        return time.thread_time if is_alone else time.monotonic

    @torch.inference_mode()
    def record_decodes(self, record: Record, most: int) -> None:
        """From now on, replay steps of up to `most` single tokens from recordings.

        With other ranks, or experts that multiply one by one, they are computed without recordings.
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

    def is_usable(self) -> bool:
        """Whether the device still computes: after an invalid access a process has lost its GPU."""
        try:
            self.timeline.catch_up()
        except RuntimeError:
            return False
        return True

    @property
    def num_played(self) -> int:
        """Steps that were replayed from a recording."""
        return 0 if self._graphs is None else self._graphs.num_played

    @torch.inference_mode()
    def embed(self, token_ids: list[int]) -> list[float]:
        """The mean of a text's hidden states, scaled to length one.

        Raises `FloatingPointError` if that is not a finite number.
        """
        if self._ranks is not None:
            self._ranks.text(token_ids)
        hidden = self._decoder(torch.tensor([token_ids], device=self.device))[0].float()
        mean = hidden.mean(dim=0)
        norm = float(mean.norm())
        if not 0.0 < norm < math.inf:
            raise FloatingPointError("the hidden states of a text are no numbers")
        embedding: list[float] = (mean / norm).tolist()
        return embedding

    def attach_grammar(self, sequence: Sequence, grammar: Grammar) -> None:
        """From now on the sequence's tokens follow `grammar`."""
        self._chooser.attach_grammar(sequence, grammar)

    def free(self, sequence_id: str) -> None:
        """Drop what is kept for a sequence; unknown ids are fine."""
        self._chooser.free(sequence_id)
        self._tables.free(sequence_id)
        self._last_tokens.pop(sequence_id, None)


def choose_device(name: str) -> torch.device:
    """The device called `name`; "auto" is the GPU if there is one. Raises `ModelRefused`."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelRefused(f"there is no such GPU here: {name}")
    return device
