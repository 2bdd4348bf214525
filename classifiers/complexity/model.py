"""The complexity score: linear heads over words, mixed per domain with the shape of the prompt.

`score` is the calibrated probability that the strong model of a pair answers better than the weak
one. It ranks prompts; it does not know the tenant's models. Equal text gives an equal score
everywhere: the weights of terms are integers, whose sum is exact in any order.
"""

from array import array
from collections.abc import Iterable
from math import exp, sqrt
from operator import mul
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from classifiers.complexity import artefact
from classifiers.complexity.artefact import HEADS, LANE_ZERO, Expert, Weights, key_of
from classifiers.complexity.features import SHAPE_NAMES, Features, features


DOMAINS_MIXED = 2
"""The number of a prompt's likeliest domains by which it is judged."""

_STEEPEST = 60.0


class Complexity(msgspec.Struct, frozen=True):
    """How hard a request looks.

    `score`: P(a strong model does better). `weak_suffices`, `strong_suffices`: P(that model is good
    enough). `domains`: the likeliest domains with their share. `novelty`: share of its words that
    training did not know. `parts`: what words, domains and shape added to the raw score.
    """

    score: float
    tier: str
    weak_suffices: float
    strong_suffices: float
    domains: tuple[tuple[str, float], ...]
    novelty: float
    familiar: bool
    model_version: str
    parts: tuple[tuple[str, float], ...]


class Reading(msgspec.Struct, frozen=True):
    """A prompt between features and score: head values, domain mixture, bounded shape."""

    heads: tuple[float, ...]
    mixture: tuple[tuple[int, float], ...]
    shape: tuple[float, ...]
    novelty: float


