"""A group of commands, each of which is imported only when it is called.

The data plane is one command of many: it need not wait for, or carry, what the others import.
"""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from gateway.cli.groups import Commands


class LazyGroup(Commands):
    """Knows its commands by name and place; imports only the one that is used."""

    def __init__(self, *args: Any, places: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        """A group whose `places` give for each command's name `module:attribute`."""
        super().__init__(*args, **kwargs)
        self._places = dict(places or {})

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        return sorted(self._places)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - as click calls it
        cmd_name: str,
    ) -> click.Command | None:
        place = self._places.get(cmd_name)
        if place is None:
            return None
        module, attribute = place.split(":")
        with _nothing_collected():
            command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), place
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            # Click searches for similar names among imported commands; here none is imported.
            name = error.command_name
            raise click.exceptions.NoSuchCommand(
                name, possibilities=self._places, ctx=ctx
            ) from None


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Import without garbage collection, which took a tenth of the start-up time for nothing.

    The imported objects are frozen, so later collections skip them too.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()
