"""The complexity score: a linear model over words and shape, read from a checked artefact.

`score` is the calibrated probability that the strong model of a pair answers better than the weak
one. It ranks; it does not know the tenant's models. Equal text gives equal score everywhere:
word weights are integers, so that their sum does not depend on the order of a set.
"""

import hashlib
from math import exp, sqrt
from pathlib import Path

import msgspec

from classifiers.complexity.features import SHAPE_NAMES, Features, features


ARTEFACT_DIRECTORY = Path(__file__).parent / "artefact"
MODEL_FILE = "model.json"
DIGEST_FILE = "model.sha256"


class ArtefactError(Exception):
    """The artefact is not the one that its digest names, or does not fit this code."""


class Complexity(msgspec.Struct, frozen=True):
    """How hard a request looks.

    `score`: P(a strong model does better); `weak_suffices`: P(the weak model is good enough).
    """

    score: float
    tier: str
    weak_suffices: float
    model_version: str


class Tier(msgspec.Struct, frozen=True):
    """A name for all scores from `least` on, up to the next tier."""

    name: str
    least: float


class Logistic(msgspec.Struct, frozen=True):
    """Calibration: 1 / (1 + exp(-(slope * raw + offset)))."""

    slope: float
    offset: float

    def __call__(self, raw: float) -> float:
        return 1.0 / (1.0 + exp(-max(-60.0, min(60.0, self.slope * raw + self.offset))))


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The artefact as stored. Word weights are multiples of `word_unit`."""

    shape_names: tuple[str, ...]
    shape: tuple[float, ...]
    # Bounds seen in training: outside of them a shape measure counts as the bound.
    shape_low: tuple[float, ...]
    shape_high: tuple[float, ...]
    bias: float
    word_unit: float
    strong_needed: Logistic
    weak_suffices: Logistic
    tiers: tuple[Tier, ...]
    words: dict[str, int]

    def __repr__(self) -> str:
        return f"Weights(words={len(self.words)}, tiers={self.tiers})"


class ComplexityModel:
    """A loaded artefact; immutable and cheap to share."""

    def __init__(self, weights: Weights, version: str) -> None:
        if weights.shape_names != SHAPE_NAMES or not weights.tiers:
            raise ArtefactError("the artefact was trained for other features")
        self.version = version
        self._weights = weights
        self._shape = tuple(zip(weights.shape, weights.shape_low, weights.shape_high, strict=True))

    def assess(self, text: str) -> Complexity:
        """Judge a prompt (the newest user turn; with the system prompt in front if it matters)."""
        return self.score(features(text))

    def score(self, seen: Features) -> Complexity:
        weights = self._weights
        raw = self._raw(seen)
        score = weights.strong_needed(raw)
        tier = weights.tiers[0]
        for candidate in weights.tiers:
            if score >= candidate.least:
                tier = candidate
        return Complexity(score, tier.name, weights.weak_suffices(raw), self.version)

    def explain(self, seen: Features, most: int = 8) -> tuple[tuple[str, float], ...]:
        """The largest contributions to the raw score, by feature; words appear as `word:…`."""
        unit = self._weights.word_unit / sqrt(len(seen.words) or 1)
        parts = [
            (name, weight * min(max(value, low), high))
            for name, value, (weight, low, high) in zip(
                SHAPE_NAMES, seen.shape, self._shape, strict=True
            )
        ]
        known = self._weights.words
        parts += [(f"word:{word}", known[word] * unit) for word in seen.words if word in known]
        return tuple(sorted(parts, key=lambda part: (-abs(part[1]), part[0]))[:most])

    def _raw(self, seen: Features) -> float:
        weights = self._weights
        known = weights.words
        total = sum([known[word] for word in seen.words if word in known])
        raw = weights.bias + total * weights.word_unit / sqrt(len(seen.words) or 1)
        for value, (weight, low, high) in zip(seen.shape, self._shape, strict=True):
            raw += weight * min(max(value, low), high)
        return raw


def load(directory: Path = ARTEFACT_DIRECTORY) -> ComplexityModel:
    """Read and check the artefact; the only I/O of this package, once at start."""
    raw = (directory / MODEL_FILE).read_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    expected = (directory / DIGEST_FILE).read_text().strip()
    if digest != expected:
        raise ArtefactError("the artefact does not have the digest that was recorded for it")
    try:
        weights = msgspec.json.decode(raw, type=Weights)
    except msgspec.MsgspecError as error:
        raise ArtefactError("the artefact is not readable") from error
    return ComplexityModel(weights, f"complexity-{digest[:12]}")
