"""A command that is stopped, or whose terminal is closed, leaves nothing half done behind."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.operator import Operator
from tests.cli.test_brief_log import asked


__all__ = ["asked"]
_STOPPED = """
import asyncio, os, sys
from gateway.__main__ import main
from gateway.store.evidence.sink import DatabaseAuditSink

number = int(sys.argv.pop(1))

async def stopped(*_given, **_named):
    os.kill(os.getpid(), number)
    await asyncio.Event().wait()
    yield

DatabaseAuditSink.records = stopped
main()
"""
SIGNALS = [signal.SIGTERM, signal.SIGHUP]


BACKGROUND = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
"""As a shell without job control starts a command behind which there is an `&`."""


def stopped(
    operator: Operator, number: signal.Signals, *arguments: str, before: str = ""
) -> tuple[int, str]:
    """How a command ended that was stopped as it read records, and what it said."""
    command = [sys.executable, "-c", before + _STOPPED, str(int(number)), *arguments]
    done = subprocess.run(
        [*command, "--config", str(operator.config_file)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("before", ["", BACKGROUND], ids=["foreground", "background"])
def test_an_export_leaves_no_part_that_looks_whole(
    operator: Operator, tmp_path: Path, number: signal.Signals, before: str
) -> None:
    file = tmp_path / "records.jsonl"
    ended = stopped(operator, number, "audit", "export", "--output", str(file), before=before)
    assert (ended, file.exists()) == ((-number, ""), False)


@pytest.mark.parametrize("number", SIGNALS)
def test_an_erasure_that_was_stopped_is_carried_out_by_the_next_command(
    operator: Operator, asked: str, number: signal.Signals
) -> None:
    """Its case stayed claimed: for a quarter of an hour nobody could go on."""
    agree = ("audit", "erasure", "approve", asked, "--comment", "agreed")
    assert stopped(operator, number, *agree) == (-number, "")
    done = operator.config(*agree)
    assert (done.status, done.errors) == (0, "")
    assert "1 keys destroyed" in done.output


def test_who_is_told_to_ignore_a_closed_terminal_does(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    going_on = _STOPPED.replace("await asyncio.Event().wait()", "return")
    command = [sys.executable, "-c", ignoring + going_on, str(int(signal.SIGHUP)), "audit"]
    of = ("--output", str(file), "--config", str(operator.config_file))
    done = subprocess.run([*command, "export", *of], check=False, timeout=60)
    assert (done.returncode, file.exists()) == (0, True)
