"""`python -m tests.mutants gateway/dispatch`: which small changes of a room do its tests not see?

Each mutant is the tree with one change. It is asked by the tests that import its module or lie in
the folder of its room, the nearest first, until one fails. Mutants are drawn by the seed.
A survivor is a question, not a fault: it may be the same program, differ in what nobody was
promised, or be seen by tests further away (`--tests`).
"""

import argparse
import random
import sys
import tempfile
from collections import Counter
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from tests.mutants.changes import Change, changes
from tests.mutants.trying import KILLED, SURVIVED, ask, copied, nearest


ROOT: Final = Path(__file__).resolve().parent.parent.parent


def drawn(places: list[str], seed: int, count: int) -> list[tuple[str, Change]]:
    """Draw mutants of files and folders by chance, none twice, and give them by place."""
    every = []
    for place in places:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            module = file.relative_to(ROOT).as_posix()
            every += [(module, each) for each in changes(file.read_text(encoding="utf-8"))]
    return sorted(random.Random(seed).sample(every, min(count, len(every))))


def main() -> None:
    """Try every mutant that was drawn, and say what became of it."""
    asked = argparse.ArgumentParser(description=__doc__, prog="python -m tests.mutants")
    asked.add_argument("places", nargs="+", help="files or folders of source")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--count", type=int, default=40, help="mutants in all")
    asked.add_argument("--limit-s", type=float, default=120, help="for the tests of one mutant")
    asked.add_argument("--tests", nargs="+", default=[], help="these, instead of the nearest")
    told = asked.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        root = copied(ROOT, Path(folder))
        mutants = drawn(told.places, told.seed, told.count)
        for module, its in groupby(mutants, itemgetter(0)):
            tests, file = told.tests or nearest(module, root), root / module
            if not tests or ask(root, tests, told.limit_s) != SURVIVED:
                _say(f"{module}: not asked, for its tests fail as it stands, or there are none")
                continue
            whole = file.read_text(encoding="utf-8")
            for _, change in its:
                file.write_text(change.text, encoding="utf-8")
                became = ask(root, tests, told.limit_s)
                counts[became] += 1
                if became != KILLED:
                    _say(f"{became} {module}:{change.line}: {change.was}  =>  {change.becomes}")
            file.write_text(whole, encoding="utf-8")
    _say(", ".join(f"{count} {became}" for became, count in sorted(counts.items())))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
