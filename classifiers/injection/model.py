"""The injection score: a linear model over hashed features, read from a checked artefact.

Its threshold was fixed on held-out folds of the training file. It is advice for logs, tags and tool
permissions; a text below the threshold is not safe for that reason.
"""

import hashlib
from array import array
from math import exp, sqrt
from pathlib import Path

import msgspec

from classifiers.injection.features import BUCKETS, features, windows


ARTEFACT_DIRECTORY = Path(__file__).parent / "artefact"
MODEL_FILE = "model.msgpack"
DIGEST_FILE = "model.sha256"


class ArtefactError(Exception):
    """The artefact is not the one that its digest names, or does not fit this code."""


class Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The artefact as stored: one int8 a bucket, in units of `unit`."""

    buckets: bytes
    unit: float
    bias: float
    threshold: float

    def __repr__(self) -> str:
        return f"Weights(buckets={len(self.buckets)}, threshold={self.threshold})"


class InjectionModel:
    """A loaded artefact; immutable and cheap to share."""

    def __init__(self, weights: Weights, version: str) -> None:
        if len(weights.buckets) != BUCKETS:
            raise ArtefactError("the injection artefact was trained for other features")
        self.version = version
        self.threshold = weights.threshold
        self._weights = array("b", weights.buckets)
        self._unit = weights.unit
        self._bias = weights.bias

    def score(self, text: str) -> float:
        """How much the worst stretch of a text reads like orders, 0 to 1."""
        return max(map(self._score, windows(text)), default=0.0)

    def _score(self, window: str) -> float:
        found = features(window)
        total = sum(map(self._weights.__getitem__, found)) * self._unit
        raw = self._bias + total / sqrt(max(1, len(found)))
        return 1.0 / (1.0 + exp(-max(-60.0, min(60.0, raw))))


def load(directory: Path = ARTEFACT_DIRECTORY) -> InjectionModel:
    """Read and check the artefact.

    Raises:
        ArtefactError: digest and artefact differ, or the artefact does not fit this code.
    """
    data = (directory / MODEL_FILE).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if (directory / DIGEST_FILE).read_text(encoding="ascii").strip() != digest:
        raise ArtefactError("the injection artefact is not the one that its digest names")
    return InjectionModel(msgspec.msgpack.decode(data, type=Weights), digest[:12])
