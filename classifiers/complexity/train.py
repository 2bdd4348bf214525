"""Trains the complexity artefact: `gatewright train complexity --data DIR`.

Uses the permissively licensed sets and templates of this project. The task of a prompt is a label
to learn, never an input. Same data, code and library versions give the same digest.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from classifiers.complexity import artefact
from classifiers.complexity.artefact import LANE_ZERO, Expert, Logistic, Tier, Weights, key_of
from classifiers.complexity.cascade import judge
from classifiers.complexity.features import SHAPE_NAMES, features
from classifiers.complexity.model import ComplexityModel
from classifiers.complexity.training import stack as stacking
from classifiers.complexity.training.card import write_card
from classifiers.complexity.training.data import DOMAINS, REQUESTS, Row, read, read_answers
from classifiers.complexity.training.gate import fit_gate
from classifiers.complexity.training.linear import Array, logistic
from classifiers.complexity.training.requests import draw, read_templates
from classifiers.complexity.training.stack import Labels, Stack
from classifiers.complexity.training.terms import ShapeScale, Terms, matrix, terms_of


TIER_QUANTILES = (("light", 0.0), ("standard", 0.7), ("demanding", 0.9))
NOVELTY_QUANTILE = 0.995
LANE_STEPS = 127
LANE_CLIP = 0.9998
REPORT_FOLDS = 5


class Fitted:
    """Everything fitted on the chosen rows: heads, stacks and their calibration."""

    def __init__(self, inputs: Any, shape: Array, labels: Labels, chosen: Any) -> None:
        self.heads = stacking.fit_heads(inputs, labels, chosen)
        values = stacking.cross_fitted(inputs, labels, chosen)
        own, weight = shape[chosen], labels.weight[chosen]
        self.gain = stacking.fit_gain(values, own, labels, chosen)
        self.weak = stacking.fit_chance(values, own, 1 - labels.weak_fails[chosen], weight)
        self.strong = stacking.fit_chance(values, own, 1 - labels.strong_fails[chosen], weight)
        # Measured rows decide how likely; the templates only say which is harder.
        measured = labels.sets[chosen] != REQUESTS
        self.scores = self.gain(values, own)[measured]
        self.gain_calibration = platt(self.scores, labels.better[chosen][measured])


def platt(raw: Array, truth: Array) -> Logistic:
    """Platt scaling."""
    inputs = np.column_stack([raw, np.ones(len(raw))])
    slope, offset = logistic(inputs, truth, np.ones(len(raw)), 1e-3)
    return Logistic(*_floats((slope, offset)))


def train(rows: Sequence[Row], answers: Mapping[str, str], data: dict[str, str]) -> Weights:
    """The artefact's weights from all the given rows, and the cheap model's answers to some.

    The templates' requests are added to the rows; tiers and novelty are those of the rows alone.
    """
    templates, digest = read_templates()
    data = data | {REQUESTS: digest}
    measured = len(rows)
    rows = [*rows, *draw(templates)]
    seen = [features(row.prompt) for row in rows]
    terms = terms_of(seen)
    scale = ShapeScale(seen)
    inputs, shape, labels = matrix(seen, terms), scale(seen), Labels(rows)
    fitted = Fitted(inputs, shape, labels, np.arange(len(rows)))
    keys, lanes, units = _packed(fitted.heads, terms)
    calibration = fitted.gain_calibration
    probability = stacking_sigmoid(calibration, fitted.scores)
    known = [
        sum(word in terms for word in one.words) / (len(one.words) or 1) for one in seen[:measured]
    ]
    plain = Logistic(1.0, 0.0)
    return Weights(
        shape_names=SHAPE_NAMES,
        domains=DOMAINS,
        keys=memoryview(keys),
        lanes=memoryview(lanes),
        lane_unit=units,
        lane_offset=_floats(fitted.heads[-1]),
        shape_low=_floats(scale.low),
        shape_high=_floats(scale.high),
        shape_mean=_floats(scale.mean),
        sharpness=stacking.SHARPNESS,
        strong_needed=_expert(fitted.gain, scale, calibration),
        weak_suffices=_expert(fitted.weak, scale, plain),
        strong_suffices=_expert(fitted.strong, scale, plain),
        gate=fit_gate(rows, answers),
        tiers=tuple(
            Tier(name, round(float(np.quantile(probability, q)), 4) if q else 0.0)
            for name, q in TIER_QUANTILES
        ),
        novelty_high=round(float(np.quantile(1 - np.array(known), NOVELTY_QUANTILE)), 3),
        data=data,
    )


def stacking_sigmoid(calibration: Logistic, raw: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-(calibration.slope * raw + calibration.offset)))
    return result


def _packed(heads: Array, terms: Terms) -> tuple[bytes, bytes, tuple[float, ...]]:
    """Keys in ascending order, one byte per key and head, and the step of each head."""
    weights = heads[:-1] * np.array([weight for _, weight in terms.values()])[:, None]
    units = _floats(np.quantile(np.abs(weights), LANE_CLIP, axis=0) / LANE_STEPS)
    steps = np.clip(np.rint(weights / np.array(units)), -LANE_STEPS, LANE_STEPS) + LANE_ZERO
    keys = np.array([key_of(term) for term in terms], "<u4")
    order = np.argsort(keys)
    return keys[order].tobytes(), steps[order].astype(np.uint8).tobytes(), units


def _expert(stack: Stack, scale: ShapeScale, calibration: Logistic) -> Expert:
    """A stack in units of raw shape."""
    shape = stack.shape / scale.spread[None, :]
    offset = stack.offset - shape @ scale.mean
    return Expert(
        _floats(stack.heads), _floats(offset), tuple(_floats(row) for row in shape), calibration
    )


def _floats(values: Any) -> tuple[float, ...]:
    """Six digits: later ones depend on the order in which a library's threads added."""
    return tuple(float(f"{value:.6g}") for value in values)


