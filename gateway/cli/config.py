"""`gatewright config …`: checks a configuration without starting anything."""

import asyncio
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import click

from gateway.app import DataPlane
from gateway.assembly.approaches import approach_of
from gateway.assembly.configured_policy import load_policy
from gateway.assembly.wiring import make_egress, make_providers
from gateway.cli.groups import Commands
from gateway.cli.options import config_option
from gateway.clock import SystemClock
from gateway.configuration.outlets import outlets_of
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.errors import StartupRefused
from gateway.inspection.inspector import make_inspector
from gateway.ports import Provider
from gateway.providers.http_provider import HttpProvider
from gateway.secrets.certificates import SECTIONS, read_certificate
from gateway.secrets.credentials import admin_token, all_peppers, credential_problem
from gateway.secrets.validity import Term, day, next_end
from gateway.store.engine import open_database, parse_url
from gateway.store.evidence.numbered_places import require_what_was_numbered
from gateway.store.schema.version import NO_SCHEMA, require_permitted_schema
from gateway.store.sealing.right_keys import look_at_keys
from gateway.worker.policy_doubts import doubts_about
from gateway.worker.pricing import configured_targets, watched_prices


_WRITING = ("", "-admin")
"""Suffixes of the worker's name whose segments a start takes: its own and the admin listener's."""


@click.group(cls=Commands)
def config() -> None:
    """The configuration."""


@config.command("check")
@config_option
@click.option(
    "--offline", is_flag=True, help="Ask neither the database nor a key service: less is found."
)
def check_config(config_file: Path, *, offline: bool) -> None:
    """Check the file, its keys, its policy, its targets and its database: may it start?

    Prints what would be served. Not looked at is what others hold (ports, the audit folder's
    locks), whether the log is whole (`gatewright audit fsck`), and whether upstreams answer.
    """
    settings = load_settings(config_file)
    # What needs no key comes first, so that its faults are found before the keys are made.
    providers = make_providers(settings, make_egress(settings), SystemClock().monotonic_s)
    policy = load_policy(settings)
    ends = [
        *_ends_of_listeners(settings),
        *_ends_of_providers(providers),
        *_ends_of_outlets(settings),
    ]
    _check_parts(settings, offline=offline)
    if not offline:
        asyncio.run(_check_database(settings))
    click.echo(f"policy: {policy.name} ({policy.digest[:12]})")
    for doubt in doubts_about(settings):
        click.echo(f"policy: warning: {doubt}")
    for target in configured_targets(settings):
        # Credentials outside of files and variables are only fetched by a worker.
        problem = credential_problem(settings, target.provider)
        if problem and settings.providers[target.provider].credential is None:
            problem += ", the settings name none"
        state = f"unavailable: {problem}" if problem else "configured"
        click.echo(f"{target.name}: {target.tier}, {target.jurisdiction}, {state}")
    for key, terms in ends:
        if said := _until(terms):
            click.echo(f"{key}: {said}")


def _ends_of_listeners(settings: Settings) -> Iterator[tuple[str, tuple[Term, ...]]]:
    """By the settings that name their files, the expiry of certificates and lists."""
    for section in SECTIONS:
        if found := read_certificate(settings, section, SystemClock()):
            yield f"{section}.tls_certificate_file", (found.term,)
            yield f"{section}.tls_client_ca_file", found.authorities
            yield f"{section}.tls_client_crl_file", found.lists


def _ends_of_providers(
    providers: Mapping[str, Provider],
) -> Iterator[tuple[str, tuple[Term, ...]]]:
    for name, provider in providers.items():
        way_out = provider.config.way_out if isinstance(provider, HttpProvider) else None
        for setting, terms in (way_out.terms if way_out else {}).items():
            yield f"providers.{name}.{setting}", terms


def _ends_of_outlets(settings: Settings) -> Iterator[tuple[str, tuple[Term, ...]]]:
    """The same for sinks, metrics and alerts, which are not renewed while a worker serves."""
    for section, outlet in outlets_of(settings).items():
        way_out = approach_of(settings, outlet, section).way_out if outlet.url else None
        for setting, terms in (way_out.terms if way_out else {}).items():
            yield f"{section}.{setting}", terms


def _until(terms: tuple[Term, ...]) -> str:
    """A sentence on the next expiry; empty if there is none."""
    now_us = SystemClock().utc_us()
    term = next_end(terms, now_us)
    if term is None:
        return ""
    if term.ends_us <= now_us:
        return f"has ended at {day(term.ends_us)}: renew it"
    return f"good until {day(term.ends_us)}{': renew it' * (term.told_from_us <= now_us)}"


def _check_parts(settings: Settings, *, offline: bool) -> None:
    """Build what a start builds, without opening it: a wrong sink or hook is found here too.

    If no key service may be asked, only what needs no master key.
    """
    if settings.secrets.key_service and offline:
        make_inspector(settings, SystemClock())
        all_peppers(settings)
    else:
        DataPlane(settings)
        # The admin package is a layer above the gateway, so it is named here and imported on
        # demand.
        import_module("admin.app").build_application(settings)
    admin_token(settings)


async def _check_database(settings: Settings) -> None:
    """Check what a start checks before it writes; makes and stores nothing."""
    url, clock = parse_url(settings.database_url), SystemClock()
    if url.drivername.startswith("sqlite") and not Path(str(url.database)).exists():
        # A start would make an empty file, and then refuse it.
        raise StartupRefused(NO_SCHEMA)
    database = open_database(settings.database_url, pooled=False)
    try:
        if newer := await require_permitted_schema(database):
            click.echo(f"schema: {newer}")
        await look_at_keys(settings, database, clock)
        await watched_prices(settings, lambda _: None, database, clock).start()
        directory = settings.path(settings.audit.directory)
        for process in _WRITING:
            worker = f"{settings.audit.worker}{process}"
            await require_what_was_numbered(database, directory, worker)
    finally:
        await database.close()
