"""Make an environment from the build of this Python that runs Python fastest.

    python3 constraints/environment.py .venv                this interpreter, exactly
    python3 constraints/environment.py --any-build .venv    or another build of the same version

One version of CPython runs at very different speeds, by how it was built: with profiles of a run,
as distributions do, or without, as version managers do that compile it. A build does not say
everywhere which of the two it is, so each runs the same few steps, and another one is taken only
where it is clearly faster. docs/decisions/0038 has the reasons.
"""

import argparse
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


# Calls, attributes, integers, strings, dictionaries: what a gateway's code does all day. Processor
# seconds, the least of seven times, because whatever else the machine does can only add to it.
STEPS = """
import time
class Account:
    __slots__ = ("spent", "held")
    def __init__(self): self.spent = self.held = 0
    def book(self, amount): return self.spent + amount if amount & 1 else self.held - amount
def steps():
    account, seen = Account(), {}
    for number in range(40_000):
        seen[number & 255] = (number, account.book(number))
        name, _, rest = f"{number}:{len(seen)}".partition(":")
    return name, rest
def taken_s():
    started_s = time.process_time()
    steps()
    return time.process_time() - started_s
print(min(taken_s() for _ in range(7)))
"""
NEEDED = "import bz2, ctypes, lzma, sqlite3, ssl, venv, zlib"
CLEARLY_FASTER = 0.9
ROUNDS = 3
ANSWER_S = 30.0


def builds() -> Iterator[str]:
    """Other builds of this version: by its full name, in the places that commands are found in."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    seen = {os.path.realpath(sys.executable)}
    for folder in (*os.get_exec_path(), "/usr/local/bin", "/usr/bin"):
        file = os.path.realpath(Path(folder, name))
        if file not in seen and os.access(file, os.X_OK):
            seen.add(file)
            yield file


def steps_s(interpreter: str) -> float:
    """How long the steps take it; for ever where it lacks a module that is needed."""
    command = [interpreter, "-I", "-c", f"{NEEDED}\n{STEPS}"]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=ANSWER_S)
        return float(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return float("inf")


def fastest() -> str:
    """This interpreter, or another build of it that is clearly faster.

    They take turns, and the least time of each counts: something else that starts or ends between
    two of them must not decide.
    """
    candidates = [sys.executable, *builds()]
    if len(candidates) == 1:
        return sys.executable
    rounds = [[steps_s(build) for build in candidates] for _ in range(ROUNDS)]
    ours_s, *others_s = (min(times) for times in zip(*rounds, strict=True))
    found_s, found = min(zip(others_s, candidates[1:], strict=True))
    return found if found_s < ours_s * CLEARLY_FASTER else sys.executable


def source_of_pip() -> list[str]:
    """The one that came with this Python, else the release that is running."""
    ours = importlib.util.find_spec("ensurepip")
    if ours is not None and ours.origin is not None:
        for wheel in Path(ours.origin).parent.glob("_bundled/pip-*.whl"):
            return ["--no-index", "--no-deps", str(wheel)]
    return [f"pip=={importlib.metadata.version('pip')}"]


def make(interpreter: str, folder: str) -> None:
    """The environment, with pip put in from here: a distribution's Python may come without it."""
    subprocess.run([interpreter, "-m", "venv", "--without-pip", folder], check=True)
    target = str(Path(folder, "bin", "python"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", target]
    subprocess.run([*pip, "install", "--quiet", *source_of_pip()], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--any-build", action="store_true")
    parser.add_argument("folder")
    options = parser.parse_args()
    interpreter = fastest() if options.any_build else sys.executable
    if interpreter != sys.executable:
        reason = f"it runs Python faster than {sys.executable} (PYTHON= chooses)"
        sys.stderr.write(f"{options.folder} is made with {interpreter}: {reason}\n")
    make(interpreter, options.folder)


if __name__ == "__main__":
    main()
