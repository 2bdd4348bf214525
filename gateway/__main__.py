"""The entry point of `gatewright`: one command line for every part."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from click.exceptions import Exit

from gateway.cli.lazy_group import LazyGroup
from gateway.errors import GatewrightError, driver_words


PLACES = {
    "init": "gateway.cli.init:init",
    "serve": "gateway.cli.serve:serve",
    "admin": "gateway.cli.admin:admin",
    "engine": "gateway.cli.engine:engine",
    "demo": "gateway.cli.demo:demo",
    "keys": "gateway.cli.keys:keys",
    "budgets": "gateway.cli.budgets:budgets",
    "costs": "gateway.cli.costs:costs",
    "limits": "gateway.cli.limits:limits",
    "teams": "gateway.cli.teams:teams",
    "users": "gateway.cli.users:users",
    "secrets": "gateway.cli.secrets.sealed:secrets",
    "policy": "gateway.cli.policy.documents:policy",
    "pool": "gateway.cli.pool:pool",
    "audit": "gateway.cli.audit.verifying:audit",
    "database": "gateway.cli.database:database",
    "config": "gateway.cli.config:config",
    "inspect": "gateway.cli.inspect:inspect",
    "train": "gateway.cli.train:train",
    "calibrate": "gateway.cli.calibrate:calibrate",
    "plan": "gateway.cli.plan:plan_cluster",
    "cascade": "gateway.cli.cascade:cascade",
}


INTERRUPTED, READER_LEFT = 130, 141
"""As shells say of what SIGINT or SIGPIPE ended: 1 would mean that what was checked is bad."""
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO)
_STREAMS = (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY))


class _Commands(LazyGroup):
    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _ending():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _ending():
            done = super().invoke(ctx)
            sys.stdout.flush()
            return done


@contextmanager
def _ending() -> Iterator[None]:
    """Around a command: interrupted, without a way to print or at a bad file it ends in a line."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("gatewright: interrupted", err=True)
        raise Exit(INTERRUPTED) from None
    except BrokenPipeError:
        _drop_output()
        raise Exit(READER_LEFT) from None
    except OSError as error:
        if error.filename is not None:
            click.echo(f"gatewright: {error.filename}: {error.strerror}", err=True)
            raise Exit(2) from None
        if error.errno not in _UNWRITABLE:
            raise
        _drop_output()
        click.echo(f"gatewright: the output: {error.strerror}", err=True)
        raise Exit(2) from None


def _drop_output() -> None:
    """What could not be printed is not tried again at the end, which would say so at length."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def _fill_streams() -> None:
    """Put something in the place of a standard stream that was closed before we were started.

    The next file that is opened would take its number, such as the database, and what is printed
    would be written into it. Nothing can be read then, and printing fails.
    """
    for number, (name, mode, flags) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)  # It gets the lowest number that is free.
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


@click.group(cls=_Commands, places=PLACES)
@click.version_option(package_name="gatewright")
def commands() -> None:
    """Gatewright: the enterprise AI gateway that keeps sovereign data home."""


def main() -> None:
    """Run a command; an expected failure is one line on standard error and exit status 2."""
    _fill_streams()
    try:
        commands()
    except GatewrightError as error:
        said = driver_words(error)
        click.echo(f"gatewright: {error.message}{f': {said}' if said else ''}", err=True)
        sys.exit(2)
    except UnicodeEncodeError:
        # Bytes that are no text come as lone surrogates, and nothing can be done with those.
        if all(_is_text(argument) for argument in sys.argv):
            raise
        click.echo("gatewright: an argument is not UTF-8 text", err=True)
        sys.exit(2)


def _is_text(argument: str) -> bool:
    return argument.isascii() or argument.encode(errors="replace").decode() == argument


if __name__ == "__main__":
    main()
