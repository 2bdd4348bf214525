"""Tests constraints/environment.py: the choice of the Python build for an environment."""

import importlib.util
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from random import Random
from types import ModuleType

import pytest


FILE = Path(__file__).resolve().parent.parent / "constraints" / "environment.py"
NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("environment", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


environment = loaded()


def build(folder: Path, answer: str) -> str:
    """A file of this version's name that answers once per line."""
    folder.mkdir()
    file = folder / NAME
    file.write_text(f"#!/bin/sh\nwhile read -r line; do {answer}; done\n")
    file.chmod(0o755)
    return str(file)


@pytest.fixture(autouse=True)
def _only_these(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Leave out builds of the machine itself by saying that these are the only ones."""
    search = [str(tmp_path / name) for name in ("slow", "broken", "fast", "faster")]
    monkeypatch.setenv("PATH", os.pathsep.join(search))
    everything = environment.builds
    monkeypatch.setattr(
        environment,
        "builds",
        lambda: (file for file in everything() if file.startswith(str(tmp_path))),
    )


def test_the_fastest_of_several_builds_is_taken(tmp_path: Path) -> None:
    build(tmp_path / "slow", "echo 9")
    build(tmp_path / "fast", "echo 0.000002")
    faster = build(tmp_path / "faster", "echo 0.000001")

    assert environment.fastest() == faster


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("echo 9", id="slower"),
        pytest.param("exit 1", id="without a module that is needed"),
        pytest.param("echo who knows", id="talking"),
        pytest.param("exec /nowhere", id="not there"),
    ],
)
def test_no_other_build_is_taken_without_a_reason(tmp_path: Path, answer: str) -> None:
    build(tmp_path / "broken", answer)

    assert environment.fastest() == sys.executable


def test_a_build_hardly_faster_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = build(tmp_path / "fast", "exit 1")
    taken_s = {sys.executable: 1.0, other: environment.CLEARLY_FASTER}
    monkeypatch.setattr(environment, "started", lambda name: nullcontext(lambda: taken_s[name]))
    assert environment.fastest() == sys.executable

    taken_s[other] -= 0.001
    assert environment.fastest() == other


def test_a_pace_that_changes_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes between one and two, as others use the processor; one of them a little less."""
    other = build(tmp_path / "fast", "exit 1")
    paces = Random(2)
    pace = 1.0

    def taken_s(name: str) -> float:
        nonlocal pace
        if paces.random() < 0.1:
            pace = 1.0 + paces.random()
        return pace * (share if name == other else 1.0)

    monkeypatch.setattr(environment, "started", lambda name: nullcontext(lambda: taken_s(name)))
    for share in (0.97, 0.83):
        chosen = {environment.fastest() for _ in range(40)}
        assert chosen == {other if share < environment.CLEARLY_FASTER else sys.executable}


def test_what_is_silent_is_left_and_what_this_one_lacks_another_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = build(tmp_path / "slow", ":")
    fast = build(tmp_path / "fast", "echo 1")
    monkeypatch.setattr(environment, "ANSWER_S", 0.3)
    monkeypatch.setattr(sys, "executable", "/nowhere/python3")

    assert {*environment.builds()} == {silent, fast}
    assert environment.fastest() == fast


def test_the_steps_are_timed() -> None:
    with environment.started(sys.executable) as asked:
        assert 0.0 < asked() < environment.ANSWER_S
        assert 0.0 < asked() < environment.ANSWER_S


def test_an_environment_works_and_is_of_the_chosen_build(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    environment.make(sys.executable, str(folder))

    told = "import sys; print(sys.prefix); print(sys.base_prefix); import pip"
    done = subprocess.run(
        [str(folder / "bin" / "python"), "-c", told], capture_output=True, check=True, text=True
    )
    assert done.stdout.split() == [str(folder), sys.base_prefix]
