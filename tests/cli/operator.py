"""The real command line: in this process where that is enough, as a process where it is not."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from gateway.__main__ import main


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    output: str
    errors: str

    @property
    def last_line(self) -> str:
        return self.output.rstrip("\n").rpartition("\n")[2]


class Operator:
    """Types `gatewright …` commands; every one is checked for frames of a traceback."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        captured: pytest.CaptureFixture[str],
    ) -> None:
        self.folder = folder
        self.config_file = folder / "gatewright.toml"
        self._monkeypatch = monkeypatch
        self._captured = captured

    def types(self, *arguments: str | Path) -> Ended:
        """Run a command through the entry point of the installed program."""
        self._captured.readouterr()
        self._monkeypatch.setattr(sys, "argv", ["gatewright", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        output, errors = self._captured.readouterr()
        code = end.value.code
        assert isinstance(code, int)
        return _checked(Ended(code, output, errors))

    def becomes(self, user: str) -> None:
        """Another user of the machine types what follows."""
        self._monkeypatch.setattr("gateway.cli.deeds.actor", lambda: f"os:{user}")

    def config(self, *arguments: str | Path) -> Ended:
        """Run a command on this operator's configuration."""
        return self.types(*arguments, "--config", self.config_file)

    def is_refused(self, *arguments: str) -> Ended:
        """Run a command on this operator's configuration that ends by itself.

        What would serve changes the process it is in, and has one of its own.
        """
        if "serve" in arguments:
            return self.starts(*arguments, "--config", self.config_file)
        return self.config(*arguments)

    def starts(self, *arguments: str | Path, timeout_s: float = 100.0) -> Ended:
        """Run a command as a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "gateway", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        return _checked(Ended(done.returncode, done.stdout, done.stderr))


def _checked(ended: Ended) -> Ended:
    assert "Traceback" not in ended.output + ended.errors, ended.errors
    assert 'File "' not in ended.errors, ended.errors
    return ended


def walk(command: click.Command, name: str = "gatewright") -> list[str]:
    """The full names of a command and all below it that can be run."""
    if not isinstance(command, click.Group):
        return [name]
    return [found for key, each in subcommands(command) for found in walk(each, f"{name} {key}")]


def subcommands(group: click.Group) -> list[tuple[str, click.Command]]:
    """Name and command of each member of a group; every one of them is there."""
    context = click.Context(group)
    found = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    return [(name, command) for name, command in found if command is not None]
