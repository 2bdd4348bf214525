"""`gatewright limits …`: how often accounts of the tree may ask, and how much at once."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
import msgspec

from gateway.cli.budgets import ACCOUNT
from gateway.cli.deeds import former_rate, recorded
from gateway.cli.options import asynchronous, config_option
from gateway.configuration.reading import load_settings
from gateway.money.rates import RateLimit
from gateway.store.engine import open_database
from gateway.store.money.rate_limits import RateLimitTable
from gateway.store.schema.version import require_newest_schema


_NUMBER = click.IntRange(0, 10**12)


@asynccontextmanager
async def opened_limits(config_file: Path) -> AsyncIterator[RateLimitTable]:
    """The rate limits of a configuration, for the length of one command."""
    database = open_database(load_settings(config_file).database_url)
    try:
        await require_newest_schema(database)
        yield RateLimitTable(database)
    finally:
        await database.close()


@click.group()
def limits() -> None:
    """Rate limits: requests and tokens per minute, and requests at once, on accounts of the tree.

    An account is written as for budgets; a request must fit into every limit above it.
    """


@limits.command("set")
@config_option
@click.argument("account", type=ACCOUNT)
@click.option("--rpm", type=_NUMBER, help="Requests per minute.")
@click.option("--tpm", type=_NUMBER, help="Tokens per minute, input and output together.")
@click.option("--concurrent", type=_NUMBER, help="Requests served at once.")
@asynchronous
@recorded("rate_limit.set", former_rate)
async def set_limit(
    config_file: Path, account: str, rpm: int | None, tpm: int | None, concurrent: int | None
) -> None:
    """Limit an account; workers obey within a second. What is not named has no limit."""
    async with opened_limits(config_file) as table:
        await table.set(RateLimit(account, rpm, tpm, concurrent))
    click.echo(f"{account}: limited")


@limits.command()
@config_option
@click.argument("account", type=ACCOUNT)
@asynchronous
@recorded("rate_limit.removed", former_rate)
async def remove(config_file: Path, account: str) -> None:
    """Remove the rate limits of an account."""
    async with opened_limits(config_file) as table:
        await table.remove(account)
    click.echo(f"{account}: no rate limit")


@limits.command("list")
@config_option
@asynchronous
async def list_limits(config_file: Path) -> None:
    """List rate limits as JSON lines."""
    async with opened_limits(config_file) as table:
        for limit in await table.all():
            click.echo(json.dumps(msgspec.to_builtins(limit)))
