"""Fits the token estimators of `gateway.dialects.estimate` anew, and says how good they are.

`make vocabularies` fetches the vocabularies that the vendors gave out (o200k of OpenAI's, the one
of Anthropic's older models) into `.clients`; `python -m benchmarks.fit_estimates --data DIR` reads
texts of the labelled sets (the folder that `gatewright train complexity` and `train pii` take) and
of this repository, counts them, and prints the weights to be written into the module. Which texts
are taken, and which are kept for the test, hangs on a digest of each.
"""

import argparse
import gzip
import hashlib
import json
import shutil
import subprocess
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.dialects.estimate import FAMILIES, KINDS, shape


ROOT = Path(__file__).resolve().parents[1]
HERE = Path(__file__).resolve().parent
CLIENTS = ROOT / ".clients"
PER_GROUP = 180
"""Texts of each language or sort; a third of them is kept for the test."""
LENGTH_MAX = 1500
LENGTH_MIN = 40
ROUNDS = 1500
COVERED = 0.999
"""How many texts the upper bound has to cover, without any margin."""
UNDER_COUNTS = 100.0
"""How much more an estimate below the count weighs than one above it."""
ROUNDS_OF_BOUND = 12
EMOJI_TOKENS, EMOJI_TYPICAL = 4, 2.64
EMOJI = range(0x1F300, 0x1FAFF)
EMOJI_PER_TEXT = 50
ROUTING = {
    "zh": ("dc7_ceval", "dc7_cmmlu"),
    "code": ("dc7_javascript", "dc7_mbpp", "dc7_humaneval"),
    "en": ("dc7_mmlu",),
}

Floats = NDArray[np.float64]


def main() -> None:
    """Print weights, errors and the bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the labelled sets")
    groups = _groups(parser.parse_args().data)
    texts = [text for group in groups.values() for text in group]
    counts = _counted(texts)
    is_test = np.array([_digest(text) % 3 == 0 for text in texts])
    kinds = np.array([_kinds(text) for text in texts], dtype=float)
    print(f"{len(texts)} texts in {len(groups)} groups, {int(is_test.sum())} kept for the test")
    for vendor, counted in counts.items():
        weights = _least_relative_squares(kinds[~is_test], counted[~is_test])
        print(f'    "{vendor}": ({", ".join(f"{weight:.3g}" for weight in weights)}),')
        errors = np.abs(kinds[is_test] @ weights / counted[is_test] - 1)
        known = np.abs(kinds[is_test] @ np.array(FAMILIES[vendor]) / counted[is_test] - 1)
        print(f"    # those in the module: {np.quantile(known, [0.5, 0.95]).round(3)}")
        plain = np.array([len(text.encode()) for text in texts])[is_test] / 4
        told = [f"{100 * np.quantile(errors, part):.0f} %" for part in (0.5, 0.95)]
        four = np.quantile(np.abs(plain / counted[is_test] - 1), [0.5, 0.95])
        print(f"    # median error {told[0]}, 95 % within {told[1]}; four bytes: {four.round(2)}")
    _print_emoji()
    _print_typical(texts, (counts["openai"] + counts["anthropic"]) / 2, is_test)
    _print_bound(texts, np.maximum(counts["openai"], counts["anthropic"]), is_test)


def _print_emoji() -> None:
    """Tokens of an emoji: nobody writes enough of them to fit to, so every one counts once."""
    known = [chr(code) for code in EMOJI if unicodedata.category(chr(code)) in {"So", "Sk"}]
    texts = [known[at : at + EMOJI_PER_TEXT] for at in range(0, len(known), EMOJI_PER_TEXT)]
    for vendor, counted in _counted(["".join(text) for text in texts]).items():
        each = counted / [len(text) for text in texts]
        print(f"# emoji, {vendor}: {each.mean():.2f} tokens each, {each.max():.2f} at most")


def _print_typical(texts: Sequence[str], counted: Floats, is_test: NDArray[np.bool_]) -> None:
    """What a body has, by as little as the bound looks at, whoever's model reads it."""
    shapes = np.array([shape(_as_body(text)) for text in texts], dtype=float)
    weights = _least_relative_squares(shapes[~is_test, :-1], counted[~is_test])
    errors = np.abs(shapes[is_test, :-1] @ weights / counted[is_test] - 1)
    told = [f"{100 * np.quantile(errors, part):.0f} %" for part in (0.5, 0.95)]
    print(f"TYPICAL = ({', '.join(f'{weight:.3g}' for weight in (*weights, EMOJI_TYPICAL))})")
    print(f"# median error {told[0]}, 95 % within {told[1]}")


