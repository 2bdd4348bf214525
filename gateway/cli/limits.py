"""`gatewright limits …`: limits on the rate and the concurrency of accounts of the tree."""

import json
from pathlib import Path

import click
import msgspec

from gateway.cli.accounts import ACCOUNT
from gateway.cli.budgets import WAS
from gateway.cli.deeds import former_rate, recorded
from gateway.cli.groups import Commands
from gateway.cli.known import say_if_nobodys
from gateway.cli.opening import opened_database
from gateway.cli.options import asynchronous, config_option
from gateway.configuration.reading import load_settings
from gateway.money.rates import RateLimit
from gateway.store.money.budget_rows import NONE
from gateway.store.money.rate_limits import RateLimitTable, rate_mark


_NUMBER = click.IntRange(0, 10**12)


class _Rate(click.ParamType[str]):
    """A line of `list`; compared with the limit in force."""

    name = "line"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == NONE:
            return value
        try:
            return rate_mark(msgspec.json.decode(value, type=RateLimit))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            self.fail(f"{value!r} is neither a line of `limits list` nor {NONE}", param, ctx)


_was = click.option("--was", type=_Rate(), help=f"{WAS} A line of `limits list`.")


@click.group(cls=Commands)
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
@_was
@asynchronous
@recorded("rate_limit.set", former_rate)
async def set_limit(
    config_file: Path,
    account: str,
    rpm: int | None,
    tpm: int | None,
    concurrent: int | None,
    was: str | None,
) -> None:
    """Limit an account; workers obey within a second. What is not named has no limit.

    An account is org:NAME, ws:ORG/NAME, proj:ORG/WS/NAME, key:ID or user:ORG/*.
    """
    async with opened_database(load_settings(config_file)) as database:
        await RateLimitTable(database).set(RateLimit(account, rpm, tpm, concurrent), was)
        await say_if_nobodys(database, account, "limits")
    figures = ((rpm, "requests a minute"), (tpm, "tokens a minute"), (concurrent, "at once"))
    said = ", ".join(f"{number} {what}" for number, what in figures if number is not None)
    click.echo(f"{account}: {said}")


@limits.command()
@config_option
@click.argument("account", type=ACCOUNT)
@_was
@asynchronous
@recorded("rate_limit.removed", former_rate)
async def remove(config_file: Path, account: str, was: str | None) -> None:
    """Remove the rate limits of an account."""
    async with opened_database(load_settings(config_file)) as database:
        await RateLimitTable(database).remove(account, was)
    click.echo(f"{account}: no rate limit")


@limits.command("list")
@config_option
@asynchronous
async def list_limits(config_file: Path) -> None:
    """List rate limits as JSON lines."""
    async with opened_database(load_settings(config_file)) as database:
        for limit in await RateLimitTable(database).all():
            click.echo(json.dumps(msgspec.to_builtins(limit)))
