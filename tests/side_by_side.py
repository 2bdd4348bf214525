"""`python -m tests.side_by_side`: the whole suite as four processes, beside each other.

What drives browsers waits for pages, what tries faults waits for outages, what starts programs
waits for them, and the rest computes: together they fill two cores, which three did to two thirds.
Each part makes its own servers and folders, and at its end takes files that all parts share:
without them the last one stood alone for minutes. The part that is named last speaks as it goes,
the others when they are done. What failed is asked once more, alone, where it was little:
docs/decisions/0032.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final


ROOT: Final = Path(__file__).resolve().parent.parent
ADMIN: Final = tuple(
    sorted(
        f"tests/admin/{place.name}"
        for place in (ROOT / "tests" / "admin").iterdir()
        if place.name.startswith("test_") or (place / "__init__.py").exists()
        if place.name not in {"compliance", "costs"}  # so all parts take about as long
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
"""The last part is all that is not named above, also what comes new."""
SHARED: Final = ("tests/gateway/store", "tests/gateway/batching", "tests/gateway/worker")
"""Of the last part: each part takes files of these when it is done with all others."""
ASKED_AGAIN_MAX: Final = 3
"""More failures than that have a reason in common, and the second answer would say nothing."""
FAILED: Final = 1
"""pytest's exit status where tests failed and nothing else went wrong."""
BROKEN_OFF: Final = 3
"""The status of a part that says that tests failed, and does not say which."""
STUCK_S: Final = 420
"""More than any test may take with its clearing up: then its part ends, and says where it stood."""
PART_S: Final = 45 * 60
SETTING: Final = {
    name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
} | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
"""Some 150 processes import the gateway; where an image forbids it to be kept as it was compiled,
each of them compiles it anew. And pytest finds its plugin, wherever it is started."""
STUCK: Final = (
    *("-p", "tests.watched", "-p", "tests.shared_files"),
    f"--override-ini=faulthandler_timeout={STUCK_S}",
    "--override-ini=faulthandler_exit_on_timeout=true",
)


def main(more: list[str]) -> int:
    """Run all parts; the exit status is the worst of them. `more` is handed to each pytest."""
    pytest = [sys.executable, "-m", "pytest", *STUCK, *more]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        caches = [folder / str(number) for number in range(len(BESIDE) + 1)]
        claims = folder / "claims"
        claims.mkdir()
        sharing = [f"--claims={claims}", *(f"--shared={each}" for each in SHARED)]
        remembering = [[f"--override-ini=cache_dir={cache}", *sharing] for cache in caches]
        running = []
        for part, cache in zip(BESIDE, remembering, strict=False):
            said = stack.enter_context(tempfile.TemporaryFile())
            command = [*pytest, *cache, *part, *SHARED]
            process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=SETTING)
            stack.callback(process.kill)
            running.append((process, said))
        begun_s = time.monotonic()
        last = subprocess.Popen([*pytest, *remembering[-1], *REST], env=SETTING)
        stack.callback(last.kill)
        statuses = [ended(last, begun_s)]
        for process, said in running:
            statuses.append(ended(process, begun_s))
            said.seek(0)
            sys.stdout.flush()
            sys.stdout.buffer.write(said.read())
        # In the order of the caches: the last part was the first to be waited for.
        statuses = [*statuses[1:], statuses[0]]
        for at, where in enumerate(caches):
            if statuses[at] == FAILED and not failures(where):
                statuses[at] = BROKEN_OFF
        failed = sorted(test for cache in caches for test in failures(cache))
    worst = max(abs(status) for status in statuses)  # negative where a signal ended it
    if worst != FAILED or not 1 <= len(failed) <= ASKED_AGAIN_MAX:
        return worst
    return asked_again(pytest, failed)


def ended(process: subprocess.Popen[bytes], begun_s: float) -> int:
    """A part's exit status; one that takes too long says where each thread is, and is ended."""
    try:
        return process.wait(max(1.0, begun_s + PART_S - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # pytest's handler prints all stacks
        return process.wait()


def failures(cache: Path) -> list[str]:
    """The tests that failed, as pytest names them, from the cache of that run."""
    remembered = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(remembered.read_text())) if remembered.exists() else []


def asked_again(pytest: list[str], failed: list[str]) -> int:
    """The status of a second try of these tests, with nothing beside them."""
    status = subprocess.run([*pytest, *failed], check=False, env=SETTING).returncode
    if status == 0:
        sys.stdout.write("UNSTEADY, failed beside the others and passed alone; mend these:\n")
        sys.stdout.writelines(f"  {test}\n" for test in failed)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
