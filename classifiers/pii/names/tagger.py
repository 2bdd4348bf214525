"""Finds persons, addresses, usernames and free-form identifiers: a small network in numpy.

The artefact is loaded once, checked against its digest, and then only read. Time is linear in the
text: every word looks at no more than fifteen words to each side.
"""

import hashlib
from collections.abc import Callable, Iterator
from math import log
from pathlib import Path
from threading import Lock
from typing import Any, Final

import msgspec
import numpy as np
from threadpoolctl import threadpool_limits

from classifiers.pii.names.tokens import Lexicon, NameFilter, split


ARTEFACT_DIRECTORY = Path(__file__).parents[1] / "artefact"
MODEL_FILE = "tagger.msgpack"
DIGEST_FILE = "tagger.sha256"
DISTANCES: Final = (1, 2, 4, 8)
REACH: Final = sum(DISTANCES)
_CHUNK_WORDS = 1024
_KEPT_WORDS = 16_384
_ROUNDING = 1e-3
# A person taken for a place or a firm is a person missed: those must be so much likelier.
_LIKELIER: Final = {"LOCATION": 2.5, "ORGANIZATION": 2.5}
# Of four words and more, one that may begin a name does so unless that is so much less likely.
_APART: Final = 8
_LONG_NAME: Final = 3
_KINDS: Final = 4  # Its vector, and what that is to itself and to both neighbours.
# `numpy.typing` says the same, and takes longer to import than this artefact to load.
Floats = np.ndarray[Any, np.dtype[np.float32]]


class ArtefactError(Exception):
    """The artefact is not the one that its digest names, or does not fit this code."""


class OutOfTimeError(Exception):
    """The time limit for a text is over."""


def never() -> bool:
    return False


class Matrix(msgspec.Struct, frozen=True):
    """An array as stored: int8 with one scale per row."""

    rows: int
    columns: int
    values: memoryview
    scales: memoryview

    def __repr__(self) -> str:
        return f"Matrix({self.rows} x {self.columns})"

    def read(self) -> Floats:
        values, scales = self.stored()
        return values.astype(np.float32) * scales[:, None]

    def stored(self) -> tuple[np.ndarray[Any, np.dtype[np.int8]], Floats]:
        """Values and scales where they are in memory, without a copy."""
        values = np.frombuffer(self.values, np.int8).reshape(self.rows, self.columns)
        return values, np.frombuffer(self.scales, np.float32)

    @classmethod
    def of(cls, array: Floats) -> "Matrix":
        scales = np.maximum(np.abs(array).max(axis=1), 1e-8).astype(np.float32) / 127
        values = np.rint(array / scales[:, None]).astype(np.int8)
        return cls(
            array.shape[0],
            array.shape[1],
            memoryview(values.tobytes()),
            memoryview(scales.tobytes()),
        )


