"""How a command ends that cannot print, or is stopped: in a line or none, with a status of its own.

Status 1 is what says that something checked does not hold.
"""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gateway.__main__ import commands
from gateway.cli.audit.verifying import _opened
from gateway.cli.options import Refused
from gateway.types import Receipt
from tests.cli.operator import Operator, walk
from tests.cli.test_audit import receipts
from tests.cli.test_deeds import deeds
from tests.cli.test_keeping import talkative
from tests.full_disk import room_for


__all__ = ["receipts", "talkative"]


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


@pytest.mark.parametrize(
    ("output", "status", "said"),
    [
        (partial(os.open, "/dev/full", os.O_WRONLY), 2, "the output: No space left on device"),
        (_pipe_without_a_reader, 141, ""),
    ],
)
def test_retention_whose_lines_nobody_gets_is_done_and_blames_no_file_of_its_own(
    talkative: Operator, output: Callable[[], int], status: int, said: str
) -> None:
    retain = ("audit", "retain", "--yes", "--config", talkative.config_file)
    ended, errors = _printed_to(output(), *retain)
    assert (ended, said in errors) == (status, True)
    lines = talkative.config("audit", "retain").output.splitlines()
    assert {each["keys"] for each in map(json.loads, lines)} == {0}


def test_a_key_that_cannot_be_printed_is_none_and_a_rotation_did_not_happen(
    operator: Operator,
) -> None:
    def listed() -> list[dict[str, Any]]:
        return list(map(json.loads, operator.config("keys", "list").output.splitlines()))

    place = ("--organisation", "acme", "--workspace", "w", "--project", "p", "--name", "k")
    issue = ("keys", "issue", *place, "--config", operator.config_file)
    for output in (os.open("/dev/full", os.O_WRONLY), _pipe_without_a_reader()):
        assert _printed_to(output, *issue)[0] in (2, 141)
    assert [each["live"] for each in listed()] == [False, False]

    key = operator.config("keys", "issue", *place).last_line
    key_id = key.split("_")[2]
    (before,) = (each for each in listed() if each["live"])
    rotate = ("keys", "rotate", key_id, "--config", operator.config_file)
    assert _printed_to(_pipe_without_a_reader(), *rotate) == (141, "")
    (after,) = (each for each in listed() if each["live"])
    assert after == before
    records = deeds(operator)
    assert [(each["action"], each["status"]) for each in records[-2:]] == [
        *(("key.rotated", "ok"), ("key.rotated", "failed")),
    ]
    assert operator.config("keys", "rotate", key_id).status == 0, "no secret overlaps"


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_that_cannot_be_printed_ends_like_a_command(option: str) -> None:
    status, errors = _printed_to(os.open("/dev/full", os.O_WRONLY), option)
    assert (status, errors) == (2, "gatewright: the output: No space left on device\n")
    assert _printed_to(_pipe_without_a_reader(), option) == (141, "")


def _started_with(closed: str, *arguments: str | Path) -> tuple[int, bytes, str]:
    """Status, output and standard error of a process whose shell closed a stream."""
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "gateway"]
    done = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr.decode()


def test_a_stream_that_was_closed_is_neither_a_crash_nor_the_next_file(
    operator: Operator,
) -> None:
    of = ("--config", operator.config_file)
    said = "gatewright: the output: Bad file descriptor\n"
    for command in (("costs", "export", *of), ("audit", "key", *of), ("users", "roles")):
        status, _, errors = _started_with(">&-", *command)
        assert (status, errors.count("\n")) == (2, 1), errors
    assert _started_with(">&-", "users", "roles")[2] == said
    assert _started_with("<&-", "secrets", "set", "x", *of) == (
        *(2, b""),
        "gatewright: a secret is neither empty nor huge\n",
    )
    assert _started_with("<&-", "inspect", "pii") == (0, b"", "")
    assert _started_with("2>&-", "secrets", "set", "x", *of)[:2] == (2, b"")


def test_what_is_typed_on_a_terminal_is_not_shown(operator: Operator) -> None:
    ours, theirs = pty.openpty()
    command = ("secrets", "set", "upstream", "--config", str(operator.config_file))
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", *command],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(theirs)
    assert process.stderr is not None
    assert process.stderr.read(len("It is not shown: ")) == b"It is not shown: "
    os.write(ours, b"typed by hand\n")
    output, _ = process.communicate(timeout=60)
    os.set_blocking(ours, False)
    with suppress(OSError):
        assert b"typed" not in os.read(ours, 1_000)
    os.close(ours)
    assert (process.returncode, output) == (0, b"upstream: version 1\n")


def test_a_file_that_nobody_thought_of_is_named_in_a_line(tmp_path: Path) -> None:
    command = ("train", "pii", "--data", tmp_path, "--out", tmp_path / "out")
    status, errors = _printed_to(os.open(os.devnull, os.O_WRONLY), *command)
    said = f"gatewright: {tmp_path}/train.jsonl.gz: No such file or directory\n"
    assert (status, errors) == (2, said)


def test_who_interrupts_a_command_is_not_told_that_something_is_bad(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Typing:
        def isatty(self) -> bool:
            return False

        def read(self, _: int) -> str:
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


def test_what_a_command_logs_is_no_part_of_what_it_prints(operator: Operator) -> None:
    """Whoever keeps a command's output as a key kept a line of the log."""
    text = operator.config_file.read_text().replace(
        "[audit]\n", "[audit]\nfree_bytes_min = 1000000000000000\n"
    )
    operator.config_file.write_text(text)
    place = ("--organisation", "acme", "--workspace", "research", "--project", "assistant")
    ended = operator.config("keys", "issue", *place, "--name", "first")

    line, refusal = ended.errors.splitlines()
    assert (ended.status, ended.output) == (2, "")
    assert json.loads(line)["event"] == "audit:write_failed"
    assert refusal == "gatewright: The audit log cannot be written, so nothing was done."


def test_help_says_what_each_command_does_in_a_whole_sentence(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a narrow terminal, where sentences were cut in their middle."""
    monkeypatch.setenv("COLUMNS", "60")
    groups = {name.rpartition(" ")[0] for name in walk(commands)}
    said = [operator.types(*group.split()[1:], "--help").output for group in sorted(groups)]

    assert len(said) > 20
    assert not [line for text in said for line in text.splitlines()[3:] if line.endswith("...")]
