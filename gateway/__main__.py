"""The entry point of `gatewright`: one command line for every part."""

import errno
import os
import sys
from typing import Any

import click

from gateway.cli.lazy_group import LazyGroup
from gateway.errors import GatewrightError


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
    "secrets": "gateway.cli.secrets:secrets",
    "policy": "gateway.cli.policy:policy",
    "pool": "gateway.cli.pool:pool",
    "audit": "gateway.cli.audit:audit",
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
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _Commands(LazyGroup):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("gatewright: interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            _drop_output()
            ctx.exit(READER_LEFT)
        except OSError as error:
            if error.errno not in _FULL or error.filename is not None:
                raise
            _drop_output()
            click.echo(f"gatewright: the output: {error.strerror}", err=True)
            ctx.exit(2)


def _drop_output() -> None:
    """What could not be printed is not tried again at the end, which would say so at length."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


@click.group(cls=_Commands, places=PLACES)
@click.version_option(package_name="gatewright")
def commands() -> None:
    """Gatewright: the enterprise AI gateway that keeps sovereign data home."""


def main() -> None:
    """Run a command; an expected failure is one line on standard error and exit status 2."""
    try:
        commands()
    except GatewrightError as error:
        click.echo(f"gatewright: {error.message}", err=True)
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
