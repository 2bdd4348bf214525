"""The tagger's network and its gradients, in numpy: training needs no framework.

A word's vector is the sum of its embedding rows. Four residual layers look at a word and its
neighbours at distance 1, 2, 4 and 8; a linear layer scores the tags. Shapes: batch B, words T,
width D, tags K.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
DISTANCES = (1, 2, 4, 8)
_ADAM_MEAN = 0.9
_ADAM_SQUARE = 0.99
_TINY = 1e-7


class Weights(NamedTuple):
    """All learned weights. `table` has rows × D, `own` D × D and D, a layer 3D × D and D."""

    table: Floats
    own: tuple[Floats, Floats]
    layers: list[tuple[Floats, Floats]]
    head: Floats
    head_bias: Floats


def fresh_weights(rng: np.random.Generator, rows: int, width: int, tags: int) -> Weights:
    table = rng.normal(0, 0.15, (rows, width)).astype(np.float32)
    table[0] = 0
    own = rng.normal(0, 0.5 * (2 / width) ** 0.5, (width, width)).astype(np.float32)
    scale = 0.7 * (2 / (3 * width)) ** 0.5
    layers = [
        (rng.normal(0, scale, (3 * width, width)).astype(np.float32), np.zeros(width, np.float32))
        for _ in DISTANCES
    ]
    head = rng.normal(0, 0.1, (width, tags)).astype(np.float32)
    return Weights(
        table, (own, np.zeros(width, np.float32)), layers, head, np.zeros(tags, np.float32)
    )


class Batch(NamedTuple):
    """`features` U × F of the different words, `words` B × T into them, `tags` B × T, -1 = none."""

    features: Integers
    words: Integers
    tags: Integers


def neighbours(x: Floats, distance: int) -> Floats:
    """B × T × D → B × T × 3D: each word between those `distance` before and after it."""
    out = np.zeros((*x.shape[:2], 3 * x.shape[2]), np.float32)
    width = x.shape[2]
    out[:, :, width : 2 * width] = x
    out[:, distance:, :width] = x[:, :-distance]
    out[:, :-distance, 2 * width :] = x[:, distance:]
    return out


class Trainer:
    """One step of Adam after another; table rows that a batch does not touch stay unchanged."""

    def __init__(self, weights: Weights, rng: np.random.Generator, dropout: float) -> None:
        self.weights = weights
        self._rng = rng
        self._dropout = dropout
        self._moments = {id(a): (np.zeros_like(a), np.zeros_like(a)) for a in _arrays(weights)}
        self._steps = 0

    def step(self, batch: Batch, rate: float) -> float:
        """Learn from one batch; the mean loss per word."""
        weights = self.weights
        valid = batch.tags >= 0
        mask = valid[:, :, None].astype(np.float32)
        sums = weights.table[batch.features].sum(axis=1)
        alone = np.maximum(sums @ weights.own[0] + weights.own[1], 0)
        vectors = sums + alone
        kept = 1 - self._dropout
        drop = (self._rng.random(vectors[batch.words].shape, dtype=np.float32) < kept) / kept * mask
        x = (vectors[batch.words] * drop).astype(np.float32)
        stack = []
        for (matrix, bias), distance in zip(weights.layers, DISTANCES, strict=True):
            around = neighbours(x, distance) if distance < x.shape[1] else _alone(x)
            hidden = np.maximum(around @ matrix + bias, 0)
            stack.append((around, hidden > 0))
            x = (x + hidden) * mask
        logits = x @ weights.head + weights.head_bias
        loss, gradient = _cross_entropy(logits, batch.tags, valid)
        self._steps += 1
        flat = gradient.reshape(-1, gradient.shape[2])
        back = (gradient @ weights.head.T) * mask
        self._adam(weights.head, x.reshape(-1, x.shape[2]).T @ flat, rate)
        self._adam(weights.head_bias, flat.sum(axis=0), rate)
        for index in range(len(DISTANCES) - 1, -1, -1):
            back = self._layer_back(index, stack[index], back, rate) * mask
        self._words_back(batch, (sums, alone > 0), back * drop, rate)
        return loss

    def _layer_back(
        self, index: int, kept: tuple[Floats, NDArray[np.bool_]], back: Floats, rate: float
    ) -> Floats:
        matrix, bias = self.weights.layers[index]
        around, positive = kept
        distance = DISTANCES[index]
        inner = back * positive
        flat = inner.reshape(-1, inner.shape[2])
        to_around = inner @ matrix.T
        self._adam(matrix, around.reshape(-1, around.shape[2]).T @ flat, rate)
        self._adam(bias, flat.sum(axis=0), rate)
        width = back.shape[2]
        out: Floats = back + to_around[:, :, width : 2 * width]
        if distance < back.shape[1]:
            out[:, :-distance] += to_around[:, distance:, :width]
            out[:, distance:] += to_around[:, :-distance, 2 * width :]
        return out

    def _words_back(
        self, batch: Batch, kept: tuple[Floats, NDArray[np.bool_]], back: Floats, rate: float
    ) -> None:
        rows = batch.words[batch.tags >= 0]
        _, per_word = _summed(rows, back[batch.tags >= 0])
        sums, positive = kept
        matrix, bias = self.weights.own
        inner = per_word * positive
        per_word = per_word + inner @ matrix.T
        self._adam(matrix, sums.T @ inner, rate)
        self._adam(bias, inner.sum(axis=0), rate)
        flat = batch.features.reshape(-1)
        repeated = np.repeat(per_word, batch.features.shape[1], axis=0)
        touched, gradient = _summed(flat, repeated)
        if touched[0] == 0:
            touched, gradient = touched[1:], gradient[1:]
        table = self.weights.table
        mean, square = self._moments[id(table)]
        mean[touched] = _ADAM_MEAN * mean[touched] + (1 - _ADAM_MEAN) * gradient
        square[touched] = _ADAM_SQUARE * square[touched] + (1 - _ADAM_SQUARE) * gradient**2
        table[touched] -= rate * mean[touched] / (np.sqrt(square[touched]) + _TINY)

    def _adam(self, array: Floats, gradient: Floats, rate: float) -> None:
        mean, square = self._moments[id(array)]
        mean += (1 - _ADAM_MEAN) * (gradient - mean)
        square += (1 - _ADAM_SQUARE) * (gradient * gradient - square)
        unbiased = rate * (1 - _ADAM_SQUARE**self._steps) ** 0.5 / (1 - _ADAM_MEAN**self._steps)
        array -= (unbiased * mean / (np.sqrt(square) + _TINY)).astype(np.float32)


class Mean:
    """The running mean of weights: what many steps agree on, without the noise of the last."""

    def __init__(self, weights: Weights) -> None:
        self._sums = [np.zeros_like(a) for a in _arrays(weights)]
        self._count = 0

    def add(self, weights: Weights) -> None:
        self._count += 1
        for index, array in enumerate(_arrays(weights)):
            self._sums[index] += (array - self._sums[index]) / self._count

    def value(self) -> Weights:
        table, own, own_bias, head, head_bias, *inner = self._sums
        layers = list(zip(inner[::2], inner[1::2], strict=True))
        return Weights(table, (own, own_bias), layers, head, head_bias)


def _arrays(weights: Weights) -> list[Floats]:
    inner = [array for layer in weights.layers for array in layer]
    return [weights.table, *weights.own, weights.head, weights.head_bias, *inner]


def _alone(x: Floats) -> Floats:
    out = np.zeros((*x.shape[:2], 3 * x.shape[2]), np.float32)
    out[:, :, x.shape[2] : 2 * x.shape[2]] = x
    return out


def _cross_entropy(
    logits: Floats, tags: Integers, valid: NDArray[np.bool_]
) -> tuple[float, Floats]:
    shifted = logits - logits.max(axis=2, keepdims=True)
    exponents = np.exp(shifted)
    probabilities: Floats = exponents / exponents.sum(axis=2, keepdims=True)
    count = max(1, int(valid.sum()))
    chosen = np.where(valid, tags, 0)[:, :, None]
    right = np.take_along_axis(probabilities, chosen, axis=2)[:, :, 0]
    loss = float(-np.log(right[valid] + _TINY).sum() / count)
    np.put_along_axis(probabilities, chosen, right[:, :, None] - 1, axis=2)
    probabilities *= valid[:, :, None] / np.float32(count)
    return loss, probabilities


def _summed(keys: Integers, values: Floats) -> tuple[Integers, Floats]:
    """Sum of the values of each key, keys ascending."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    return ordered[starts], np.add.reduceat(values[order], starts, axis=0)
