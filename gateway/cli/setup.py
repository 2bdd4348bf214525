"""`gatewright admin setup`: a one-time link that makes the first person of an installation."""

import asyncio
from pathlib import Path

import click

from gateway.cli.deeds import deed, says_it_records
from gateway.cli.opening import opened_database
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.errors import GatewrightError
from gateway.store.identity.setup_links import SetupLinks


@click.command("setup")
@config_option
@asynchronous
@says_it_records
async def setup_link_command(config_file: Path) -> None:
    """Print a link that makes the first person; good once, for an hour, and while nobody exists."""
    link = await setup_link(load_settings(config_file))
    if not link:
        raise Refused("somebody exists already: they can add others, or use `gatewright users add`")
    click.echo(link)


async def setup_link(settings: Settings) -> str:
    """A new link; empty if somebody exists. The code after `#` is sent to no server."""
    async with opened_database(settings, pooled=False) as database:
        links = SetupLinks(database, SystemClock())
        if not await links.is_open():
            return ""
        async with deed(settings, "setup_link.made", {}):
            code = await links.make()
    return f"{admin_address(settings)}/setup#{code}" if code else ""


def print_setup_link(settings: Settings) -> None:
    """Say where to begin, if nobody exists; an unready database is reported by the start."""
    try:
        link = asyncio.run(setup_link(settings))
    except GatewrightError:
        return
    if link:
        click.echo(f"Nobody exists yet. Make the first person, within an hour:\n\n  {link}\n")


def admin_address(settings: Settings) -> str:
    """Where browsers reach the admin listener."""
    return settings.admin_url.rstrip("/") or settings.admin.url
