"""`gatewright pool …`: takes members of a pool out of service, and returns them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
import msgspec

from gateway.cli.deeds import actor, former_drain, recorded
from gateway.cli.groups import Commands
from gateway.cli.opening import opened_database
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.providers.registry import is_pool
from gateway.store.pool_drains import DrainTable


@asynccontextmanager
async def opened_drains(settings: Settings) -> AsyncIterator[DrainTable]:
    """The drained members of a configuration, for the length of one command."""
    async with opened_database(settings) as database:
        yield DrainTable(database, SystemClock())


@click.group(cls=Commands)
def pool() -> None:
    """Members of pools: drained before their engine is stopped, and given back afterwards."""


@pool.command()
@config_option
@click.argument("member")
@click.option("--reason", default="", help="Why; kept with the order.")
@asynchronous
@recorded("pool.drained", former_drain)
async def drain(config_file: Path, member: str, reason: str) -> None:
    """Send nothing new to a member; workers obey within a second, and no stream is cut."""
    settings = load_settings(config_file)
    if member not in (known := _members(settings)):
        raise Refused(f"no pool has a member {member}; there are: {', '.join(known) or 'none'}")
    async with opened_drains(settings) as table:
        await table.drain(member, actor(), reason)
    click.echo(f"{member}: drained; /health/ready of each worker says what is still under way")


@pool.command()
@config_option
@click.argument("member")
@asynchronous
@recorded("pool.resumed", former_drain)
async def resume(config_file: Path, member: str) -> None:
    """Give a drained member its share again; it begins slowly, because its cache may be empty."""
    async with opened_drains(load_settings(config_file)) as table:
        if not await table.resume(member):
            raise Refused(f"{member} is not drained")
    click.echo(f"{member}: in service")


@pool.command("list")
@config_option
@asynchronous
async def list_drains(config_file: Path) -> None:
    """List drained members as JSON lines."""
    async with opened_drains(load_settings(config_file)) as table:
        for order in await table.all():
            click.echo(json.dumps(msgspec.to_builtins(order)))


def _members(settings: Settings) -> list[str]:
    pools = [each for each in settings.providers.values() if is_pool(each.kind)]
    return sorted({member for each in pools for member in each.members})