class ComplexityModel:
    """A loaded artefact; immutable and cheap to share."""

    def __init__(self, weights: Weights, version: str) -> None:
        self.version = version
        self.domains = weights.domains
        self.gate = weights.gate
        expert = weights.strong_needed
        self._always = sum(map(mul, weights.lane_offset, expert.heads))
        # Each domain's output for a prompt with the mean shape.
        self._typical = tuple(
            offset + sum(map(mul, shape, weights.shape_mean))
            for offset, shape in zip(expert.offset, expert.shape, strict=True)
        )
        self._weights = weights
        lanes = len(HEADS) + len(weights.domains)
        self._lanes = np.frombuffer(weights.lanes, np.uint8).reshape(-1, lanes)
        # The one copy: at an even address, and with an end that no search runs over.
        self._keys = np.append(np.frombuffer(weights.keys, "<u4"), np.uint32(0xFFFFFFFF))

    def assess(self, text: str) -> Complexity:
        """Judge a prompt (the newest user turn; with the system prompt in front if it matters)."""
        return self.score(features(text))

    def score(self, seen: Features) -> Complexity:
        weights = self._weights
        reading = self.read(seen)
        raw = raw_value(weights.strong_needed, reading)
        score = _calibrated(weights.strong_needed, raw)
        tier = weights.tiers[0]
        for candidate in weights.tiers:
            if score >= candidate.least:
                tier = candidate
        return Complexity(
            score,
            tier.name,
            _apply(weights.weak_suffices, reading),
            _apply(weights.strong_suffices, reading),
            tuple((self.domains[at], share) for at, share in reading.mixture),
            reading.novelty,
            reading.novelty <= weights.novelty_high,
            self.version,
            self._parts(raw, reading),
        )

    def _parts(self, raw: float, reading: Reading) -> tuple[tuple[str, float], ...]:
        words = sum(map(mul, self._weights.strong_needed.heads, reading.heads))
        domains = [
            (f"domain:{self.domains[at]}", share * self._typical[at])
            for at, share in reading.mixture
        ]
        shape = raw - words - sum(value for _, value in domains)
        return ("words", words - self._always), *domains, ("shape", shape)

    def read(self, seen: Features) -> Reading:
        """Sum the weights of all known terms; then domains, then shape within its bounds."""
        weights = self._weights
        rows, words = self._known(seen.words, seen.pairs)
        sums = np.add.reduce(self._lanes.take(rows, axis=0), axis=0, dtype=np.int32)
        nothing = LANE_ZERO * len(rows)
        count = len(seen.words) or 1
        scale = 1.0 / sqrt(count)
        values = [
            (value - nothing) * unit * scale + offset
            for value, unit, offset in zip(
                sums.tolist(), weights.lane_unit, weights.lane_offset, strict=True
            )
        ]
        return Reading(
            tuple(values[: len(HEADS)]),
            self._mixture(values[len(HEADS) :]),
            tuple(map(min, map(max, seen.shape, weights.shape_low), weights.shape_high)),
            1.0 - words / count,
        )

    def explain(self, seen: Features, most: int = 8) -> tuple[tuple[str, float], ...]:
        """The largest contributions to the raw score, by feature.

        Words and pairs appear as `word:…`, which repeats the prompt: never put them into a record.
        All parts, with most = 0, sum up to the raw score.
        """
        weights = self._weights
        scale = 1.0 / sqrt(len(seen.words) or 1)
        parts = []
        for term in [*seen.words, *map(b" ".join, seen.pairs)]:
            rows, known = self._known((term,), ())
            if known:
                worth = self._worth(self._lanes[rows[0]].tolist())
                parts.append((f"word:{term.decode('utf-8', 'replace')}", worth * scale))
        parts += self._context(self.read(seen), weights.strong_needed)
        parts.sort(key=lambda part: (-abs(part[1]), part[0]))
        return tuple(parts[:most] if most else parts)

    def _known(
        self, words: Iterable[bytes], pairs: Iterable[tuple[bytes, bytes]]
    ) -> tuple[Any, int]:
        """Rows of the terms known from training, and how many of them are words."""
        keys = array("I", map(key_of, words))
        count = len(keys)
        keys.extend(map(key_of, map(b" ".join, pairs)))
        asked = np.frombuffer(keys, np.uint32)
        rows = self._keys.searchsorted(asked)
        # The end's key stands for no row.
        known = (self._keys.take(rows) == asked) & (rows < len(self._lanes))
        return rows[known], int(np.count_nonzero(known[:count]))

    def _worth(self, lanes: list[int]) -> float:
        """What one term adds to the raw score, before scaling by the number of words."""
        weights = self._weights
        worth: float = sum(
            (lane - LANE_ZERO) * unit * factor
            for lane, unit, factor in zip(
                lanes, weights.lane_unit, weights.strong_needed.heads, strict=False
            )
        )
        return worth

    def _context(self, reading: Reading, expert: Expert) -> list[tuple[str, float]]:
        """The parts of a raw score that are not words: domains, shape, and the constant."""
        weights = self._weights
        always = sum(map(mul, weights.lane_offset, expert.heads))
        parts = [("always", always)]
        shape = [0.0] * len(SHAPE_NAMES)
        for at, share in reading.mixture:
            typical = sum(map(mul, expert.shape[at], weights.shape_mean))
            parts.append((f"domain:{self.domains[at]}", share * (expert.offset[at] + typical)))
            for index, (value, mean) in enumerate(
                zip(reading.shape, weights.shape_mean, strict=True)
            ):
                shape[index] += share * expert.shape[at][index] * (value - mean)
        parts += [(f"shape:{name}", value) for name, value in zip(SHAPE_NAMES, shape, strict=True)]
        return parts

    def _mixture(self, values: list[float]) -> tuple[tuple[int, float], ...]:
        """The likeliest domains and their shares: a softmax over the largest head values."""
        sharpness = self._weights.sharpness
        largest = sorted(zip(values, range(len(values)), strict=True), reverse=True)[:DOMAINS_MIXED]
        top = largest[0][0]
        odds = [exp(sharpness * (value - top)) for value, _ in largest]
        whole = sum(odds)
        return tuple((at, odd / whole) for (_, at), odd in zip(largest, odds, strict=True))


def raw_value(expert: Expert, reading: Reading) -> float:
    """One output of the stack before calibration."""
    raw: float = sum(map(mul, expert.heads, reading.heads))
    for at, share in reading.mixture:
        raw += share * (expert.offset[at] + sum(map(mul, expert.shape[at], reading.shape)))
    return raw


def _apply(expert: Expert, reading: Reading) -> float:
    return _calibrated(expert, raw_value(expert, reading))


def _calibrated(expert: Expert, raw: float) -> float:
    exponent = expert.calibration.slope * raw + expert.calibration.offset
    return 1.0 / (1.0 + exp(-max(-_STEEPEST, min(_STEEPEST, exponent))))


def load(directory: Path = artefact.DIRECTORY) -> ComplexityModel:
    """Read and check the artefact; the only I/O of this package, once at start."""
    return ComplexityModel(*artefact.read(directory))
