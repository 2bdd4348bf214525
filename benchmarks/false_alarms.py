"""How many files of code, manuals and logs would be kept at home, by folder.

`python -m benchmarks.false_alarms DIR…`: of each folder up to 400 KB of texts, the first 16,000
characters of each, drawn by a fixed seed. What is in them is for a reader to judge (`--show`):
examples of keys in a manual are no false alarms.
"""

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from classifiers.pii.labels import DataClass, data_class_of
from classifiers.pii.scanner import Scanner, load


SIZE_MAX = 400_000
LENGTH_MAX = 16_000
LENGTH_MIN = 200
ENDINGS = frozenset({".py", ".js", ".md", ".rst", ".txt", ".json", ".yaml", ".toml", ".sh", ""})


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


def counted(scanner: Scanner, folder: Path, seed: int, *, show: bool) -> Counter[DataClass]:
    """How many texts have which class; with `show`, also where those of S3 and S4 have it from."""
    classes: Counter[DataClass] = Counter()
    for text in texts(folder, seed):
        found = scanner.scan(text).findings
        classes[max((data_class_of(each.label) for each in found), default=DataClass.S0)] += 1
        for each in found if show else ():
            if data_class_of(each.label) >= DataClass.S3:
                around = text[max(0, each.start - 40) : each.end + 20]
                print(f"  {each.label} {each.detector}: {around!r}")
    return classes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--show", action="store_true", help="what made texts S3 or S4")
    options = parser.parse_args()
    scanner = load()
    for folder in options.folders:
        classes = counted(scanner, folder, options.seed, show=options.show)
        shares = ", ".join(f"{each.name} {classes[each]}" for each in DataClass)
        print(f"{folder}: {classes.total()} texts: {shares}")


if __name__ == "__main__":
    main()
