"""`python -m tests.side_by_side`: the whole suite as two processes, because two cores are there.

What drives browsers and listeners waits most of its time; beside it everything else runs. Each half
makes its own servers and folders. The first half speaks as it goes, the second when it is done.
"""

import subprocess
import sys
import tempfile
from typing import Final


PARTED: Final = ("tests/admin", "tests/journeys")
"""The second half; all that is not named here is the first, also what comes new."""


def main(more: list[str]) -> int:
    """Run both; the exit status is the worse of the two. `more` is handed to each pytest."""
    pytest = [sys.executable, "-m", "pytest", *more]
    with tempfile.TemporaryFile() as said:
        beside = subprocess.Popen([*pytest, *PARTED], stdout=said, stderr=subprocess.STDOUT)
        rest = [f"--ignore={folder}" for folder in PARTED]
        try:
            first = subprocess.run([*pytest, "tests", *rest], check=False).returncode
            second = beside.wait()
        finally:
            beside.kill()
        said.seek(0)
        sys.stdout.flush()
        sys.stdout.buffer.write(said.read())
    return max(first, second)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
