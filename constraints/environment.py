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
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from operator import truediv
from pathlib import Path
from statistics import median


# Calls, attributes, integers, strings, dictionaries: what a gateway's code does all day. For each
# line that is read, the processor seconds of some milliseconds of it.
STEPS = """
import sys, time
class Account:
    __slots__ = ("spent", "held")
    def __init__(self): self.spent = self.held = 0
    def book(self, amount): return self.spent + amount if amount & 1 else self.held - amount
def steps():
    account, seen = Account(), {}
    for number in range(8_000):
        seen[number & 255] = (number, account.book(number))
        name, _, rest = f"{number}:{len(seen)}".partition(":")
    return name, rest
def taken_s():
    started_s = time.process_time()
    steps()
    return time.process_time() - started_s
for _ in sys.stdin:
    print(taken_s(), flush=True)
"""
NEEDED = "import bz2, ctypes, lzma, sqlite3, ssl, venv, zlib"
CLEARLY_FASTER = 0.9
TURNS = 60
ANSWER_S = 10.0
FOR_EVER_S = float("inf")


def builds() -> Iterator[str]:
    """Other builds of this version: by its full name, in the places that commands are found in."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    seen = {os.path.realpath(sys.executable)}
    for folder in (*os.get_exec_path(), "/usr/local/bin", "/usr/bin"):
        file = os.path.realpath(Path(folder, name))
        if file not in seen and os.access(file, os.X_OK):
            seen.add(file)
            yield file


@contextmanager
def started(interpreter: str) -> Iterator[Callable[[], float]]:
    """Asked, it says how long the steps take it; for ever where it lacks a module, or is silent."""
    command = [interpreter, "-I", "-c", f"{NEEDED}\n{STEPS}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    try:
        running = subprocess.Popen(command, bufsize=0, **pipes)
    except OSError:
        yield lambda: FOR_EVER_S
        return

    def asked() -> float:
        try:
            running.stdin.write(b"\n")
            if not select.select([running.stdout], [], [], ANSWER_S)[0]:
                running.kill()  # and what is asked next is told so at once
            return float(running.stdout.readline())
        except (OSError, ValueError):
            return FOR_EVER_S

    try:
        yield asked
    finally:
        running.kill()
        with running:  # closes its pipes and waits for its end
            pass


def fastest() -> str:
    """This interpreter, or another build of it that is clearly faster.

    They take short turns, and each turn compares them: a processor that others use as well changes
    its pace by half within a second, which would decide between times that lie further apart.
    """
    candidates = [sys.executable, *builds()]
    if len(candidates) == 1:
        return sys.executable
    with ExitStack() as stack:
        ask = [stack.enter_context(started(build)) for build in candidates]
        turns = [[asked() for asked in ask] for _ in range(TURNS)]
    ours_s, *others_s = zip(*turns, strict=True)
    shares = [
        median(map(truediv, theirs_s, ours_s)) if max(theirs_s) < FOR_EVER_S else FOR_EVER_S
        for theirs_s in others_s
    ]
    share, found = min(zip(shares, candidates[1:], strict=True))
    return found if share < CLEARLY_FASTER else sys.executable


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