def _print_bound(texts: Sequence[str], counted: Floats, is_test: NDArray[np.bool_]) -> None:
    shapes = np.array([shape(_as_body(text)) for text in texts], dtype=float)
    # There are too few emoji to fit to: one token for each of their bytes is the most there can be.
    known, emoji = shapes[:, :-1], shapes[:, -1] * EMOJI_TOKENS
    rest = np.maximum(counted - emoji, 1.0)
    train = ~is_test
    weighted = np.ones(int(train.sum()))
    weights = weighted
    for _ in range(ROUNDS_OF_BOUND):
        weights = _least_relative_squares(known[train], rest[train], np.sqrt(weighted))
        weighted = np.where(known[train] @ weights < rest[train], UNDER_COUNTS, 1.0)
    factor = float(np.quantile(rest[train] / (known[train] @ weights), COVERED))
    weights = weights * factor
    bound = known @ weights + emoji
    covered = float(np.mean(bound[is_test] >= counted[is_test]))
    over = np.quantile(bound[is_test] / counted[is_test], [0.5, 0.95])
    four = np.array([len(text.encode()) for text in texts]) / 4
    covered_by_four = float(np.mean(four[is_test] >= counted[is_test]))
    print(f"UPPER = ({', '.join(f'{weight:.3g}' for weight in (*weights, EMOJI_TOKENS))})")
    print(f"# covers {covered:.4f} of the test (four bytes: {covered_by_four:.4f})")
    print(f"# bound over count: median {over[0]:.2f}, 95 % within {over[1]:.2f}")


def _groups(data: Path) -> Mapping[str, list[str]]:
    """Texts by language or sort, in the order of their digests, so many of each."""
    found: dict[str, list[str]] = {}
    for line in _lines(data / "pii" / "train.jsonl.gz"):
        found.setdefault(str(line["lang"]), []).append(str(line["text"]))
    for group, names in ROUTING.items():
        for name in names:
            lines = _lines(data / "routing" / f"{name}.jsonl.gz")
            found.setdefault(group, []).extend(str(line["prompt"]) for line in lines)
    for file in sorted(ROOT.glob("*/**/*.py")):
        if ".venv" not in file.parts and ".clients" not in file.parts:
            found.setdefault("code", []).append(file.read_text(encoding="utf-8"))
    found["json"] = [json.dumps({"messages": [text] * 2}) for text in found["code"][:400]]
    found["markdown"] = [
        part
        for file in sorted(ROOT.glob("docs/**/*.md"))
        for part in file.read_text(encoding="utf-8").split("\n## ")
    ]
    return {name: _sample(texts) for name, texts in sorted(found.items())}


def _sample(texts: Sequence[str]) -> list[str]:
    cut = {text[:LENGTH_MAX] for text in texts if len(text) >= LENGTH_MIN}
    return sorted(cut, key=_digest)[:PER_GROUP]


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _kinds(text: str) -> list[int]:
    raw = text.encode()
    return [len(raw) - len(raw.translate(None, kind)) for kind in KINDS]


def _as_body(text: str) -> bytes:
    """As an SDK sends it: JSON, in UTF-8."""
    return json.dumps({"content": text}, ensure_ascii=False).encode()


def _counted(texts: Sequence[str]) -> Mapping[str, Floats]:
    node = shutil.which("node")
    if node is None or not CLIENTS.joinpath("node_modules", "js-tiktoken").exists():
        raise SystemExit("Node or the vocabularies are not here: `make vocabularies` fetches them.")
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


def _least_relative_squares(features: Floats, counted: Floats, by: Floats | None = None) -> Floats:
    """Weights of least squared relative error, none below zero: projected gradient descent.

    `by` is how much each text counts.
    """
    ones = np.ones(len(counted)) if by is None else by
    scaled = features / counted[:, None] * ones[:, None]
    weights = np.full(features.shape[1], 0.25)
    gram, target = scaled.T @ scaled, scaled.T @ ones
    step = 1.0 / np.linalg.eigvalsh(gram)[-1]
    # Momentum, because kinds that are rare would need a hundred times as many rounds without it.
    ahead, pace = weights.copy(), 1.0
    for _ in range(ROUNDS):
        moved = np.maximum(ahead - step * (gram @ ahead - target), 0.0)
        faster = (1 + np.sqrt(1 + 4 * pace * pace)) / 2
        ahead = moved + (pace - 1) / faster * (moved - weights)
        weights, pace = moved, faster
    return weights


if __name__ == "__main__":
    main()
