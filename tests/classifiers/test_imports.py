"""The classifiers import nothing heavy at run time."""

import subprocess
import sys
from pathlib import Path


def test_inspection_and_complexity_need_neither_sklearn_nor_torch() -> None:
    assert _printed(
        "import sys, classifiers.inspection, classifiers.complexity.model;"
        "heavy = {'scipy', 'sklearn', 'torch', 'asyncio', 'gateway', 'numpy.typing'};"
        "print(sorted(heavy & set(sys.modules)))"
    ) == ["[]"]


def test_rules_are_compiled_when_a_text_or_the_warming_needs_them_and_not_at_the_start() -> None:
    assert _printed(
        "from classifiers.pii import detect; from classifiers.pii.views import normalise;"
        "from classifiers.pii.scanner import load;"
        "built = lambda: (detect._compiled.cache_info().currsize,"
        "                 normalise._table.cache_info().currsize);"
        "scanner = load(); print(*built());"
        "print(len(scanner.scan('mail anna.berg@kunde.de').findings)); print(*built());"
        "scanner.warm(); print(built() == (len(detect._RULES), 1))"
    ) == ["0 0", "1", "1 0", "True"]


def _printed(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()
