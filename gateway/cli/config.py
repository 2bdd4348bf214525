"""`gatewright config …`: check a configuration without starting anything."""

from importlib import import_module
from pathlib import Path

import click

from gateway.app import DataPlane
from gateway.assembly.configured_policy import load_policy
from gateway.assembly.wiring import make_egress, make_providers
from gateway.cli.groups import Commands
from gateway.cli.options import config_option
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.credentials import admin_token, pepper, provider_credential
from gateway.inspection import make_inspector
from gateway.worker.pricing import configured_targets


@click.group(cls=Commands)
def config() -> None:
    """The configuration."""


@config.command("check")
@config_option
def check_config(config_file: Path) -> None:
    """Check the file, its keys, its policy and its targets; print what would be served."""
    settings = load_settings(config_file)
    # What needs no key comes first, so that it is found before the keys are made.
    make_providers(settings, make_egress(settings), SystemClock().monotonic_s)
    policy = load_policy(settings)
    _check_parts(settings)
    click.echo(f"policy: {policy.name} ({policy.digest[:12]})")
    for target in configured_targets(settings):
        provider = settings.providers[target.provider]
        is_missing = provider.credential and provider_credential(settings, target.provider) is None
        state = "unavailable: no credential" if is_missing else "configured"
        click.echo(f"{target.name}: {target.tier}, {target.jurisdiction}, {state}")


def _check_parts(settings: Settings) -> None:
    """Build what a start builds, which opens nothing: a wrong sink or hook is found here too.

    With a key service only what needs no master key: a check reaches nobody.
    """
    if settings.secrets.key_service:
        make_inspector(settings, SystemClock())
        pepper(settings)
    else:
        DataPlane(settings)
        # The admin package lies above the gateway: it is named here and imported when asked for.
        import_module("admin.app").build_application(settings)
    admin_token(settings)
