"""Maps a classifier's probability to a tenant's own: Platt scaling, shrunk to the parent's map.

Few labels change little, many decide: a route leans on its organisation, and the organisation on
the map for everybody. The prior is a Gaussian around the parent's slope and offset, worth
PRIOR_LABELS labels.
"""

from collections.abc import Sequence
from math import exp, log

from msgspec import Struct


PRIOR_LABELS = 25.0
SLOPE_LEAST = 0.05
"""A map keeps the order of the scores."""

_LEAST_CHANCE = 1e-6
_NEWTON_STEPS = 40
_SETTLED = 1e-9
_STEEPEST = 60.0
_LABEL_INFORMATION = 0.25
"""What a label at p = 1/2 says about the offset."""


class Label(Struct, frozen=True):
    """One judged answer of the weak model.

    `p_weak`: what the classifier said before; `succeeded`: whether the answer was good enough.
    """

    p_weak: float
    succeeded: bool


class ChanceMap(Struct, frozen=True):
    """probability → probability: 1 / (1 + exp(-(slope * log-odds + offset))); rank is kept."""

    slope: float = 1.0
    offset: float = 0.0

    def __call__(self, p_weak: float) -> float:
        return _chance(self.slope * log_odds(p_weak) + self.offset)


AS_IT_IS = ChanceMap()


def log_odds(chance: float) -> float:
    bounded = min(1.0 - _LEAST_CHANCE, max(_LEAST_CHANCE, chance))
    return log(bounded / (1.0 - bounded))


def fit_map(labels: Sequence[Label], parent: ChanceMap = AS_IT_IS) -> ChanceMap:
    """The likeliest map given the labels and the parent's map as prior: Newton's method."""
    prior = PRIOR_LABELS * _LABEL_INFORMATION
    slope, offset = parent.slope, parent.offset
    points = [(log_odds(label.p_weak), float(label.succeeded)) for label in labels]
    for _ in range(_NEWTON_STEPS):
        down_slope, down_offset = prior * (slope - parent.slope), prior * (offset - parent.offset)
        slope_slope, slope_offset, offset_offset = prior, 0.0, prior
        for odds, succeeded in points:
            chance = _chance(slope * odds + offset)
            error, spread = chance - succeeded, chance * (1.0 - chance)
            down_slope += error * odds
            down_offset += error
            slope_slope += spread * odds * odds
            slope_offset += spread * odds
            offset_offset += spread
        scale = slope_slope * offset_offset - slope_offset * slope_offset
        step_slope = (offset_offset * down_slope - slope_offset * down_offset) / scale
        step_offset = (slope_slope * down_offset - slope_offset * down_slope) / scale
        slope, offset = max(SLOPE_LEAST, slope - step_slope), offset - step_offset
        if abs(step_slope) + abs(step_offset) < _SETTLED:
            break
    return ChanceMap(slope, offset)


def _chance(odds: float) -> float:
    return 1.0 / (1.0 + exp(-max(-_STEEPEST, min(_STEEPEST, odds))))
