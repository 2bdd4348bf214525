"""`gatewright teams …`: manages workspaces: title, owner, members, and closing them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click

from gateway.cli.deeds import former_team, recorded
from gateway.cli.groups import Commands
from gateway.cli.opening import opened_database
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.money.budgets import Limit
from gateway.money.rates import RateLimit
from gateway.store.identity.teams import KeyDefaults, Team, TeamStore
from gateway.store.money.leases import LeaseTable
from gateway.store.money.rate_limits import RateLimitTable


organisation_option = click.option("--organisation", required=True)


@asynccontextmanager
async def opened_teams(
    settings: Settings, organisation: str | None = None
) -> AsyncIterator[TeamStore]:
    """The teams of a configuration, for the length of one command about an organisation."""
    async with opened_database(settings, organisation) as database:
        yield TeamStore(database, SystemClock())


async def defaults_of(settings: Settings, organisation: str, workspace: str) -> KeyDefaults:
    """What new keys of a workspace get; nothing if it does not exist yet."""
    async with opened_teams(settings) as store:
        team = await store.team(organisation, workspace)
    return KeyDefaults() if team is None else team.defaults


async def limit_new_key(settings: Settings, key_id: str, defaults: KeyDefaults) -> None:
    """Give a key what its team gives to new keys."""
    if defaults.is_nothing:
        return
    account = f"key:{key_id}"
    async with opened_database(settings) as database:
        if defaults.budget_microusd is not None:
            limit = Limit(account, defaults.budget_microusd, defaults.budget_window)
            await LeaseTable(database, SystemClock()).set_limit(limit)
        if any(number is not None for number in defaults.rates):
            await RateLimitTable(database).set(RateLimit(account, *defaults.rates))


@click.group(cls=Commands)
def teams() -> None:
    """Teams group keys, money and policy. Belonging to one permits nothing."""


@teams.command("list")
@config_option
@organisation_option
@asynchronous
async def list_teams(config_file: Path, organisation: str) -> None:
    """List the teams of an organisation as JSON lines."""
    async with opened_teams(load_settings(config_file), organisation) as store:
        for team in await store.teams(organisation):
            line = {
                "name": team.name,
                "title": team.title,
                "owner": team.owner,
                "members": list(team.members),
                "archived_us": team.archived_us,
            }
            click.echo(json.dumps(line))


@teams.command()
@config_option
@organisation_option
@click.argument("team")
@click.option("--title", default="", help="What people call it.")
@click.option("--owner", default="", help="Whom to ask: somebody with a role there.")
@asynchronous
@recorded("team.created")
async def add(config_file: Path, organisation: str, team: str, title: str, owner: str) -> None:
    """Make a team without a key in an organisation that exists."""
    async with opened_teams(load_settings(config_file)) as store:
        await store.create(organisation, team, title, owner)
    click.echo(f"{team}: made")


@teams.command()
@config_option
@organisation_option
@click.argument("team")
@click.option("--title", default=None, help="What people call it.")
@click.option("--owner", default=None, help="Whom to ask; empty for nobody.")
@asynchronous
@recorded("team.changed", former_team)
async def change(
    config_file: Path, organisation: str, team: str, title: str | None, owner: str | None
) -> None:
    """Give a team another title or owner."""
    async with opened_teams(load_settings(config_file)) as store:
        found = await _required(store, organisation, team)
        await store.change(
            organisation,
            team,
            title=found.title if title is None else title,
            owner=found.owner if owner is None else owner,
        )
    click.echo(f"{team}: changed")


@teams.command()
@config_option
@organisation_option
@click.argument("team")
@asynchronous
@recorded("team.archived", former_team)
async def archive(config_file: Path, organisation: str, team: str) -> None:
    """Issue no key in a team any more; keys that are there go on working."""
    async with opened_teams(load_settings(config_file)) as store:
        await _required(store, organisation, team)
        await store.archive(organisation, team)
    click.echo(f"{team}: archived")


@teams.command()
@config_option
@organisation_option
@click.argument("team")
@asynchronous
@recorded("team.restored", former_team)
async def restore(config_file: Path, organisation: str, team: str) -> None:
    """Let keys be issued in a team again."""
    async with opened_teams(load_settings(config_file)) as store:
        await _required(store, organisation, team)
        await store.restore(organisation, team)
    click.echo(f"{team}: restored")


async def _required(store: TeamStore, organisation: str, name: str) -> Team:
    team = await store.team(organisation, name)
    if team is None:
        raise Refused(f"there is no team {name} in {organisation}")
    return team
