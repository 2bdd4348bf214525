"""`python -m tests.mutants gateway/dispatch`: which small changes of a room do its tests not see?

Each mutant is the program with one change, drawn by the seed. It is asked by those tests that call
the changed function, out of the files that import its module or lie in the folder of its room, the
shortest first, until one fails (`forking`). A change outside of functions, and with `--in-copies`
every one, is asked in a copy of the tree, by all tests of the files, anew each time (`trying`).
A survivor is a question, not a fault: it may be the same program, differ in what nobody was
promised, or be seen by tests further away (`--tests`) or by those that start programs.
"""

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from tests.mutants.changes import Change, changes
from tests.mutants.forking import Mutant, Tell, ask_in_forks
from tests.mutants.trying import KILLED, SURVIVED, ask, copied, nearest


ROOT: Final = Path(__file__).resolve().parent.parent.parent
UNASKED: Final = "not asked (as it stands its tests fail, are late, or are none)"


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
    asked.add_argument("--in-copies", action="store_true", help="programs that tests start, too")
    told = asked.parse_args()
    counts: Counter[str] = Counter()
    # Tests that have drawn PostgreSQL are asked on SQLite: on the other no mutant is (`MARKS`).
    os.environ["GATEWRIGHT_TEST_EVERY_DATABASE"] = "1"
    # While tests run, what is written to the standard output is theirs.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1) as output:

        def tell(mutant: Mutant, became: str) -> None:
            counts[became] += 1
            module, change = mutant
            if became != KILLED:
                place = f"{became} {module}:{change.line}"
                output.write(f"{place}: {change.was}  =>  {change.becomes}\n")

        left = drawn(told.places, told.seed, told.count)
        if not told.in_copies:
            near = {test for module in {each for each, _ in left} for test in nearest(module, ROOT)}
            left = ask_in_forks(ROOT, left, told.tests or sorted(near), told.limit_s, tell)
        ask_in_copies(left, told.tests, told.limit_s, tell)
        output.write(", ".join(f"{count} {each}" for each, count in sorted(counts.items())) + "\n")


def ask_in_copies(
    mutants: Sequence[Mutant], tests: Sequence[str], limit_s: float, tell: Tell
) -> None:
    """Write each mutant into the file of a copy, and tell what became of it."""
    with tempfile.TemporaryDirectory() as folder:
        root = copied(ROOT, Path(folder))
        for module, its in groupby(mutants, itemgetter(0)):
            asked, file = tests or nearest(module, root), root / module
            is_right = asked and ask(root, asked, limit_s) == SURVIVED
            whole = file.read_text(encoding="utf-8")
            for mutant in its:
                file.write_text(mutant[1].text, encoding="utf-8")
                tell(mutant, ask(root, asked, limit_s) if is_right else UNASKED)
            file.write_text(whole, encoding="utf-8")


if __name__ == "__main__":
    main()
