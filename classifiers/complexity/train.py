"""Trains the complexity artefact: `python -m classifiers.complexity.train --data DIR`.

Uses the permissively licensed sets only, their train part for weights, words and calibration; the
dev part is for the report. The `domain` field of the data is never read.
"""

import argparse
import gzip
import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy import sparse  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from classifiers.complexity.features import SHAPE_NAMES, Features, features
from classifiers.complexity.model import (
    ARTEFACT_DIRECTORY,
    DIGEST_FILE,
    MODEL_FILE,
    Logistic,
    Tier,
    Weights,
    load,
)


_ROUTELLM = ("mixtral-8x7b-instruct-v0.1", "gpt-4-1106-preview")
PAIRS = {
    "routellm_mmlu": _ROUTELLM,
    "routellm_gsm8k": _ROUTELLM,
    "ulab9": ("mistral-7b-instruct-v0.3", "llama-3.1-nemotron-51b-instruct"),
}
SET_WEIGHTS = {"routellm_mmlu": 1.0, "routellm_gsm8k": 4.0, "ulab9": 1.0}
LEAST_DOCUMENTS = 4
STRENGTH = 0.2
SHAPE_FACTOR = 0.2
FAIL_SHARE = 0.1
TIER_QUANTILES = (("light", 0.0), ("standard", 0.7), ("demanding", 0.9))
ACCEPTABLE = 0.5
FOLDS = 5
WORD_STEPS = 2000


class Row(msgspec.Struct, frozen=True):
    """A prompt with the quality of each model on it."""

    id: str
    dataset: str
    prompt: str
    scores: dict[str, float]
    split: str

    @property
    def weak(self) -> float:
        return self.scores[PAIRS[self.dataset][0]]

    @property
    def strong(self) -> float:
        return self.scores[PAIRS[self.dataset][1]]


def read(directory: Path) -> list[Row]:
    rows: list[Row] = []
    for name in PAIRS:
        packed = (directory / f"{name}.jsonl.gz").read_bytes()
        print(f"{name}: sha256 {hashlib.sha256(packed).hexdigest()}")
        rows += [
            msgspec.json.decode(line, type=Row) for line in gzip.decompress(packed).splitlines()
        ]
    return rows


def vocabulary(seen: list[Features]) -> dict[str, int]:
    counts = Counter(word for item in seen for word in item.words if len(word) <= 24)
    return {
        word: index
        for index, word in enumerate(sorted(w for w, n in counts.items() if n >= LEAST_DOCUMENTS))
    }


def matrix(seen: list[Features], words: dict[str, int], shape: Any) -> Any:
    rows, columns, values = [], [], []
    for row, item in enumerate(seen):
        for word in item.words:
            if word in words:
                rows.append(row)
                columns.append(words[word])
                values.append(len(item.words) ** -0.5)
    bag = sparse.csr_matrix((values, (rows, columns)), shape=(len(seen), len(words)))
    return sparse.hstack([bag, sparse.csr_matrix(shape)]).tocsr()


def fit(rows: list[Row]) -> Weights:
    seen = [features(row.prompt) for row in rows]
    words = vocabulary(seen)
    raw_shape = np.array([item.shape for item in seen])
    low, high = np.quantile(raw_shape, [0.001, 0.999], axis=0)
    clipped = np.clip(raw_shape, low, high)
    mean, spread = clipped.mean(axis=0), clipped.std(axis=0) + 1e-9
    inputs = matrix(seen, words, (clipped - mean) / spread * SHAPE_FACTOR)
    gain = np.array([row.strong > row.weak for row in rows], int)
    fail = np.array([row.weak < ACCEPTABLE for row in rows], int)
    weight = np.array([SET_WEIGHTS[row.dataset] for row in rows])
    model = blended(inputs, gain, fail, weight)
    held_out = np.zeros(len(rows))
    for known, unseen in KFold(FOLDS, shuffle=True, random_state=0).split(inputs):
        fold = blended(inputs[known], gain[known], fail[known], weight[known])
        held_out[unseen] = fold.decision_function(inputs[unseen])
    strong_needed, weak_suffices = calibrate(held_out, gain), calibrate(held_out, 1 - fail)
    probability = np.array([strong_needed(float(value)) for value in held_out])
    tiers = tuple(
        Tier(name, round(float(np.quantile(probability, q)), 4) if q else 0.0)
        for name, q in TIER_QUANTILES
    )
    coefficients = model.coef_[0]
    shape = coefficients[len(words) :] * SHAPE_FACTOR / spread
    unit = float(np.abs(coefficients[: len(words)]).max()) / WORD_STEPS
    steps = {word: round(float(coefficients[i]) / unit) for word, i in words.items()}
    return Weights(
        SHAPE_NAMES,
        tuple(map(float, shape)),
        tuple(map(float, low)),
        tuple(map(float, high)),
        float(model.intercept_[0] - (shape * mean).sum()),
        unit,
        strong_needed,
        weak_suffices,
        tiers,
        {word: step for word, step in steps.items() if abs(step) >= WORD_STEPS // 200},
    )


def blended(inputs: Any, gain: Any, fail: Any, weight: Any) -> Any:
    """Both questions in one linear model: each row counts for gain and a little for failure."""
    return LogisticRegression(C=STRENGTH, max_iter=1000).fit(
        sparse.vstack([inputs, inputs]).tocsr(),
        np.concatenate([gain, fail]),
        sample_weight=np.concatenate([weight * (1 - FAIL_SHARE), weight * FAIL_SHARE]),
    )


def calibrate(raw: Any, truth: Any) -> Logistic:
    """Platt scaling on out-of-fold scores."""
    model = LogisticRegression(C=1e3).fit(raw.reshape(-1, 1), truth)
    return Logistic(float(model.coef_[0][0]), float(model.intercept_[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=ARTEFACT_DIRECTORY)
    parser.add_argument("--predictions", type=Path, help="write dev predictions for score.py")
    arguments = parser.parse_args()
    rows = read(arguments.data)
    raw = msgspec.json.encode(fit([row for row in rows if row.split == "train"]))
    (arguments.out / MODEL_FILE).write_bytes(raw)
    (arguments.out / DIGEST_FILE).write_text(hashlib.sha256(raw).hexdigest() + "\n")
    model = load(arguments.out)
    print(f"{model.version}: {len(raw)} bytes")
    if arguments.predictions:
        lines = []
        for row in rows:
            if row.split == "dev":
                judged = model.assess(row.prompt)
                line = {"id": row.id, "score": judged.score, "p_weak": judged.weak_suffices}
                lines.append(msgspec.json.encode(line))
        arguments.predictions.write_bytes(b"\n".join(lines) + b"\n")


if __name__ == "__main__":
    main()
