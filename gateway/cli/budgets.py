"""`gatewright budgets …`: limits on the accounts of the tree."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import msgspec

from gateway.cli.accounts import ACCOUNT, LIMIT_MICROUSD_MAX
from gateway.cli.deeds import former_budget, recorded
from gateway.cli.groups import Commands
from gateway.cli.known import say_if_nobodys
from gateway.cli.opening import opened_database
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.cli.raises import RAISES
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.money.budgets import WINDOWS, Limit, WindowKind
from gateway.store.money.budget_rows import NONE, amount_mark
from gateway.store.money.leases import LeaseTable


class _Amount(click.IntRange):
    """A limit as `list` prints it, or none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return NONE if value == NONE else amount_mark(super().convert(value, param, ctx))


WAS = "What holds as you know it, or none; where something else does, nothing is done."


@asynccontextmanager
async def opened_budgets(config_file: Path) -> AsyncIterator[LeaseTable]:
    """The budget table of a configuration, for the length of one command."""
    async with opened_database(load_settings(config_file)) as database:
        yield LeaseTable(database, SystemClock())


@click.group(cls=Commands)
def budgets() -> None:
    """Budgets, in integer micro-dollars.

    An account is org:NAME, ws:ORG/NAME, proj:ORG/WS/NAME, key:ID, or user:ORG/* for each end user
    that requests name; one without a limit is unlimited, and a request must fit into every limited
    account above it.
    """


def _each(window: WindowKind) -> str:
    return "in total" if window == "total" else f"a {window}"


@budgets.command("set")
@config_option
@click.argument("account", type=ACCOUNT)
@click.argument("limit_microusd", type=click.IntRange(0, LIMIT_MICROUSD_MAX))
@click.option("--window", type=click.Choice(WINDOWS), default="month")
@click.option("--was", type=_Amount(0), help=WAS)
@asynchronous
@recorded("budget.set", former_budget)
async def set_limit(
    config_file: Path, account: str, limit_microusd: int, window: WindowKind, was: str | None
) -> None:
    """Limit an account; workers obey within a second.

    An account may have a limit a day, a month and in total at once: each holds. Its forms are
    org:NAME, ws:ORG/NAME, proj:ORG/WS/NAME, key:ID and user:ORG/*. 1000000 micro-dollars are a
    dollar, 10000 a cent.
    """
    async with opened_database(load_settings(config_file)) as database:
        limit = Limit(account, limit_microusd, window)
        await LeaseTable(database, SystemClock()).set_limit(limit, was)
        await say_if_nobodys(database, account, "limits")
    dollars = f"{Decimal(limit_microusd).scaleb(-6).normalize():f}"
    click.echo(f"{account}: {limit_microusd} micro-dollars ({dollars} USD) {_each(window)}")


@budgets.command()
@config_option
@click.argument("account", type=ACCOUNT)
@click.option("--window", type=click.Choice(WINDOWS), help="Only this limit.")
@click.option("--was", type=_Amount(0), help=f"{WAS} Of one --window.")
@asynchronous
@recorded("budget.removed", former_budget)
async def remove(
    config_file: Path, account: str, window: WindowKind | None, was: str | None
) -> None:
    """Make an account unlimited, or in one kind of window."""
    if was is not None and window is None:
        raise Refused("--was is about one limit: name its --window")
    async with opened_budgets(config_file) as table:
        await table.remove_limit(account, window, was)
    click.echo(f"{account}: unlimited" + (f" {_each(window)}" if window else ""))


@budgets.command("zone")
@config_option
@click.argument("organisation")
@click.argument("time_zone")
@asynchronous
@recorded("budget.zone_set")
async def set_zone(config_file: Path, organisation: str, time_zone: str) -> None:
    """Let an organisation's days and months begin at midnight of a time zone (Asia/Kolkata).

    What runs goes on until the next midnight there.
    """
    async with opened_budgets(config_file) as table:
        await table.set_time_zone(organisation, time_zone)
    click.echo(f"{organisation}: {time_zone}")


@budgets.command("list")
@config_option
@click.option("--end-users", is_flag=True, help="Single end users too.")
@asynchronous
async def list_budgets(config_file: Path, end_users: bool) -> None:
    """List limits as JSON lines, with what is spent and leased to workers."""
    async with opened_budgets(config_file) as table:
        for budget in await table.budgets(None if end_users else ()):
            click.echo(json.dumps(msgspec.to_builtins(budget)))


for _command in RAISES:
    budgets.add_command(_command)
