"""Ridge and logistic regression: small, deterministic, with numpy alone."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


Array = NDArray[np.float64]


def ridge(inputs: Any, targets: Array, weight: Array, strength: float, steps: int = 22) -> Array:
    """Weighted ridge regression of several targets at once by conjugate gradients.

    Args:
        inputs: sparse matrix (rows, features); the last column should be a constant.
        targets: (rows, targets).
        weight: (rows,).
        strength: penalty on every coefficient.
        steps: at most; fewer than to the end, which is a little more shrinkage.

    Returns:
        (features, targets)
    """
    root = np.sqrt(weight)[:, None]
    transposed = inputs.T.tocsr()
    solution = np.zeros((inputs.shape[1], targets.shape[1]))
    residual = transposed @ (root * root * targets)
    direction = residual.copy()
    size = (residual**2).sum(axis=0)
    start = size.copy()
    for _ in range(steps):
        applied = transposed @ (root * root * (inputs @ direction)) + strength * direction
        length = size / np.maximum((direction * applied).sum(axis=0), 1e-300)
        solution += direction * length
        residual -= applied * length
        now = (residual**2).sum(axis=0)
        if (now < start * 1e-10).all():
            break
        direction = residual + direction * (now / np.maximum(size, 1e-300))
        size = now
    return solution


def dense_ridge(inputs: Array, target: Array, weight: Array, strength: float) -> Array:
    """Ridge regression in closed form, (features,); the last column is a constant, unpenalised."""
    weighted = inputs * weight[:, None]
    penalty = np.full(inputs.shape[1], strength)
    penalty[-1] = 1e-6
    solved = np.linalg.solve(weighted.T @ inputs + np.diag(penalty), weighted.T @ target)
    return np.asarray(solved, dtype=np.float64)


def logistic(
    inputs: Array, target: Array, weight: Array, strength: float, steps: int = 25
) -> Array:
    """Logistic regression by Newton's method, (features,); the last column is a constant."""
    penalty = np.full(inputs.shape[1], strength)
    penalty[-1] = 1e-6
    solution = np.zeros(inputs.shape[1])
    for _ in range(steps):
        probability = sigmoid(inputs @ solution)
        gradient = inputs.T @ (weight * (probability - target)) + penalty * solution
        curvature = (inputs * (weight * probability * (1 - probability))[:, None]).T @ inputs
        step = np.linalg.solve(curvature + np.diag(penalty + 1e-9), gradient)
        solution -= step
        if float(np.abs(step).max()) < 1e-8:
            break
    return solution


def sigmoid(raw: Array) -> Array:
    return 1 / (1 + np.exp(-np.clip(raw, -60, 60)))
