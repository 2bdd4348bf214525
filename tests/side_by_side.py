"""`python -m tests.side_by_side`: the whole suite as two processes, because two cores are there.

What drives browsers and listeners waits most of its time; beside it everything else runs. Each half
makes its own servers and folders. The first half speaks as it goes, the second when it is done.
What failed is asked once more, alone, where it was little: docs/decisions/0032.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final


PARTED: Final = ("tests/admin", "tests/journeys")
"""The second half; all that is not named here is the first, also what comes new."""
ASKED_AGAIN_MAX: Final = 3
"""More failures than that have a reason in common, and the second answer would say nothing."""
FAILED: Final = 1
"""pytest's exit status where tests failed and nothing else went wrong."""


def main(more: list[str]) -> int:
    """Run both; the exit status is the worse of the two. `more` is handed to each pytest."""
    pytest = [sys.executable, "-m", "pytest", *more]
    rest = [f"--ignore={folder}" for folder in PARTED]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
        remembering = [f"--override-ini=cache_dir={folder}/{half}" for half in ("one", "two")]
        beside = subprocess.Popen(
            [*pytest, remembering[1], *PARTED], stdout=said, stderr=subprocess.STDOUT
        )
        try:
            first = [*pytest, remembering[0], "tests", *rest]
            statuses = [subprocess.run(first, check=False).returncode, beside.wait()]
        finally:
            beside.kill()
        said.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(said.read())
        failed = sorted(test for half in ("one", "two") for test in failures(Path(folder, half)))
    worst = max(abs(status) for status in statuses)  # negative where a signal ended it
    if worst != FAILED or not 1 <= len(failed) <= ASKED_AGAIN_MAX:
        return worst
    return asked_again(pytest, failed)


def failures(cache: Path) -> list[str]:
    """The tests that failed, as pytest names them, from the cache of that run."""
    remembered = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(remembered.read_text())) if remembered.exists() else []


def asked_again(pytest: list[str], failed: list[str]) -> int:
    """The status of a second try of these tests, with nothing beside them."""
    status = subprocess.run([*pytest, *failed], check=False).returncode
    if status == 0:
        sys.stdout.write("UNSTEADY, failed beside the others and passed alone; mend these:\n")
        sys.stdout.writelines(f"  {test}\n" for test in failed)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
