"""The scale and window of attention, which differ between layers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reach:
    """Scores are multiplied by `scale`; a token sees the last `window` tokens, 0 for all."""

    scale: float
    window: int = 0
