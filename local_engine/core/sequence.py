"""A sequence: one request's tokens on their way through prefill and decode."""

from collections.abc import Sequence as Tokens
from dataclasses import dataclass
from enum import StrEnum

from local_engine.core.sampling_params import SamplingParams


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


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens to compute in one step, and whether the last of them yields an output token."""

    token_ids: tuple[int, ...]
    is_sampled: bool


class Sequence:
    """Prompt and output tokens, how many of them are computed, and how it ended."""

    def __init__(
        self,
        sequence_id: str,
        prompt_token_ids: Tokens[int],
        params: SamplingParams,
        *,
        context_window: int,
    ) -> None:
        if not prompt_token_ids:
            raise ValueError("a sequence needs at least one prompt token")
        room = context_window - len(prompt_token_ids)
        if room < 1:
            raise PromptTooLong(len(prompt_token_ids), context_window)
        self.sequence_id = sequence_id
        self.params = params
        self.num_prompt_tokens = len(prompt_token_ids)
        # A cap above the window is not an error: nothing longer than asked for is ever written.
        self.max_tokens = room if params.max_tokens is None else min(room, params.max_tokens)
        self.finish_reason: FinishReason | None = None
        self._token_ids = list(prompt_token_ids)
        self._num_computed_tokens = 0

    @property
    def output_token_ids(self) -> Tokens[int]:
        return self._token_ids[self.num_prompt_tokens :]

    @property
    def num_output_tokens(self) -> int:
        return len(self._token_ids) - self.num_prompt_tokens

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    def next_chunk(self, token_budget: int) -> Chunk:
        """What has not been computed yet, at most `token_budget` tokens of it.

        Prefill and decode are the same case: computed catches up with what is known.
        """
        end = min(len(self._token_ids), self._num_computed_tokens + token_budget)
        token_ids = tuple(self._token_ids[self._num_computed_tokens : end])
        return Chunk(token_ids, is_sampled=end == len(self._token_ids))

    def advance(self, chunk: Chunk) -> None:
        self._num_computed_tokens += len(chunk.token_ids)

    def append(self, token_id: int, eos_token_ids: Tokens[int]) -> None:
        """Add an output token; ends the sequence at an end token or at its length."""
        self._token_ids.append(token_id)
        if token_id in eos_token_ids:
            self.finish(FinishReason.STOP)
        elif self.num_output_tokens >= self.max_tokens:
            self.finish(FinishReason.LENGTH)

    def finish(self, reason: FinishReason) -> None:
        """End it; a stop string may still turn a length end into a stop."""
        self.finish_reason = reason
