"""Fits the gate on answers that calculate: is the weak one wrong, would the strong do better?"""

from collections.abc import Mapping, Sequence

import numpy as np

from classifiers.complexity.answers import NAMES, look
from classifiers.complexity.artefact import Gate
from classifiers.complexity.training.data import ACCEPTABLE, Row
from classifiers.complexity.training.linear import Array, logistic


STRENGTH = 10.0


def fit_gate(rows: Sequence[Row], answers: Mapping[str, str]) -> Gate:
    """The mean of two logistic regressions: failure of the weak answer, and gain by the strong."""
    seen = [(row, look(row.prompt, answers[row.id])) for row in rows if row.id in answers]
    seen = [(row, answer) for row, answer in seen if answer.calculates]
    raw = np.array([answer.values for _, answer in seen])
    low, high = np.quantile(raw, [0.002, 0.998], axis=0)
    bounded = np.clip(raw, low, high)
    mean, spread = bounded.mean(axis=0), bounded.std(axis=0) + 1e-9
    inputs = np.column_stack([(bounded - mean) / spread, np.ones(len(seen))])
    fails = np.array([row.weak < ACCEPTABLE for row, _ in seen], float)
    gains = np.array([row.strong > row.weak for row, _ in seen], float)
    ones = np.ones(len(seen))
    failing = logistic(inputs, fails, ones, STRENGTH)
    gaining = logistic(inputs, gains, ones, STRENGTH)
    weights = (failing[:-1] + gaining[:-1]) / 2 / spread
    offset = failing[-1] - float((weights * mean).sum())
    return Gate(NAMES, _floats(low), _floats(high), _floats(weights), round(float(offset), 6))


def _floats(values: Array) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)
