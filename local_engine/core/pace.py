"""Limits the prompt tokens in a step, so that sequences that decode do not wait long for them.

A step has a base cost, for reading the weights and for the sequences that decode, and a cost per
prompt token. Both are learned from measured steps; until then a fixed chunk is used.
"""

# A step without prompts is made longer only by other work on the machine: a base falls at once.
_QUIET_WEIGHT, _PROMPT_WEIGHT = 0.05, 0.5


class Pace:
    """Prompts may stretch a step with decoders `stretch`-fold, and any by `longest_s` at most."""

    def __init__(self, stretch: float = 3.0, longest_s: float = 0.1) -> None:
        self._stretch = stretch
        self._longest_s = longest_s
        # The time of a step without prompts, by the bit length of the number of decode tokens.
        self._bases_s: dict[int, float] = {}
        self._per_token_s = 0.0

    def observe(self, num_decode_tokens: int, num_prompt_tokens: int, took_s: float) -> None:
        """Learn from one step."""
        if num_prompt_tokens == 0:
            size = num_decode_tokens.bit_length()
            known_s = self._bases_s.get(size, took_s)
            self._bases_s[size] = min(took_s, known_s + _QUIET_WEIGHT * (took_s - known_s))
        elif self._bases_s:
            # A base that was measured in a slow moment must not make prompts look free.
            rest_s = max(took_s - self._base_s(num_decode_tokens), 0.2 * took_s) / num_prompt_tokens
            known_s = self._per_token_s or rest_s
            self._per_token_s = known_s + _PROMPT_WEIGHT * (rest_s - known_s)

    def chunk(self, num_decode_tokens: int) -> int:
        """Prompt tokens for a step with `num_decode_tokens`; 0 while nothing is known."""
        if not self._per_token_s:
            return 0
        base_s = self._base_s(num_decode_tokens)
        allowed_s = base_s * self._stretch if num_decode_tokens else base_s + self._longest_s
        left_s = min(allowed_s - base_s, self._longest_s)
        return max(1, int(left_s / self._per_token_s))

    def _base_s(self, num_decode_tokens: int) -> float:
        size = num_decode_tokens.bit_length()
        return self._bases_s[min(self._bases_s, key=lambda known: abs(known - size))]
