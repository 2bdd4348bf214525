"""Counts files of code, manuals and logs that would be kept in-house, by folder and reason.

`python -m benchmarks.false_alarms DIR…`: from each folder up to 400 KB of texts, the first 16,000
characters of each, drawn by a fixed seed. A reader has to judge what is in them (`--show S3`):
examples of keys in a manual are not false alarms, and authors are persons.
"""

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from classifiers.pii.labels import SOFT, DataClass, data_class_of
from classifiers.pii.scanner import Scanner, load


SIZE_MAX = 400_000
LENGTH_MAX = 16_000
LENGTH_MIN = 200
ENDINGS = frozenset(
    {
        *(".py", ".js", ".md", ".rst", ".txt", ".json", ".yaml", ".yml", ".toml", ".sh", ".ts", ""),
        *(".go", ".rs", ".c", ".h", ".java", ".rb", ".php", ".pm", ".vim", ".service"),
    }
)


class Counts(NamedTuple):
    """Texts by class, findings by label, and the total length of the texts."""

    classes: Counter[DataClass]
    labels: Counter[str]
    length: int


def texts(folder: Path, seed: int) -> Iterator[str]:
    """Texts of a folder in random order, as many as are read."""
    files = sorted(file for file in folder.rglob("*") if file.suffix in ENDINGS and file.is_file())
    random.Random(seed).shuffle(files)
    size = 0
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")[:LENGTH_MAX]
        except (OSError, UnicodeDecodeError):
            continue
        if len(text) < LENGTH_MIN:
            continue
        yield text
        size += len(text)
        if size > SIZE_MAX:
            return


def counted(scanner: Scanner, folder: Path, seed: int, *, show: DataClass | None) -> Counts:
    """How many texts have which class; with `show`, also the findings that cause it."""
    counts = Counts(Counter(), Counter(), 0)
    for text in texts(folder, seed):
        found = [each for each in scanner.scan(text).findings if each.label not in SOFT]
        top = max((data_class_of(each.label) for each in found), default=DataClass.S0)
        counts.classes[top] += 1
        counts.labels.update(each.label for each in found)
        counts = counts._replace(length=counts.length + len(text))
        for each in found:
            if show is not None and data_class_of(each.label) >= show:
                around = text[max(0, each.start - 40) : each.end + 20]
                said = text[each.start : each.end]
                print(f"  {each.label} {each.detector}: {said!r} of {around!r}")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seed", type=int, default=7)
    names = [each.name for each in DataClass]
    parser.add_argument("--show", choices=names, help="what gave texts this class or a higher one")
    options = parser.parse_args()
    scanner = load()
    show = DataClass[options.show] if options.show else None
    for folder in options.folders:
        counts = counted(scanner, folder, options.seed, show=show)
        shares = ", ".join(f"{each.name} {counts.classes[each]}" for each in DataClass)
        print(f"{folder}: {counts.classes.total()} texts: {shares}")
        per = 100_000 / max(1, counts.length)
        often = (f"{name} {n * per:.1f}" for name, n in counts.labels.most_common(8))
        print(f"  in 100,000 characters: {', '.join(often)}")


if __name__ == "__main__":
    main()
