"""`gatewright database …`: the schema that this version needs, and the move to PostgreSQL."""

from pathlib import Path

import click
from alembic.util import CommandError

from gateway.audit.lifelessness import WorkerLives
from gateway.cli.groups import Commands
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.store.engine import open_database
from gateway.store.migrate import WorkersAlive, migrate
from gateway.store.moving import copy_all


@click.group(cls=Commands)
def database() -> None:
    """The gateway's database."""


@database.command("migrate")
@config_option
@click.option("--revision", default="head", show_default=True, help="`base` takes everything down.")
@click.option(
    "--under-workers",
    is_flag=True,
    help="Go on although workers run that need the schema as it is.",
)
@asynchronous
async def migrate_schema(config_file: Path, revision: str, *, under_workers: bool) -> None:
    """Migrate the schema, up or down; not under workers that could not go on with it."""
    settings = load_settings(config_file)
    now_us = 0 if under_workers else SystemClock().utc_us()
    try:
        reached = await migrate(settings.database_url, revision, now_us=now_us)
    except WorkersAlive as error:
        raise Refused(
            f"workers are running, and need the schema as it is: {error}. Stop them first; one"
            " that was killed is forgotten after 15 seconds"
        ) from error
    except (CommandError, ValueError) as error:
        raise Refused(f"--revision: there is no schema `{revision}`") from error
    click.echo(f"schema: {reached or 'empty'}")


@database.command("copy")
@config_option
@click.option(
    "--from",
    "former_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    required=True,
    help="The SQLite file; it stays as it is.",
)
@asynchronous
async def copy_database(config_file: Path, former_file: Path) -> None:
    """Copy all that a SQLite file holds into an empty PostgreSQL database."""
    settings = load_settings(config_file)
    former = open_database(f"sqlite:///{former_file.resolve()}", pooled=False, named_by="--from")
    new = open_database(settings.database_url, pooled=False)
    try:
        if new.kind != "postgresql":
            raise Refused("database.url: name the PostgreSQL database that everything goes to")
        copied = await copy_all(former, new, settings.path(settings.audit.directory))
    except WorkerLives as error:
        raise Refused(f"{error}: stop every process first") from error
    finally:
        await former.close()
        await new.close()
    click.echo(f"copied: {sum(copied.values())} rows of {len(copied)} tables")
