"""Models a model as abilities, one per domain: a new one needs 200 labels and no training.

P(success) = 1 / (1 + exp(-(slope * log-odds(weak_suffices) + offset + sum of share * ability)))

The sum goes over the domains of the prompt and their shares. The start is "like the weak model of
the training pairs" (slope 1, all else 0) with a Gaussian prior; labels pull away from it, and a
domain without labels stays there.
"""

import hashlib
from collections.abc import Mapping, Sequence
from math import exp, log

import msgspec

from classifiers.complexity.model import Complexity


# Precisions of the priors; a label says at most 1/4.
PRIOR_SLOPE, PRIOR_OFFSET, PRIOR_ABILITY = 4.0, 0.25, 2.0
_STEPS = 200
_SETTLED = 1e-7
_LEAST_CHANCE = 1e-4
_STEEPEST = 60.0


class Labelled(msgspec.Struct, frozen=True):
    """A prompt as the classifier saw it, and whether the model's answer to it was good enough."""

    seen: Complexity
    succeeded: bool


class Ability(msgspec.Struct, frozen=True):
    """One model; scores of another version of the classifier mean something else."""

    classifier_version: str
    labels: int
    slope: float
    offset: float
    domains: Mapping[str, float]

    @property
    def version(self) -> str:
        """The classifier's version combined with this ability's: promises hold for one of these."""
        digest = hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()
        return f"{self.classifier_version}+{digest[:8]}"

    def chance(self, seen: Complexity) -> float:
        """The probability that this model's answer to the prompt is good enough."""
        raw = self.slope * _log_odds(seen.weak_suffices) + self.offset
        raw += sum(share * self.domains.get(name, 0.0) for name, share in seen.domains)
        return _sigmoid(raw)


def fit_ability(labelled: Sequence[Labelled], classifier_version: str) -> Ability:
    """The likeliest ability given labels and prior; coordinates are improved one by one."""
    names = sorted({name for one in labelled for name, _ in one.seen.domains})
    rows = [
        (_log_odds(one.seen.weak_suffices), dict(one.seen.domains), float(one.succeeded))
        for one in labelled
    ]
    # Each coordinate: value, where its prior is, how firm that is, and what a prompt makes of it.
    inputs: list[list[float]] = [[row[0] for row in rows], [1.0] * len(rows)]
    inputs += [[row[1].get(name, 0.0) for row in rows] for name in names]
    prior = [1.0, 0.0] + [0.0] * len(names)
    firm = [PRIOR_SLOPE, PRIOR_OFFSET] + [PRIOR_ABILITY] * len(names)
    values = list(prior)
    raw = [row[0] for row in rows]
    truth = [row[2] for row in rows]
    for _ in range(_STEPS):
        moved = 0.0
        for at, column in enumerate(inputs):
            down = firm[at] * (values[at] - prior[at])
            curve = firm[at]
            for value, odds, succeeded in zip(column, raw, truth, strict=True):
                if value:
                    chance = _sigmoid(odds)
                    down += (chance - succeeded) * value
                    curve += chance * (1.0 - chance) * value * value
            step = -down / curve
            values[at] += step
            moved = max(moved, abs(step))
            raw = [odds + step * value for odds, value in zip(raw, column, strict=True)]
        if moved < _SETTLED:
            break
    return Ability(
        classifier_version,
        len(rows),
        round(values[0], 4),
        round(values[1], 4),
        {name: round(value, 4) for name, value in zip(names, values[2:], strict=True)},
    )


def _log_odds(chance: float) -> float:
    bounded = min(1.0 - _LEAST_CHANCE, max(_LEAST_CHANCE, chance))
    return log(bounded / (1.0 - bounded))


def _sigmoid(odds: float) -> float:
    return 1.0 / (1.0 + exp(-max(-_STEEPEST, min(_STEEPEST, odds))))


def with_ability(seen: Complexity, ability: Ability) -> Complexity:
    """The classifier's verdict for this model instead of the weak one of its training pairs."""
    return msgspec.structs.replace(
        seen, weak_suffices=ability.chance(seen), model_version=ability.version
    )


def load_ability(raw: bytes) -> Ability:
    """An ability from its JSON.

    Raises:
        msgspec.DecodeError: or its ValidationError.
    """
    return msgspec.json.decode(raw, type=Ability)
