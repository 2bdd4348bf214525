"""`gatewright engine …`: hands over to the engine's own process, which alone imports torch."""

import os
import sys
from typing import Any

import click

from gateway.cli.groups import Commands


# The engine explains and checks its own options.
PASSED_ON: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True},
}


@click.group(cls=Commands)
def engine() -> None:
    """The in-house engine."""


@engine.command("serve", **PASSED_ON)
@click.pass_context
def engine_serve(context: click.Context) -> None:
    """Serve a model directory: --model DIR [--host HOST] [--port PORT] …."""
    _hand_over("serve", context)


@engine.command("check", **PASSED_ON)
@click.pass_context
def engine_check(context: click.Context) -> None:
    """What serving a model directory would take: DIR."""
    _hand_over("check", context)


@engine.command("pull", **PASSED_ON)
@click.pass_context
def engine_pull(context: click.Context) -> None:
    """Fetch a model from a hub and write its manifest: ORGANISATION/NAME --out DIR."""
    _hand_over("pull", context)


@engine.command("bench", **PASSED_ON)
@click.pass_context
def engine_bench(context: click.Context) -> None:
    """Measure the engine on this machine, against its floor and against peers."""
    _hand_over("bench", context)


def _hand_over(command: str, context: click.Context) -> None:
    words = [sys.executable, "-m", "local_engine", command, *context.args]
    os.execv(sys.executable, words)  # noqa: S606 - no shell, and the arguments are the operator's