class Artefact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tagger as stored. `tags` are the labels; tag 2i+1 begins label i, 2i+2 continues it."""

    tags: tuple[str, ...]
    vocabulary: tuple[str, ...]
    first_names: memoryview
    surnames: memoryview
    table: Matrix
    own: Matrix
    own_bias: tuple[float, ...]
    layers: tuple[Matrix, ...]
    biases: tuple[tuple[float, ...], ...]
    head: Matrix
    head_bias: tuple[float, ...]
    thresholds: dict[str, float]

    def __repr__(self) -> str:
        return f"Artefact(tags={self.tags}, table={self.table})"


class Tagged(msgspec.Struct, frozen=True):
    """A labelled place: offsets in code points, probability that it is anything at all."""

    start: int
    end: int
    label: str
    score: float


class Tagger:
    """A loaded artefact; safe to share between threads."""

    def __init__(self, artefact: Artefact, version: str) -> None:
        self.version = version
        self._tags = artefact.tags
        self._lexicon = Lexicon(
            artefact.vocabulary,
            NameFilter(artefact.first_names),
            NameFilter(artefact.surnames),
        )
        # Kept as it is stored: a fifth of the size, and a word's rows are read once.
        self._table, self._scales = artefact.table.stored()
        if self._table.shape[0] != self._lexicon.rows or len(artefact.layers) != len(DISTANCES):
            raise ArtefactError("the tagger's artefact was trained for other features")
        self._own = (artefact.own.read(), np.array(artefact.own_bias, np.float32))
        self._layers = [
            _layer(layer.read(), bias)
            for layer, bias in zip(artefact.layers, artefact.biases, strict=True)
        ]
        self._head = artefact.head.read()
        self._head_bias = np.array(artefact.head_bias, np.float32)
        self._thresholds = artefact.thresholds
        self._least = min(self._thresholds.values(), default=0.5)
        self._weights = np.array([1 / _LIKELIER.get(tag, 1.0) for tag in self._tags], np.float32)
        # One of the other tags is at least so far above "nothing" where all of them reach that.
        others = len(self._head_bias) - 1
        self._margin = log(self._least / (1 - self._least) / others) - _ROUNDING
        self._lock = Lock()
        self._seen = _Vectors(_KINDS * self._table.shape[1])

    def find(self, text: str, expired: Callable[[], bool] = never) -> list[Tagged]:
        """The labelled places of one text, in order, without overlaps.

        Raises:
            OutOfTimeError: `expired` returned true between two stretches of words.
        """
        words, starts, ends = split(text)
        found: list[Tagged] = []
        for low, high in _chunks(len(words)):
            if expired():
                raise OutOfTimeError
            begin, stop = max(0, low - REACH), min(len(words), high + REACH)
            logits = self._logits(words[begin:stop])[low - begin : high - begin]
            for first, last, label, score in self._spans(logits, words[low:high]):
                found.append(Tagged(starts[low + first], ends[low + last], label, score))
        return found

    def _logits(self, words: list[str]) -> Floats:
        """Scores of every tag for every word: T by K."""
        known = self._vectors(words)
        width = known.shape[1] // _KINDS
        x, hidden, behind, before = (
            known[:, at : at + width] for at in range(0, known.shape[1], width)
        )
        # What a word gives the first layer is known with its vector.
        hidden[1:] += behind[:-1]
        hidden[:-1] += before[1:]
        x = x + np.maximum(hidden, 0, out=hidden)
        for (itself, behind, before, bias), distance in zip(
            self._layers[1:], DISTANCES[1:], strict=True
        ):
            hidden = x @ itself
            hidden += bias
            hidden[distance:] += x[:-distance] @ behind
            hidden[:-distance] += x[distance:] @ before
            x += np.maximum(hidden, 0, out=hidden)
        logits: Floats = x @ self._head
        logits += self._head_bias
        return logits

    def _vectors(self, words: list[str]) -> Floats:
        """The sum of the embedding rows of each word; vectors of words seen before are kept."""
        seen = self._seen
        try:
            indices = [*map(seen.places.__getitem__, words)]
        except KeyError:
            with self._lock:
                seen = self._seen
                if len(seen.places) + len(words) > _KEPT_WORDS:
                    seen = self._seen = _Vectors(_KINDS * self._table.shape[1])
                missing = [*set(words).difference(seen.places)]
                rows = np.array([self._lexicon.features(word) for word in missing])
                at = len(seen.places)
                seen.values[at : at + len(missing)] = self._read(rows)
                seen.places.update(zip(missing, range(at, at + len(missing)), strict=True))
            indices = [*map(seen.places.__getitem__, words)]
        vectors: Floats = seen.values[indices]
        return vectors

    def _read(self, rows: np.ndarray[Any, np.dtype[np.int64]]) -> Floats:
        """For each word: its vector, and its input to the first layer in each of its places."""
        sums = np.einsum("wfd,wf->wd", self._table[rows], self._scales[rows])
        matrix, bias = self._own
        x = sums + np.maximum(sums @ matrix + bias, 0)
        itself, behind, before, bias = self._layers[0]
        return np.hstack((x, x @ itself + bias, x @ behind, x @ before))

    def _spans(self, logits: Floats, words: list[str]) -> Iterator[tuple[int, int, str, float]]:
        """Runs of words of one label whose probability of being nothing is small enough.

        Each as its first and last word, label and score.
        """
        # Most words are nothing by far: only the others are worth a probability.
        worth = np.flatnonzero(logits[:, 1:].max(axis=1) - logits[:, 0] > self._margin)
        if not worth.size:
            return
        scores = _probabilities(logits[worth])
        inside = scores[:, 1::2] + scores[:, 2::2]
        labels = (inside * self._weights).argmax(axis=1).tolist()
        run = _Run(-1, 0, -2, 0.0, [])
        for at in np.flatnonzero(scores[:, 0] < 1 - self._least).tolist():
            word, label = int(worth[at]), labels[at]
            chance = float(inside[at, label])
            begins, goes_on = scores[at, 2 * label + 1], scores[at, 2 * label + 2]
            if word == run.last + 1 and label == run.label and begins <= goes_on:
                run.score = max(run.score, chance)
                run.last = word
                if begins * _APART > goes_on and not words[word - 1].islower():
                    run.breaks.append(word)
            else:
                yield from self._closed(run)
                run = _Run(label, word, word, chance, [])
        yield from self._closed(run)

    def _closed(self, run: "_Run") -> Iterator[tuple[int, int, str, float]]:
        """The run if it is sure enough; long rows of names are split where one may begin."""
        if run.label < 0:
            return
        tag = self._tags[run.label]
        if run.score < self._thresholds.get(tag, 0.5):
            return
        first = run.first
        if tag == "PERSON" and run.last - first >= _LONG_NAME:
            for at in run.breaks:
                if at - first > 1 and at < run.last:
                    yield first, at - 1, tag, run.score
                    first = at
        yield first, run.last, tag, run.score


class _Run(msgspec.Struct):
    """Adjacent words of one label, and those that may begin another place of its kind."""

    label: int
    first: int
    last: int
    score: float
    breaks: list[int]


def _layer(matrix: Floats, bias: tuple[float, ...]) -> tuple[Floats, Floats, Floats, Floats]:
    """The weights for the word itself, the one after it stands, and the one before it; the bias."""
    width = matrix.shape[1]
    behind, itself, before = (
        np.ascontiguousarray(matrix[at : at + width]) for at in range(0, 3 * width, width)
    )
    return itself, behind, before, np.array(bias, np.float32)


def _probabilities(logits: Floats) -> Floats:
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    return logits


class _Vectors:
    """Vectors of words seen so far; only ever appended to, under the tagger's lock."""

    def __init__(self, width: int) -> None:
        self.places: dict[str, int] = {}
        self.values = np.zeros((_KEPT_WORDS, width), np.float32)


def _chunks(count: int) -> Iterator[tuple[int, int]]:
    for low in range(0, count, _CHUNK_WORDS):
        yield low, min(count, low + _CHUNK_WORDS)


def load(directory: Path = ARTEFACT_DIRECTORY) -> Tagger:
    """Read and check the artefact.

    Raises:
        ArtefactError: digest and artefact differ, or the artefact does not fit this code.
    """
    # On matrices this small a second thread only waits for the first, at full speed.
    threadpool_limits(1, user_api="blas")
    data = (directory / MODEL_FILE).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if (directory / DIGEST_FILE).read_text(encoding="ascii").strip() != digest:
        raise ArtefactError("the tagger's artefact is not the one that its digest names")
    return Tagger(msgspec.msgpack.decode(data, type=Artefact), digest[:12])
