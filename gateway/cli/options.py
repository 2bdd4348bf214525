"""What commands share: where the configuration is, how a coroutine is run, how one refuses.

Exit status: 0 done; 1 what was checked does not hold; 2 refused, with one line that says why.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

import click


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


class Refused(click.ClickException):
    """An expected failure of a command: one line on standard error and exit status 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"gatewright: {self.message}", file=file, err=True)


def asynchronous(
    command: Callable[Parameters, Coroutine[None, None, Result]],
) -> Callable[Parameters, Result]:
    """Let a command be a coroutine function."""

    @wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return asyncio.run(command(*args, **kwargs))

    return run
