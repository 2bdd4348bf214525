"""Shared parts of commands: the configuration's place, running a coroutine, and refusing.

Exit status: 0 done; 1 what was checked does not hold; 2 refused, with one line that says why.
"""

import asyncio
import re
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from getpass import getpass
from math import isnan
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

import click

from gateway.configuration.texts import text_of
from gateway.secrets.secret import Secret
from gateway.secrets.sources import SECRET_MAX_BYTES


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("gatewright.toml"),
    show_default=True,
    envvar="GATEWRIGHT_CONFIG",
    help="The configuration file.",
)


_READ_MAX = SECRET_MAX_BYTES + 2
"""How much is read of a secret: a longer one is refused."""

# The names of organisations, workspaces and projects, as in keys.
NAME = r"[a-z0-9][a-z0-9._-]{0,62}"
_LEVEL = re.compile(rf"(org:{NAME}|ws:{NAME}/{NAME}|proj:{NAME}/{NAME}/{NAME})?")


class _Level(click.ParamType[str]):
    """Checks a level's form, as a misspelt one would govern nobody; an empty one is the top."""

    name = "level"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if _LEVEL.fullmatch(value) is None:
            forms = "org:NAME, ws:ORG/NAME or proj:ORG/WS/NAME"
            self.fail(f"{value!r} is no level; use {forms}", param, ctx)
        return value


LEVEL = _Level()


class _Said(click.ParamType[str]):
    """A text that a record keeps for others to read: refused if empty, as on the pages."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.strip():
            self.fail("say something: it stands in the record", param, ctx)
        return value


SAID = _Said()


class Within(click.FloatRange):
    """A number between two others; refuses NaN, which comparisons would let through."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number


class Refused(click.ClickException):
    """An expected failure of a command: one line on standard error and exit status 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"gatewright: {self.message}", file=file, err=True)


def read_text(file: Path) -> str:
    """The content of a file; raises `Refused`."""
    try:
        return text_of(file)
    except UnicodeDecodeError as error:
        raise Refused(f"{file}: cannot be read as UTF-8 text") from error
    except OSError as error:
        raise Refused(f"{file}: {error.strerror}") from error


def read_secret() -> Secret[str]:
    """The text on standard input, without its last line break; raises `Refused`.

    Not an argument: those appear in the shell's history and in the list of processes. Read before
    anything is begun, since nobody else may write to the log while somebody types. On a terminal it
    is one line, which is not shown.
    """
    try:
        text = getpass("It is not shown: ") if sys.stdin.isatty() else sys.stdin.read(_READ_MAX)
        text.encode()
    except EOFError:
        text = ""
    except UnicodeError:
        raise Refused("standard input is not UTF-8 text") from None
    return Secret(text.removesuffix("\n"))


def asynchronous(
    command: Callable[Parameters, Coroutine[None, None, Result]],
) -> Callable[Parameters, Result]:
    """Let a command be a coroutine function."""

    @wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return asyncio.run(command(*args, **kwargs))

    return run
