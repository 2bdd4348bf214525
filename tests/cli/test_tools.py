"""Commands without a configuration: what they cannot work on, or who stops them, costs a line."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from gzip import compress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.operator import Operator
from tests.local_engine.models import DEMO_MODEL


PAIRS = "routellm_mmlu.jsonl.gz"
NO_ANSWERS = "gatewright: there are no judged answers on standard input\n"


@pytest.mark.parametrize("command", [("train", "ability"), ("calibrate", "--alpha", "0.1")])
def test_from_no_answers_nothing_is_learnt(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway", *command],
        input="\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", NO_ANSWERS)


def test_a_mistyped_command_is_told_which_was_meant(newcomer: Operator) -> None:
    ended = newcomer.types("confg", "check")

    assert (ended.status, ended.output) == (2, "")
    assert "No such command 'confg'. Did you mean 'config'?" in ended.errors


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_a_plan_names_the_file_that_says_too_little(newcomer: Operator, text: str) -> None:
    file = newcomer.folder / "config.json"
    file.write_text(text)
    ended = newcomer.types("plan", "--model", newcomer.folder)

    assert (ended.status, ended.output) == (2, "")
    assert ended.errors.startswith(f"gatewright: {file}: ")
    assert ended.errors.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        (("--concurrency", "800"), "--concurrency: is from 0.001 to 100."),
        (("--gpus", "0"), "--gpus: is from 1 to 10000."),
        (("--rack-tokens", "0"), "--rack-tokens: is from 1 to 1e+09."),
        (("--users", "-5"), "--users: is from 1 to 1e+09."),
        (("--queries", "nan"), "--queries: is from 0 to 1e+06."),
    ],
)
def test_a_plan_names_the_option_that_asks_too_much(
    newcomer: Operator, option: tuple[str, ...], reason: str
) -> None:
    """It named a field of the program, which no option is called by."""
    shape = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2}
    (newcomer.folder / "config.json").write_text(json.dumps(shape))
    ended = newcomer.types("plan", "--model", newcomer.folder, *option)

    assert (ended.status, ended.output, ended.errors) == (2, "", f"gatewright: {reason}\n")


def test_training_on_a_folder_without_the_data_says_what_is_missing(newcomer: Operator) -> None:
    ended = newcomer.types("train", "complexity", "--data", newcomer.folder)
    said = f"gatewright: {newcomer.folder / PAIRS}: No such file or directory\n"
    assert (ended.status, ended.output, ended.errors) == (2, "", said)


@pytest.mark.parametrize("data", [b"no archive", compress(b"x" * 99)[:20], compress(b"{}\n")])
def test_training_on_damaged_data_ends_in_a_line(newcomer: Operator, data: bytes) -> None:
    for name in (PAIRS, "train.jsonl.gz"):
        (newcomer.folder / name).write_bytes(data)
    for kind in ("complexity", "pii"):
        ended = newcomer.types(
            *("train", kind, "--data", newcomer.folder, "--out", newcomer.folder / "out")
        )
        assert (ended.status, ended.output) == (2, "")
        assert ended.errors.startswith("gatewright: ")
        assert ended.errors.count("\n") == 1
    assert not (newcomer.folder / "out").exists()


def _imports_torch(process: psutil.Process) -> bool:
    try:
        return any("libtorch" in each.path for each in process.memory_maps())
    except psutil.Error:
        return False


def _worker_imports_torch(process: psutil.Process) -> bool:
    return any(map(_imports_torch, process.children()))


@pytest.mark.parametrize(
    ("command", "moment", "status"),
    [
        (("check", str(DEMO_MODEL)), _imports_torch, -signal.SIGINT),
        (("bench",), _imports_torch, -signal.SIGINT),
        (("serve", "--model", str(DEMO_MODEL), "--port", "0"), _worker_imports_torch, 0),
    ],
)
def test_an_engine_that_is_interrupted_while_it_starts_says_nothing_of_its_parts(
    command: tuple[str, ...], moment: Callable[[psutil.Process], bool], status: int
) -> None:
    process = _started("engine", *command)
    try:
        watched = psutil.Process(process.pid)
        while not moment(watched):
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, errors) == (status, "")


def _started(*arguments: str | Path) -> "subprocess.Popen[Any]":
    return subprocess.Popen(
        [sys.executable, "-m", "gateway", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
