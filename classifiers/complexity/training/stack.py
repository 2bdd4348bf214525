"""Two levels: linear heads over terms, then a stack that mixes domains, heads and shape.

The stack learns from heads that did not see the row (cross-fitting); otherwise it would trust them
too much.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from classifiers.complexity.artefact import HEADS
from classifiers.complexity.model import DOMAINS_MIXED
from classifiers.complexity.training.data import ACCEPTABLE, DOMAIN_OF_TASK, DOMAINS, Row
from classifiers.complexity.training.linear import Array, dense_ridge, logistic, ridge


FOLDS = 4
SET_WEIGHTS = {"routellm_gsm8k": 4.0}
HEAD_STRENGTH = 60.0
DOMAIN_STRENGTH = 5.0
STACK_STRENGTH = 150.0
CHANCE_STRENGTH = 20.0
SHARPNESS = 6.0
SMOOTHING = 0.5
"""How far a label is moved to the mean of its task: a prompt mostly tells its domain."""

TASK_PRIOR_ROWS = 10
FAILURE_SHARE = 0.2
"""Added weight of "the weak model fails", which carries over to other models better than gain."""

# Scales of the stack's inputs: what a larger number says costs less of the penalty.
_GAIN, _FAILS, _DOMAIN, _SHAPE, _SHAPE_BY_DOMAIN = 10.0, 3.0, 2.0, 0.3, 0.15


class Labels:
    """The targets of the heads and the stack, one entry per row."""

    def __init__(self, rows: Sequence[Row]) -> None:
        weak = np.array([row.weak for row in rows])
        strong = np.array([row.strong for row in rows])
        self.gain: Array = strong - weak
        self.better: Array = (strong > weak).astype(float)
        self.weak_fails: Array = (weak < ACCEPTABLE).astype(float)
        self.strong_fails: Array = (strong < ACCEPTABLE).astype(float)
        self.weight: Array = np.array([SET_WEIGHTS.get(row.dataset, 1.0) for row in rows])
        self.sets = np.array([row.dataset for row in rows])
        self.tasks = np.array([row.task for row in rows])
        domains = np.array([DOMAIN_OF_TASK.get(row.domain, "") for row in rows])
        self.has_domain = domains != ""
        self.domain: Array = (domains[:, None] == np.array(DOMAINS)[None, :]).astype(float)


def fit_heads(inputs: Any, labels: Labels, chosen: Any) -> Array:
    """Coefficients (terms + 1, heads) from the chosen rows."""
    targets = np.column_stack(
        [
            _smoothed(labels.gain, labels, chosen),
            labels.weak_fails[chosen],
            labels.strong_fails[chosen],
        ]
    )
    main = ridge(inputs[chosen], targets, labels.weight[chosen], HEAD_STRENGTH)
    named = chosen[labels.has_domain[chosen]]
    ones = np.ones(len(named))
    domains = ridge(inputs[named], labels.domain[named], ones, DOMAIN_STRENGTH)
    return np.hstack([main, domains])


def _smoothed(values: Array, labels: Labels, chosen: Any) -> Array:
    """Each value half way to the mean of its task; small tasks lean on their data set's mean."""
    result: Array = values[chosen].copy()
    tasks, sets = labels.tasks[chosen], labels.sets[chosen]
    for task in np.unique(tasks):
        of_task = tasks == task
        of_set = sets == sets[of_task][0]
        prior = values[chosen][of_set].mean() * TASK_PRIOR_ROWS
        mean = (values[chosen][of_task].sum() + prior) / (of_task.sum() + TASK_PRIOR_ROWS)
        result[of_task] += SMOOTHING * (mean - result[of_task])
    return result


def cross_fitted(inputs: Any, labels: Labels, chosen: Any, seed: int = 2) -> Array:
    """Head values (rows of `chosen`, heads), each from heads that were fitted without its row."""
    values = np.zeros((len(chosen), len(HEADS) + len(DOMAINS)))
    for part in folds(len(chosen), FOLDS, seed):
        rest = np.setdiff1d(np.arange(len(chosen)), part)
        values[part] = inputs[chosen[part]] @ fit_heads(inputs, labels, chosen[rest])
    return values


def folds(count: int, number: int, seed: int) -> list[Any]:
    """Random parts of range(count), the same for the same seed."""
    return np.array_split(np.random.default_rng(seed).permutation(count), number)


def mixture(domain_values: Array) -> Array:
    """Shares of the likeliest domains, as in `ComplexityModel`."""
    top = domain_values.max(axis=1, keepdims=True)
    odds = np.exp(SHARPNESS * (domain_values - top))
    least = np.sort(odds, axis=1)[:, [-DOMAINS_MIXED]]
    odds = np.where(odds >= least, odds, 0.0)
    shares: Array = odds / odds.sum(axis=1, keepdims=True)
    return shares


def stack_inputs(values: Array, shape: Array) -> Array:
    """Inputs of the stack: heads, domain shares, shape, shape by domain, a constant."""
    shares = mixture(values[:, len(HEADS) :])
    by_domain = [shares[:, [at]] * shape * _SHAPE_BY_DOMAIN for at in range(shares.shape[1])]
    return np.hstack(
        [
            values[:, :1] * _GAIN,
            values[:, 1 : len(HEADS)] * _FAILS,
            shares * _DOMAIN,
            shape * _SHAPE,
            *by_domain,
            np.ones((len(values), 1)),
        ]
    )


class Stack:
    """One output of the stack, in the units of the heads and of scaled shape."""

    def __init__(self, coefficients: Array, shape_count: int) -> None:
        heads, domains = len(HEADS), len(DOMAINS)
        self.heads = coefficients[:heads] * np.array([_GAIN, *[_FAILS] * (heads - 1)])
        at = heads + domains
        self.offset = coefficients[heads:at] * _DOMAIN + coefficients[-1]
        everywhere = coefficients[at : at + shape_count] * _SHAPE
        by_domain = coefficients[at + shape_count : -1].reshape(domains, shape_count)
        self.shape = everywhere[None, :] + by_domain * _SHAPE_BY_DOMAIN

    def __call__(self, values: Array, shape: Array) -> Array:
        shares = mixture(values[:, len(HEADS) :])
        raw: Array = values[:, : len(HEADS)] @ self.heads
        raw += (shares * (self.offset[None, :] + shape @ self.shape.T)).sum(axis=1)
        return raw


def fit_gain(values: Array, shape: Array, labels: Labels, chosen: Any) -> Stack:
    """Ranks by expected gain, with some weight on failure of the weak model."""
    inputs = stack_inputs(values, shape)
    fitted = dense_ridge(inputs, labels.gain[chosen], labels.weight[chosen], STACK_STRENGTH)
    stack = Stack(fitted, shape.shape[1])
    stack.heads[HEADS.index("weak_fails")] += FAILURE_SHARE
    return stack


def fit_chance(values: Array, shape: Array, target: Array, weight: Array) -> Stack:
    """The log-odds of a yes-or-no target."""
    inputs = stack_inputs(values, shape)
    return Stack(logistic(inputs, target, weight, CHANCE_STRENGTH), shape.shape[1])
