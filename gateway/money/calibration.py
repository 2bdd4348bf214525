"""Learns how far token estimates are off for each target, from what its upstream counted.

It keeps a ratio per target, which a sample of the answers moves a little: vocabularies differ
between models of one vendor, and nobody has to know them. It is lost at a restart, and learned
again.
"""

from collections.abc import Callable, Mapping

from gateway.types import ChatRequest, Target, Usage


WEIGHT = 0.1
"""The weight of a new observation: about the last ten count."""

RATIO_MIN, RATIO_MAX = 0.5, 3.0
"""One answer with an odd count must not make estimates useless."""

INPUT_TOKENS_MIN = 50
"""Below this, an upstream's own template outweighs the text."""

BYTES_MAX = 64 * 1024
"""Counting a longer request would cost more than it teaches."""

SAMPLED_EVERY = 16

Count = Callable[[Mapping[str, object], str], int]


class Calibration:
    """Ratios of counted to estimated input, by target."""

    __slots__ = ("_answers", "_count", "_ratios")

    def __init__(self, count: Count) -> None:
        """`count` estimates the tokens of a request's tree for the models of a vendor."""
        self._count = count
        self._ratios: dict[str, float] = {}
        self._answers = 0

    def observe(self, request: ChatRequest, target: Target, usage: Usage) -> None:
        """Take note, now and then, of what an upstream counted for a request."""
        self._answers += 1
        if self._answers % SAMPLED_EVERY != 1 or len(request.raw) > BYTES_MAX:
            return
        if usage.estimated or usage.input_tokens < INPUT_TOKENS_MIN:
            return
        if request.has_images or request.has_documents:
            return
        if usage.web_searches or usage.compactions:
            return  # The counted input is that of several prompts.
        estimated = max(self._count(request.tree, target.vendor), 1)
        seen = min(max(usage.input_tokens / estimated, RATIO_MIN), RATIO_MAX)
        known = self._ratios.get(target.name, seen)
        self._ratios[target.name] = known + WEIGHT * (seen - known)

    def estimate(self, request: ChatRequest, target: Target | None) -> int:
        """Input tokens of a request at a target, as well as we know; at least one."""
        if target is None:
            return max(self._count(request.tree, ""), 1)
        ratio = self._ratios.get(target.name, 1.0)
        return max(round(self._count(request.tree, target.vendor) * ratio), 1)
