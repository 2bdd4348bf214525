"""`gatewright secrets …`: credentials that are kept sealed in the database."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
import msgspec

from gateway.cli.deeds import actor, deed, former_secret, recorded, says_it_records
from gateway.cli.groups import Commands
from gateway.cli.opening import opened_database
from gateway.cli.options import asynchronous, config_option, read_secret
from gateway.cli.secrets.key_rotation import list_keys, make_key, reseal
from gateway.cli.secrets.master_key import adopt, wrap_master_key
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.secrets.credentials import master_key
from gateway.store.sealing.right_keys import require_right_master
from gateway.store.sealing.sealed_secrets import SealedSecretNames, SealedSecretTable


@asynccontextmanager
async def opened_secrets(config_file: Path) -> AsyncIterator[SealedSecretTable]:
    """The sealed secrets of a configuration, for the length of one command."""
    settings = load_settings(config_file)
    async with opened_database(settings) as database:
        await require_right_master(settings, database, SystemClock())
        yield SealedSecretTable(database, master_key(settings), SystemClock())


@click.group(cls=Commands)
def secrets() -> None:
    """Secrets in the database, sealed under the master key; a setting names one with `db`.

    There is no command that shows one.
    """


@secrets.command("set")
@config_option
@click.argument("name")
@asynchronous
@says_it_records
async def set_secret(config_file: Path, name: str) -> None:
    """Seal what comes on standard input; running workers use it within seconds."""
    value = read_secret()
    doing = deed(load_settings(config_file), "secret.set", {"name": name}, former_secret)
    async with doing, opened_secrets(config_file) as table:
        version = await table.seal(name, value, actor())
    click.echo(f"{name}: version {version}")


@secrets.command("list")
@config_option
@asynchronous
async def list_secrets(config_file: Path) -> None:
    """List names, versions, when each was set and by whom, as JSON lines."""
    async with opened_database(load_settings(config_file)) as database:
        for secret in await SealedSecretNames(database).listed():
            click.echo(json.dumps(msgspec.to_builtins(secret)))


@secrets.command()
@config_option
@click.argument("name")
@asynchronous
@recorded("secret.removed", former_secret)
async def remove(config_file: Path, name: str) -> None:
    """Forget a secret."""
    async with opened_secrets(config_file) as table:
        await table.remove(name)
    click.echo(f"{name}: removed")


secrets.add_command(wrap_master_key)
secrets.add_command(adopt)
secrets.add_command(make_key)
secrets.add_command(reseal)
secrets.add_command(list_keys)
