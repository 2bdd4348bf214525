"""One sequence in progress: on whose behalf, what went in, and what came out so far."""

from dataclasses import dataclass, field

from local_engine.core.sequence import FinishReason
from local_engine.sampling_params import SamplingParams
from local_engine.serve.wire import (
    Token,
)


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf a sequence is computed, as the gateway says."""

    tenant: str = ""
    data_class: str = ""
    tier: str = "standard"
    is_zeroed: bool = False


@dataclass(slots=True)
class Generation:
    """One sequence on its way: what went in, and what is known about what came out."""

    sequence_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    caller: Caller
    request_id: str = ""
    """The same for all sequences of a request; empty where it has one only."""
    keeps_special: bool = False
    """Control tokens stay in the text: the parser of tool calls looks for them."""
    cache_salt: str = ""
    """Who says another one meets nothing that this one leaves in the prefix cache."""
    is_continuation: bool = False
    """Its text goes on where the prompt's ends, and begins with the space that is between them."""
    output_token_ids: list[int] = field(default_factory=list)
    prompt_logprobs: list[Token] = field(default_factory=list)
    num_cached_tokens: int = 0
    submitted_s: float = 0.0
    first_token_s: float | None = None
    """By the monotonic clock, like `submitted_s`; None before there is one."""
    finish_reason: FinishReason | None = None
    is_refused: bool = False
    """The worker did not take it in; the caller is told why, and it counts as a refusal."""
