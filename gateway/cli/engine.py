"""`gatewright engine …`: hands over to the engine's own process, which alone imports torch."""

import os
import sys

import click


@click.group()
def engine() -> None:
    """The in-house engine."""


@engine.command(
    "serve",
    add_help_option=False,  # the engine explains its own options
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.pass_context
def engine_serve(context: click.Context) -> None:
    """Serve a model directory: --model DIR [--host HOST] [--port PORT] …."""
    command = [sys.executable, "-m", "local_engine", "serve", *context.args]
    os.execv(sys.executable, command)  # noqa: S606 - no shell, and the arguments are the operator's
