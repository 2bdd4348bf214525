"""`gatewright database …`: bring the schema to where this version needs it."""

from pathlib import Path

import click
from alembic.util import CommandError

from gateway.cli.groups import Commands
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.configuration.reading import load_settings
from gateway.store.migrate import migrate


@click.group(cls=Commands)
def database() -> None:
    """The gateway's database."""


@database.command("migrate")
@config_option
@click.option("--revision", default="head", show_default=True, help="`base` takes everything down.")
@asynchronous
async def migrate_schema(config_file: Path, revision: str) -> None:
    """Migrate the schema, up or down."""
    settings = load_settings(config_file)
    try:
        reached = await migrate(settings.database_url, revision)
    except (CommandError, ValueError) as error:
        raise Refused(f"--revision: there is no schema `{revision}`") from error
    click.echo(f"schema: {reached or 'empty'}")
