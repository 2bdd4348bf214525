"""Exact bounds on a failure rate: Clopper and Pearson, Biometrika 26 (1934), one-sided."""

from math import exp, lgamma, log


_STEPS = 300
_PRECISION = 1e-12
_TINY = 1e-300


def failure_rate_upper(failures: int, trials: int, delta: float) -> float:
    """The largest failure rate that `failures` in `trials` do not refute, confidence 1 - delta."""
    if failures >= trials:
        return 1.0
    low, high = failures / trials, 1.0
    while high - low > _PRECISION:
        middle = (low + high) / 2
        if at_most(failures, trials, middle) > delta:
            low = middle
        else:
            high = middle
    return high


def at_most(failures: int, trials: int, rate: float) -> float:
    """P(X <= failures) for X binomial(trials, rate): an incomplete beta function."""
    if failures >= trials or rate <= 0.0:
        return 1.0
    if rate >= 1.0:
        return 0.0
    return incomplete_beta(1.0 - rate, trials - failures, failures + 1)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function by its continued fraction (Lentz's method)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1.0 - x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(1.0 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    above, below = 1.0, _inverse(1.0 - (a + b) * x / (a + 1.0))
    value = below
    for step in range(1, _STEPS):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        for term in (even, odd):
            below = _inverse(1.0 + term * below)
            above = 1.0 + term / above
            above = above if abs(above) > _TINY else _TINY
            value *= above * below
        if abs(above * below - 1.0) < _PRECISION:
            break
    return value


def _inverse(value: float) -> float:
    return 1.0 / (value if abs(value) > _TINY else _TINY)