def predictions(
    model: ComplexityModel, rows: Sequence[Row], answers: Mapping[str, str]
) -> tuple[list[bytes], list[bytes]]:
    """Lines for score.py: prompt only, and the cascade if there is a cheap answer."""
    alone, cascade = [], []
    for row in rows:
        judged = model.assess(row.prompt)
        line = {"id": row.id, "score": judged.score, "p_weak": judged.weak_suffices}
        alone.append(msgspec.json.encode(line))
        if row.id in answers:
            verdict = judge(model.gate, judged, row.prompt, [("", answers[row.id])], {})
            line = {"id": row.id, "score": verdict.score, "p_weak": verdict.p_weak}
            cascade.append(msgspec.json.encode(line))
    return alone, cascade


def write_out_of_fold(
    rows: Sequence[Row], answers: Mapping[str, str], data: dict[str, str], file: Path
) -> None:
    """Predictions, each row judged by an artefact that was trained without it.

    The cascade's go into a file of the same name with `.cascade` before the suffix.
    """
    alone: list[bytes] = []
    cascade: list[bytes] = []
    for part in stacking.folds(len(rows), REPORT_FOLDS, seed=1):
        unseen = set(part.tolist())
        weights = train([row for at, row in enumerate(rows) if at not in unseen], answers, data)
        model = ComplexityModel(weights, "fold")
        more_alone, more_cascade = predictions(model, [rows[at] for at in part], answers)
        alone += more_alone
        cascade += more_cascade
    file.write_bytes(b"\n".join(alone) + b"\n")
    file.with_suffix(f".cascade{file.suffix}").write_bytes(b"\n".join(cascade) + b"\n")


def main(arguments: list[str]) -> None:
    """Train and store; raises `OSError` if the data or the folder are not as they should be."""
    parser = argparse.ArgumentParser(prog="gatewright train complexity", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the labelled sets")
    parser.add_argument("--out", type=Path, default=artefact.DIRECTORY)
    parser.add_argument("--splits", default="train", help="train, dev or train,dev")
    parser.add_argument(
        "--out-of-fold", type=Path, help="also cross-validate over the splits: lines for score.py"
    )
    options = parser.parse_args(arguments)
    rows, digests = read(options.data)
    answers, digests["answers_cheap"] = read_answers(options.data)
    chosen = [row for row in rows if row.split in options.splits.split(",")]
    if not chosen:
        parser.error(f"--splits {options.splits}: the data has no such prompts")
    raw = artefact.encode(train(chosen, answers, digests))
    options.out.mkdir(parents=True, exist_ok=True)
    artefact.store(raw, options.out)
    write_card(raw, options.splits, len(chosen), options.out)
    print(f"{artefact.version(raw)}: {len(raw)} bytes from {len(chosen)} prompts")
    if options.out_of_fold is not None:
        write_out_of_fold(chosen, answers, digests, options.out_of_fold)


if __name__ == "__main__":
    main(sys.argv[1:])
