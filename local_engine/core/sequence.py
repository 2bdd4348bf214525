"""A sequence: one request's tokens on their way through prefill and decode."""

from collections.abc import Sequence as Tokens
from enum import StrEnum

from local_engine.core.sampling_params import SamplingParams
from local_engine.core.tiers import Tier


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


class Sequence:
    """Prompt and output tokens, how many of them are computed, and how it ended.

    Whatever a sequence still needs is one number, `num_known - num_computed`: a prompt, a decode
    step, drafts to check and a restart after preemption are the same case.
    """

    __slots__ = (
        "arrived_at_step",
        "block_hashes",
        "block_ids",
        "draft_token_ids",
        "epoch",
        "finish_reason",
        "is_grammar_ready",
        "is_zeroed",
        "max_length",
        "max_tokens",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_pending",
        "num_preemptions",
        "num_prompt_tokens",
        "num_published",
        "params",
        "salt",
        "sequence_id",
        "tenant",
        "tier",
        "token_ids",
    )

    def __init__(
        self,
        sequence_id: str,
        prompt_token_ids: Tokens[int],
        params: SamplingParams,
        *,
        context_window: int,
        tier: Tier = Tier.STANDARD,
        tenant: str = "",
        salt: bytes = b"",
        is_zeroed: bool = False,
    ) -> None:
        if not prompt_token_ids:
            raise ValueError("a sequence needs at least one prompt token")
        room = context_window - len(prompt_token_ids)
        if room < 1:
            raise PromptTooLong(len(prompt_token_ids), context_window)
        self.sequence_id = sequence_id
        self.params = params
        self.tier = tier
        self.tenant = tenant
        self.salt = salt
        self.is_zeroed = is_zeroed
        self.token_ids = list(prompt_token_ids)
        self.num_prompt_tokens = len(prompt_token_ids)
        # A cap above the window is not an error: nothing longer than asked for is ever written.
        self.max_tokens = room if params.max_tokens is None else min(room, params.max_tokens)
        self.max_length = len(prompt_token_ids) + self.max_tokens
        self.finish_reason: FinishReason | None = None
        self.is_grammar_ready = True
        self.num_computed_tokens = 0
        self.num_cached_tokens = 0
        self.num_pending = 0
        self.num_preemptions = 0
        self.num_published = 0
        self.block_ids: list[int] = []
        self.block_hashes: list[bytes] = []
        self.draft_token_ids: list[int] = []
        self.arrived_at_step = 0
        # Counts restarts: results of a step planned before the last one are of no use any more.
        self.epoch = 0

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

    def finish(self, reason: FinishReason) -> None:
        """End it; a stop string may still turn a length end into a stop."""
        self.finish_reason = reason
