"""`gatewright config …`: check a configuration without starting anything."""

from pathlib import Path

import click

from gateway.assembly.configured_policy import load_policy
from gateway.assembly.wiring import make_egress, make_providers
from gateway.cli.options import config_option
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.credentials import admin_token, master_key, pepper, provider_credential
from gateway.worker.pricing import configured_targets


@click.group()
def config() -> None:
    """The configuration."""


@config.command("check")
@config_option
def check_config(config_file: Path) -> None:
    """Check the file, its keys, its policy and its targets; print what would be served."""
    settings = load_settings(config_file)
    # As at a start: what says nothing of a provider, or is no address of one, is found here too.
    make_providers(settings, make_egress(settings), SystemClock().monotonic_s)
    policy = load_policy(settings)
    _check_keys(settings)
    click.echo(f"policy: {policy.name} ({policy.digest[:12]})")
    for target in configured_targets(settings):
        provider = settings.providers[target.provider]
        is_missing = provider.credential and provider_credential(settings, target.provider) is None
        state = "unavailable: no credential" if is_missing else "configured"
        click.echo(f"{target.name}: {target.tier}, {target.jurisdiction}, {state}")


def _check_keys(settings: Settings) -> None:
    """The keys that the gateway itself needs: there, nobody else's to read, and no examples.

    A key service is not asked: a check starts nothing, and reaches nobody.
    """
    pepper(settings)
    admin_token(settings)
    if not settings.secrets.key_service:
        master_key(settings)
