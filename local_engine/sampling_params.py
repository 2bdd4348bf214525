"""Sampling parameters of one request: checked once, then frozen."""

import math
from dataclasses import dataclass, field, replace


MAX_STOP_STRINGS = 16
MAX_STOP_TOKENS = 64
MAX_STOP_STRING_CHARS = 256
MAX_TOP_LOGPROBS = 20
MAX_LOGIT_BIAS_ENTRIES = 1024
MAX_ALLOWED_TOKENS = 16384
# What travels to the worker as a whole number; no text is ever that long.
MAX_TOKENS = (1 << 63) - 1


class InvalidParameter(ValueError):
    """One sampling parameter is out of range; `param` is its name in the API."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """The tokens around a model's reasoning, which no grammar is about."""

    ends_with: int
    opens_with: int | None = None
    """What begins it where an answer begins with that; nothing: the prompt has begun it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """vLLM's words: temperature 0 is greedy whatever the truncations say; `top_k` 0 is off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    bad_token_ids: tuple[tuple[int, ...], ...] = ()
    allowed_token_ids: tuple[int, ...] | None = None
    """Nothing else is written: an answer ends by an end token only if that is among them."""
    grammar: str | None = None
    """A grammar that the output must follow, in llguidance's Lark dialect or as JSON."""
    thinking: Thinking | None = None
    """What the grammar waits for; nothing: it is about the first token already."""
    stop: tuple[str, ...] = ()
    includes_stop: bool = False
    """The stop string, or the text of the stop token, is part of the answer."""
    logprobs: bool = False
    top_logprobs: int = 0
    prompt_logprobs: int | None = None
    """How many alternatives to report for each prompt token; 0 for its own probability only."""

    def __post_init__(self) -> None:
        _in_range("temperature", self.temperature, 0.0, 2.0)
        _in_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _in_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _in_range("min_p", self.min_p, 0.0, 1.0)
        _in_range("top_p", self.top_p, 0.0, 1.0)
        _in_range("top_k", self.top_k, -1, 1 << 31)
        _in_range("top_logprobs", self.top_logprobs, 0, MAX_TOP_LOGPROBS)
        if self.top_p == 0.0:
            raise InvalidParameter("top_p", "top_p must be greater than 0")
        if self.top_logprobs and not self.logprobs:
            raise InvalidParameter("top_logprobs", "top_logprobs needs logprobs to be true")
        if self.max_tokens is not None and not 1 <= self.max_tokens <= MAX_TOKENS:
            raise InvalidParameter("max_tokens", f"max_tokens must be 1 to {MAX_TOKENS}")
        if self.seed is not None and not -(1 << 63) <= self.seed < 1 << 63:
            raise InvalidParameter("seed", "seed must fit into 64 bits")
        # Scores divided by less would be no numbers any more.
        _in_range("repetition_penalty", self.repetition_penalty, 1e-4, 10.0)
        if not 0 <= self.min_tokens <= MAX_TOKENS:
            raise InvalidParameter("min_tokens", f"min_tokens must be 0 to {MAX_TOKENS}")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidParameter("min_tokens", "min_tokens must not be more than max_tokens")
        _in_range("prompt_logprobs", self.prompt_logprobs or 0, 0, MAX_TOP_LOGPROBS)
        self._check_stop()
        self._check_logit_bias()
        self._check_allowed()

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        return bool(
            self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        )

    @property
    def looks_back(self) -> bool:
        """Whether single tokens are more or less likely for what was written before."""
        return self.has_penalties or bool(self.bad_token_ids)

    @property
    def is_narrowed(self) -> bool:
        """Whether only some tokens may come next."""
        return self.grammar is not None or self.allowed_token_ids is not None

    def of_choice(self, index: int) -> "SamplingParams":
        """For one of several answers: they differ, also where a seed is given."""
        if self.seed is None or index == 0:
            return self
        # The seed after the largest one is the smallest.
        return replace(self, seed=(self.seed + index + (1 << 63)) % (1 << 64) - (1 << 63))

    def _check_stop(self) -> None:
        if len(self.stop_token_ids) > MAX_STOP_TOKENS:
            message = f"at most {MAX_STOP_TOKENS} stop tokens are allowed"
            raise InvalidParameter("stop_token_ids", message)
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidParameter("stop", f"at most {MAX_STOP_STRINGS} stop strings are allowed")
        if any(not 1 <= len(stop) <= MAX_STOP_STRING_CHARS for stop in self.stop):
            message = f"a stop string has 1 to {MAX_STOP_STRING_CHARS} characters"
            raise InvalidParameter("stop", message)

    def _check_logit_bias(self) -> None:
        if len(self.logit_bias) > MAX_LOGIT_BIAS_ENTRIES:
            message = f"logit_bias has at most {MAX_LOGIT_BIAS_ENTRIES} entries"
            raise InvalidParameter("logit_bias", message)
        for bias in self.logit_bias.values():
            _in_range("logit_bias", bias, -100.0, 100.0)

    def _check_allowed(self) -> None:
        if self.allowed_token_ids is None:
            return
        if not 1 <= len(self.allowed_token_ids) <= MAX_ALLOWED_TOKENS:
            message = f"allowed_token_ids has 1 to {MAX_ALLOWED_TOKENS} entries"
            raise InvalidParameter("allowed_token_ids", message)
        if self.grammar is not None:
            message = "allowed_token_ids is not possible together with a grammar"
            raise InvalidParameter("allowed_token_ids", message)


def _in_range(param: str, value: float, low: float, high: float) -> None:
    if not math.isfinite(value) or not low <= value <= high:
        raise InvalidParameter(param, f"{param} must be between {low:g} and {high:g}")
