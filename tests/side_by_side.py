"""`python -m tests.side_by_side`: runs the whole suite as four processes, side by side.

Tests with browsers wait for pages, tests of faults wait for outages, tests that start programs wait
for them, and the rest computes: together they fill two cores, which three processes only filled to
two thirds. Each part makes its own servers and folders, and at its end takes files that all parts
share: without them the last part ran alone for minutes. The part named last prints as it goes, the
others when they are done, those that failed last; the very last lines say how each part ended. If
only a few tests failed, they are run once more, alone: docs/decisions/0032.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final


ROOT: Final = Path(__file__).resolve().parent.parent
ADMIN: Final = tuple(
    sorted(
        f"tests/admin/{place.name}"
        for place in (ROOT / "tests" / "admin").iterdir()
        if place.name.startswith("test_") or (place / "__init__.py").exists()
        # So that all parts take about as long: the last part has these, or all of them share them.
        if place.name not in {"compliance", "costs", "models", "policies", "system"}
    )
)
BESIDE: Final = (
    ADMIN,
    ("tests/faults",),
    (
        *("tests/cli", "tests/conformance", "tests/contracts"),
        *("tests/journeys", "tests/local_engine"),
    ),
)
REST: Final = ("tests", *(f"--ignore={folder}" for part in BESIDE for folder in part))
"""The last part is everything not named above, new folders included."""
SHARED: Final = (
    *("tests/admin/models", "tests/admin/policies", "tests/admin/system"),
    *("tests/gateway/store", "tests/gateway/batching", "tests/gateway/worker"),
)
"""Folders of the last part from which each part takes files when it is done with its own."""
ASKED_AGAIN_MAX: Final = 3
"""More failures than that have a common cause, and a second try would say nothing."""
FAILED: Final = 1
"""pytest's exit status if tests failed and nothing else went wrong."""
BROKEN_OFF: Final = 3
"""The status of a part that reports failed tests without saying which."""
NAMED_MAX: Final = 20
"""The most failed tests that a part's report names."""
STUCK_S: Final = 420
"""More than any test may take with its clean-up: then its part ends, and says where it was."""
PART_S: Final = 70 * 60
"""Three times what the slowest part takes on two usual cores, so that it still ends on cores a
third as fast. A test that hangs is ended by `STUCK_S` long before."""
SETTING: Final = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
} | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
"""Some 150 processes import the gateway; if an image forbids bytecode files, each of them compiles
it anew. The path lets pytest find its plugin from any folder."""
SHORT: Final = ("-m", "not long")
"""Tests that take long for what they add are left to `make faults`: this run has 25 minutes."""
STUCK: Final = (
    *("-p", "tests.watched", "-p", "tests.shared_files"),
    f"--override-ini=faulthandler_timeout={STUCK_S}",
    "--override-ini=faulthandler_exit_on_timeout=true",
)


@dataclass(frozen=True)
class Part:
    """One of the processes, with its own folder for its cache and its files."""

    places: tuple[str, ...]
    folder: Path
    process: "subprocess.Popen[bytes]"

    @property
    def named(self) -> str:
        """Its name in the report at the end."""
        return (
            f"{self.places[0]} and {len(self.places) - 1} more"
            if self.places[1:]
            else self.places[0]
        )

    @property
    def said(self) -> Path:
        """Its output; for the last part only its standard error."""
        return self.folder / "said"

    def failures(self) -> list[str]:
        """The tests that failed, as pytest names them, from the cache of that run."""
        remembered = self.folder / "cache" / "v" / "cache" / "lastfailed"
        return list(json.loads(remembered.read_text())) if remembered.exists() else []


def main(more: list[str]) -> int:
    """Run all parts; the exit status is the worst of them. `more` is passed to each pytest."""
    pytest = [sys.executable, "-m", "pytest", *STUCK, *SHORT, *more]
    with ExitStack() as stack:
        # Files that a killed program still writes there are not a failed test.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        (folder / "claims").mkdir()
        parts = [begun(pytest, places, folder, stack) for places in (*BESIDE, REST)]
        begun_s = time.monotonic()
        # The part that is named last is waited for first: it prints as it goes.
        statuses = {part: ended(part.process, begun_s) for part in reversed(parts)}
        for part, status in statuses.items():
            if status == FAILED and not part.failures():
                statuses[part] = BROKEN_OFF
        give_account(statuses)
        worst = max(abs(status) for status in statuses.values())  # negative: ended by a signal
        failed = sorted(test for part in parts for test in part.failures())
        if worst != FAILED or not 1 <= len(failed) <= ASKED_AGAIN_MAX:
            return worst
        return asked_again([*pytest, *kept_in(folder / "again")], failed)


def begun(pytest: list[str], places: tuple[str, ...], folder: Path, stack: ExitStack) -> Part:
    """A part that runs until `stack` is left."""
    own = folder / str(len(list(folder.iterdir())))
    part_of = [f"--claims={folder / 'claims'}", *(f"--shared={each}" for each in SHARED)]
    command = [*pytest, *kept_in(own), *part_of, *places]
    with (own / "said").open("wb") as said:
        if places is REST:
            process = subprocess.Popen(command, stderr=said, env=SETTING)
        else:
            process = subprocess.Popen([*command, *SHARED], stdout=said, stderr=said, env=SETTING)
    stack.callback(process.kill)
    return Part(places, own, process)


def kept_in(folder: Path) -> list[str]:
    """The options of a pytest that shares no folder with another.

    By default it numbers the folders of a user's runs, and each run that ends removes old ones: two
    that end at once remove the same one, and the slower of them breaks off.
    """
    folder.mkdir()
    return [f"--override-ini=cache_dir={folder / 'cache'}", f"--basetemp={folder / 'files'}"]


def give_account(statuses: dict[Part, int]) -> None:
    """Print what has not been printed yet, passed parts first, then how each part ended.

    So whoever reads only the last lines of a run sees why it failed.
    """
    by_status = sorted(statuses.items(), key=lambda each: abs(each[1]))
    for part, _ in by_status:
        sys.stdout.flush()
        sys.stdout.buffer.write(part.said.read_bytes())
    for part, status in by_status:
        sys.stdout.write(f"status {status}: {part.named}\n")
        sys.stdout.writelines(f"  failed: {test}\n" for test in part.failures()[:NAMED_MAX])
        if status == BROKEN_OFF:
            sys.stdout.write("  it broke off, or failed in clearing up: no test is named\n")
    sys.stdout.flush()


def ended(process: subprocess.Popen[bytes], begun_s: float) -> int:
    """A part's exit status; one that takes too long prints each thread's stack, and is ended."""
    try:
        return process.wait(max(1.0, begun_s + PART_S - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # pytest's handler prints all stacks
        return process.wait()


def asked_again(pytest: list[str], failed: list[str]) -> int:
    """The status of a second try of these tests, with nothing running beside them."""
    status = subprocess.run([*pytest, *failed], check=False, env=SETTING).returncode
    if status == 0:
        sys.stdout.write("UNSTEADY, failed beside the others and passed alone; mend these:\n")
        sys.stdout.writelines(f"  {test}\n" for test in failed)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
