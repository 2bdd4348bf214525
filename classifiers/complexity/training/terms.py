"""Turns prompts into matrices: which words and pairs are terms, and how much each counts."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse  # type: ignore[import-untyped]

from classifiers.complexity.artefact import key_of
from classifiers.complexity.features import Features
from classifiers.complexity.training.linear import Array


WORD_DOCUMENTS_LEAST = 3
PAIR_DOCUMENTS_LEAST = 4
WORD_LENGTH_MAX = 24
TERM_WEIGHT = 0.5

Terms = dict[bytes, tuple[int, float]]
"""Word, or pair as "a b" → its column, and its weight (rarer terms count more)."""


def names(seen: Features) -> list[bytes]:
    return [*seen.words, *(b" ".join(pair) for pair in seen.pairs)]


def terms_of(prompts: Sequence[Features]) -> Terms:
    """The terms that occur in enough prompts, sorted; of two with one key, the first."""
    counts = Counter(name for seen in prompts for name in names(seen))
    kept = sorted(
        name
        for name, count in counts.items()
        if count >= (PAIR_DOCUMENTS_LEAST if b" " in name else WORD_DOCUMENTS_LEAST)
        and max(map(len, name.split(b" "))) <= WORD_LENGTH_MAX
    )
    kept = sorted({key_of(name): name for name in reversed(kept)}.values())
    return {
        name: (at, TERM_WEIGHT * (1.0 + float(np.log(len(prompts) / counts[name]))))
        for at, name in enumerate(kept)
    }


def matrix(prompts: Sequence[Features], terms: Terms) -> Any:
    """Sparse (prompts, terms + 1): weights over the root of the number of words, and a constant."""
    rows, columns, values = [], [], []
    for row, seen in enumerate(prompts):
        scale = (len(seen.words) or 1) ** -0.5
        for name in names(seen):
            term = terms.get(name)
            if term is not None:
                rows.append(row)
                columns.append(term[0])
                values.append(term[1] * scale)
        rows.append(row)
        columns.append(len(terms))
        values.append(1.0)
    return sparse.csr_matrix((values, (rows, columns)), shape=(len(prompts), len(terms) + 1))


class ShapeScale:
    """Bounds, mean and spread of the measures of shape over the training prompts."""

    def __init__(self, prompts: Sequence[Features]) -> None:
        raw = np.array([seen.shape for seen in prompts])
        self.low, self.high = np.quantile(raw, [0.002, 0.998], axis=0)
        bounded = np.clip(raw, self.low, self.high)
        self.mean: Array = bounded.mean(axis=0)
        self.spread: Array = bounded.std(axis=0) + 1e-9

    def __call__(self, prompts: Sequence[Features]) -> Array:
        raw = np.array([seen.shape for seen in prompts])
        scaled: Array = (np.clip(raw, self.low, self.high) - self.mean) / self.spread
        return scaled
