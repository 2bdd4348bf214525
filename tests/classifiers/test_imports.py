"""The classifiers import nothing heavy at run time."""

import subprocess
import sys
from pathlib import Path


def test_inspection_and_complexity_need_neither_sklearn_nor_torch() -> None:
    program = (
        "import sys, classifiers.inspection, classifiers.complexity.model;"
        "heavy = {'scipy', 'sklearn', 'torch', 'asyncio', 'gateway'} & set(sys.modules);"
        "print(sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "[]"
