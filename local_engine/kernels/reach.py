"""The scale and window of attention, which differ between layers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reach:
    """Scores are multiplied by `scale`; `window` tokens are looked back at, 0 for all."""

    scale: float
    window: int = 0
