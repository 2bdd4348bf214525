"""Asking tests about a mutant: in a copy of the tree, so that programs they start change too."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final


SURVIVED: Final = "SURVIVED"
KILLED: Final = "killed"
LATE: Final = "out of time"
TOLD: Final = {0: SURVIVED, 1: KILLED, 2: KILLED, 4: KILLED}
"""By pytest's exit status: 2 and 4 say that a file of tests could not be imported any more."""
NOT_COPIED: Final = (".git", ".venv", ".clients", ".*_cache", "__pycache__", "node_modules")
MARKS: Final = "not postgres"


def copied(root: Path, into: Path) -> Path:
    """Copy a working tree without what was installed or made in it; link what it runs in."""
    tree = shutil.copytree(root, into / "tree", ignore=shutil.ignore_patterns(*NOT_COPIED))
    (tree / ".venv").symlink_to((root / ".venv").resolve())
    return tree


def nearest(module: str, root: Path) -> list[str]:
    """Files of tests that import a module or lie in the folder of its room, the nearest first."""
    room, name = Path(module).parent.as_posix(), Path(module).stem
    dotted = module.removesuffix(".py").replace("/", ".")
    files = {each.relative_to(root).as_posix(): each for each in root.glob("tests/**/test_*.py")}

    def how_far(test: str) -> tuple[bool, bool, str]:
        return name not in test, not test.startswith(f"tests/{room}/"), test

    return sorted(
        (
            test
            for test, file in files.items()
            if test.startswith(f"tests/{room}/") or dotted in file.read_text(encoding="utf-8")
        ),
        key=how_far,
    )


def ask(root: Path, tests: Sequence[str], limit_s: float) -> str:
    """Run tests of a copy until the first failure, and say what became of the mutant in it."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-m", MARKS, *tests]
    command += ["-p", "no:cacheprovider"]
    running = subprocess.Popen(
        command,
        cwd=root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with ended_with_this(running.pid):
        try:
            status = running.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)  # with every program that a test has started
            running.wait()
            return LATE
    return TOLD.get(status, f"pytest ended with {status}")


@contextmanager
def ended_with_this(group: int) -> Iterator[None]:
    """Whoever ends this process ends the tests with it: they lead a group of their own."""

    def end(told: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        signal.signal(told, signal.SIG_DFL)
        signal.raise_signal(told)

    was = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, was)
