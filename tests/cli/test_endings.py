"""How a command ends that cannot print, or is stopped: in a line or none, with a status of its own.

Status 1 is what says that something checked does not hold.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli.audit import _opened
from gateway.cli.options import Refused
from gateway.types import Receipt
from tests.cli.operator import Operator
from tests.cli.test_audit import receipts
from tests.cli.test_deeds import deeds
from tests.full_disk import room_for


__all__ = ["receipts"]


def _printed_to(output: int, *arguments: str | Path) -> tuple[int, str]:
    """Status and standard error of a process that prints to a descriptor."""
    command = [sys.executable, "-m", "gateway", *map(str, arguments)]
    done = subprocess.run(
        command, stdout=output, stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    os.close(output)
    return done.returncode, done.stderr


def _pipe_without_a_reader() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("command", ["verify", "fsck"])
def test_a_reader_that_left_does_not_make_the_log_bad(
    operator: Operator, receipts: list[Receipt], command: str
) -> None:
    arguments = ("audit", command, "--config", operator.config_file)
    assert _printed_to(_pipe_without_a_reader(), *arguments) == (141, "")


def test_output_that_finds_no_room_is_one_line() -> None:
    status, errors = _printed_to(os.open("/dev/full", os.O_WRONLY), "users", "roles")
    assert (status, errors) == (2, "gatewright: the output: No space left on device\n")


def test_who_interrupts_a_command_is_not_told_that_something_is_bad(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Typing:
        def read(self) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Typing())
    ended = operator.config("secrets", "set", "upstream")

    assert (ended.status, ended.errors) == (130, "gatewright: interrupted\n")
    assert deeds(operator) == []


def test_an_export_that_finds_no_room_at_its_end_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    said = pytest.raises(Refused, match=r"records\.jsonl: File too large")
    with room_for(1_000), said, _opened(path) as file:
        file.write(bytes(2_000))
    assert not path.exists()
