"""`gatewright config …`: check a configuration without starting anything."""

from pathlib import Path

import click

from gateway.assembly.configured_policy import load_policy
from gateway.assembly.wiring import make_egress, make_providers
from gateway.cli.options import config_option
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.credentials import provider_credential
from gateway.worker.pricing import configured_targets


@click.group()
def config() -> None:
    """The configuration."""


@config.command("check")
@config_option
def check_config(config_file: Path) -> None:
    """Check the file, the policy it names and its targets; print what would be served."""
    settings = load_settings(config_file)
    # As at a start: what says nothing of a provider, or is no address of one, is found here too.
    make_providers(settings, make_egress(settings), SystemClock().monotonic_s)
    policy = load_policy(settings)
    click.echo(f"policy: {policy.name} ({policy.digest[:12]})")
    for target in configured_targets(settings):
        provider = settings.providers[target.provider]
        is_missing = provider.credential and provider_credential(settings, target.provider) is None
        state = "unavailable: no credential" if is_missing else "configured"
        click.echo(f"{target.name}: {target.tier}, {target.jurisdiction}, {state}")
