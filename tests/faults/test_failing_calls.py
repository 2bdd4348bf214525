"""Each system call of the audit log, its signer and a file sink fails in turn: nothing is lost.

Row 5 of the fault matrix. The calls fail below the interpreter, in place of the C library. `make
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
from typing import Any

import pytest

from tests.faults import syscall_beside, syscall_reader, syscall_victim
from tests.faults.syscall_victim import RECORDS


SOURCE = Path(__file__).with_name("failing_calls.c")
MEMORY = Path("/dev/shm")  # noqa: S108 - nothing there is trusted
ERRORS = os.environ.get("GATEWRIGHT_FAULT_ERRORS", "EIO").split(",")
COMPILER = shutil.which("cc")

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(COMPILER is None, reason="needs a C compiler"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs LD_PRELOAD"),
]


def cases_of(victim: str, tmp_path: Path) -> list[dict[str, Any]]:
    """What a victim, a process of its own, says about each call that failed."""
    shim = tmp_path / "failing.so"
    assert COMPILER is not None
    flags = ("-shared", "-fPIC", "-O1", "-w", "-o", str(shim), str(SOURCE), "-ldl")
    subprocess.run([COMPILER, *flags], check=True)
    # In memory where that can be had: what fails is decided by the shim, and syncs take no time.
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as folder:
        done = subprocess.run(
            [sys.executable, "-m", victim, folder, str(shim), *ERRORS],
            env=os.environ | {"LD_PRELOAD": str(shim)},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"call"')]
    return [json.loads(line) for line in lines]


def test_whichever_system_call_fails_the_log_is_whole_and_nothing_acknowledged_is_lost(
    tmp_path: Path,
) -> None:
    cases = cases_of(syscall_victim.__name__, tmp_path)
    failed = [case for case in cases if case["hit"]]

    assert [case for case in cases if case["wrong"]] == []
    # Whoever was not refused got a receipt, and one more was recorded after a restart.
    for case in cases:
        starts = 0 if case["acknowledged"] == RECORDS + 1 else case["refused"]
        assert case["acknowledged"] + starts == RECORDS + 1, case
        assert case["refused"] <= 1, case
    reached = Counter(case["call"] for case in failed)
    assert set(reached) == set(syscall_victim.CALLS)
    assert any(case["refused"] for case in failed if case["call"] == "fdatasync")
    print(  # noqa: T201 - the figures of `make faults`
        f"\n{len(failed)} failing system calls ({dict(reached)}): lost 0, damaged logs 0"
    )


@pytest.mark.long
def test_whichever_system_call_fails_checkpoints_and_exports_get_out_whole(tmp_path: Path) -> None:
    cases = cases_of(syscall_beside.__name__, tmp_path)
    failed = [case for case in cases if case["hit"]]
    assert [case for case in cases if case["wrong"]] == []
    # One failing call is one round that is made again, or one start.
    assert {case["failed"] for case in failed} == {0, 1}
    reached = Counter(case["call"] for case in failed)
    assert set(reached) == set(syscall_beside.CALLS)
    print(f"\n{len(failed)} failing calls of signer and sink ({dict(reached)}): lost 0")  # noqa: T201


@pytest.mark.long
def test_whichever_system_call_fails_nothing_that_is_there_is_called_damaged_or_missing(
    tmp_path: Path,
) -> None:
    cases = cases_of(syscall_reader.__name__, tmp_path)
    failed = [case for case in cases if case["hit"]]
    assert [case for case in cases if case["wrong"]] == []
    reached = Counter((case["way"], case["call"]) for case in failed if case["told"])
    assert {way for way, _ in reached} == {"records", "fsck", "erasure", "open intents"}
    assert {call for _, call in reached} == set(syscall_reader.CALLS)
    print(f"\n{len(failed)} failing calls of readers, {sum(reached.values())} of them said so")  # noqa: T201
