"""A sequence: one request's tokens on their way through prefill and decode."""

from collections.abc import Sequence as Tokens
from dataclasses import KW_ONLY, InitVar, dataclass, field
from enum import StrEnum

from local_engine.core.tiers import Tier
from local_engine.sampling_params import SamplingParams


# Stands for a token that is still being computed when the next step is planned (overlap).
PENDING = -1


class FinishReason(StrEnum):
    """Why a sequence ended; the first two are what clients see."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


class PromptTooLong(ValueError):
    """The prompt leaves no room for a single output token in the context window."""

    def __init__(self, num_prompt_tokens: int, context_window: int) -> None:
        super().__init__(
            f"This model's context window is {context_window} tokens,"
            f" but the messages resulted in {num_prompt_tokens} tokens."
        )


@dataclass(slots=True, eq=False, repr=False)
class Sequence:
    """Prompt and output tokens, how many of them are computed, and how it ended.

    Whatever a sequence still needs is one number, `num_known - num_computed`: a prompt, a decode
    step, drafts to check and a restart after preemption are the same case.
    """

    sequence_id: str
    token_ids: list[int]
    params: SamplingParams
    _: KW_ONLY
    context_window: InitVar[int]
    tier: Tier = Tier.STANDARD
    tenant: str = ""
    salt: bytes = b""
    is_zeroed: bool = False
    num_prompt_tokens: int = field(init=False)
    max_tokens: int = field(init=False)
    max_length: int = field(init=False)
    finish_reason: FinishReason | None = field(default=None, init=False)
    is_grammar_ready: bool = field(default=True, init=False)
    num_computed_tokens: int = field(default=0, init=False)
    num_cached_tokens: int = field(default=0, init=False)
    num_pending: int = field(default=0, init=False)
    num_preemptions: int = field(default=0, init=False)
    num_passed: int = field(default=0, init=False)
    """How many later sequences of a better tier started before it."""
    num_published: int = field(default=0, init=False)
    block_ids: list[int] = field(default_factory=list, init=False)
    block_hashes: list[bytes] = field(default_factory=list, init=False)
    draft_token_ids: list[int] = field(default_factory=list, init=False)
    arrived_at_step: int = field(default=0, init=False)
    epoch: int = field(default=0, init=False)
    """Counts restarts: results of a step planned before the last restart are dropped."""

    def __post_init__(self, context_window: int) -> None:
        if not self.token_ids:
            raise ValueError("a sequence needs at least one prompt token")
        self.token_ids = list(self.token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        room = context_window - self.num_prompt_tokens
        if room < 1:
            raise PromptTooLong(self.num_prompt_tokens, context_window)
        # A cap above the window is not an error: output never exceeds what was asked for.
        wanted = self.params.max_tokens
        self.max_tokens = room if wanted is None else min(room, wanted)
        self.max_length = self.num_prompt_tokens + self.max_tokens

    @property
    def output_token_ids(self) -> Tokens[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_known(self) -> int:
        """Tokens that can be computed now: written ones, pending ones, drafts."""
        return len(self.token_ids) + self.num_pending + len(self.draft_token_ids)

    @property
    def num_missing(self) -> int:
        return self.num_known - self.num_computed_tokens

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    def slice_known(self, start: int, end: int) -> list[int]:
        """Token ids from `start` to `end`; pending ones as `PENDING`, then drafts."""
        if end <= len(self.token_ids):
            return self.token_ids[start:end]
        known = [*self.token_ids[start:], *[PENDING] * self.num_pending, *self.draft_token_ids]
        return known[: end - start]

    def append(self, token_id: int, eos_token_ids: Tokens[int]) -> None:
        """Add an output token; ends the sequence at an end token or at its length."""
        self.token_ids.append(token_id)
        params = self.params
        is_end = token_id in eos_token_ids and not params.ignore_eos
        if (is_end or token_id in params.stop_token_ids) and (
            self.num_output_tokens > params.min_tokens
        ):
            self.finish_reason = FinishReason.STOP
        elif len(self.token_ids) >= self.max_length:
            self.finish_reason = FinishReason.LENGTH
