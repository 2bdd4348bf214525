"""Each system call of the audit log fails in turn, for real: nothing acknowledged is lost.

Row 5 of the fault matrix. The calls fail below the interpreter, in the C library's place. `make
faults` tries more errors.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.faults.syscall_victim import CALLS, RECORDS


SOURCE = Path(__file__).with_name("failing_calls.c")
MEMORY = Path("/dev/shm")  # noqa: S108 - nothing there is trusted
ERRORS = os.environ.get("GATEWRIGHT_FAULT_ERRORS", "EIO").split(",")
COMPILER = shutil.which("cc")

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(COMPILER is None, reason="needs a C compiler"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs LD_PRELOAD"),
]


def test_whichever_system_call_fails_the_log_is_whole_and_nothing_acknowledged_is_lost(
    tmp_path: Path,
) -> None:
    shim = tmp_path / "failing.so"
    assert COMPILER is not None
    flags = ("-shared", "-fPIC", "-O1", "-w", "-o", str(shim), str(SOURCE), "-ldl")
    subprocess.run([COMPILER, *flags], check=True)
    # In memory where that can be had: what fails is decided by the shim, and syncs take no time.
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.faults.syscall_victim", folder, str(shim), *ERRORS],
            env=os.environ | {"LD_PRELOAD": str(shim)},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"call"')]
    cases = [json.loads(line) for line in lines]
    failed = [case for case in cases if case["hit"]]

    assert [case for case in cases if case["wrong"]] == []
    # Whoever was not refused got a receipt, and one more was recorded after a restart.
    for case in cases:
        starts = 0 if case["acknowledged"] == RECORDS + 1 else case["refused"]
        assert case["acknowledged"] + starts == RECORDS + 1, case
        assert case["refused"] <= 1, case
    reached = Counter(case["call"] for case in failed)
    assert set(reached) == set(CALLS)
    assert any(case["refused"] for case in failed if case["call"] == "fdatasync")
    print(  # noqa: T201 - the figures of `make faults`
        f"\n{len(failed)} failing system calls ({dict(reached)}): lost 0, damaged logs 0"
    )
