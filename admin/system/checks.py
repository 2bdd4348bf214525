"""Repeats the start checks: would this installation start now, and if not, why?

They run in this process, with its files and its environment: a worker on another machine may have
others. Nothing outside is called; only its own files, variables and database are looked at.
"""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from gateway.assembly.configured_policy import load_policy
from gateway.clock import SystemClock
from gateway.configuration.disclosing import flat
from gateway.configuration.outlets import outlets_of
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid, GatewrightError
from gateway.secrets.credentials import (
    admin_token,
    alerts_credential,
    alerts_signing_key,
    all_peppers,
    answers_password,
    headers_of,
    master_key,
    metrics_credential,
    oidc_secret,
    provider_credential,
    rates_password,
    sink_credential,
)
from gateway.store.engine import Database
from gateway.store.money.price_files import PriceFiles
from gateway.store.schema.version import require_permitted_schema
from gateway.store.sealing.right_keys import require_right_keys


Outcome = Literal["good", "warn", "refused"]
CHANGED_MAX: Final = 8


class Check(Struct, frozen=True):
    """One thing that is looked at before anything starts, and how it is now."""

    name: str
    outcome: Outcome
    said: str


async def start_checks(settings: Settings, database: Database) -> list[Check]:
    """All of them, in the order of a start."""
    found = await asyncio.to_thread(lambda: list(_local(settings)))
    return [
        *found,
        await _prices(settings, database),
        await _schema(database),
        await _keys(settings, database),
    ]


def _local(settings: Settings) -> Iterator[Check]:
    yield _file(settings)
    yield _tried(
        "Pepper of virtual keys", "long enough, and no example", lambda: all_peppers(settings)
    )
    yield _tried("Master key", "32 bytes, and readable", lambda: master_key(settings))
    yield _tried("Admin token", "long enough, and no example", lambda: admin_token(settings))
    yield _tried("Policy", "", lambda: load_policy(settings).name, "{} passes its own test cases")
    yield from _credentials(settings)
    yield from _sinks(settings)
    yield from _headers(settings)
    yield _openid(settings)
    yield _folder(settings)


def _tried(name: str, good: str, check: Callable[[], object], said: str = "") -> Check:
    """What a start would say: it refuses by raising."""
    try:
        found = check()
    except GatewrightError as error:
        return Check(name, "refused", error.message)
    return Check(name, "good", said.format(found) if said else good)


def _file(settings: Settings) -> Check:
    """The file as it is now, beside what this process was started with."""
    name = "Configuration file"
    try:
        found = load_settings(Path(settings.source))
    except ConfigurationInvalid as error:
        return Check(name, "refused", error.message)
    ours, now = flat(settings), flat(found)
    changed = sorted(key for key in ours.keys() | now.keys() if ours.get(key) != now.get(key))
    if not changed:
        return Check(name, "good", "as it was at the start of this process")
    more = f" and {len(changed) - CHANGED_MAX} more" if len(changed) > CHANGED_MAX else ""
    keys = ", ".join(changed[:CHANGED_MAX])
    return Check(name, "warn", f"changed since this process started: {keys}{more}")


async def _prices(settings: Settings, database: Database) -> Check:
    name = "Targets and prices"
    try:
        prices = await PriceFiles(database, SystemClock()).in_force(settings)
        known = prices.catalogue.models
    except GatewrightError as error:
        return Check(name, "refused", error.message)
    entries = {target: each.catalogue or each.model for target, each in settings.targets.items()}
    unknown = sorted(target for target, entry in entries.items() if entry not in known)
    if unknown:
        return Check(name, "refused", f"no price for {', '.join(unknown)}")
    return Check(name, "good", f"{len(entries)} targets, each with a price and a source")


def _credentials(settings: Settings) -> Iterator[Check]:
    for name, provider in settings.providers.items():
        if provider.credential is None:
            continue
        title = f"Credential of {name}"
        if not provider.credential.is_local:
            yield Check(title, "good", "kept elsewhere; the data plane asks for it")
            continue
        try:
            found = provider_credential(settings, name)
        except GatewrightError as error:
            yield Check(title, "refused", error.message)
            continue
        missing = "not set: the data plane starts, and its targets are unavailable"
        yield Check(title, "good" if found else "warn", "present" if found else missing)
    if settings.rates.password:
        yield _tried("Password of shared limits", "present", lambda: rates_password(settings))
    if settings.response_cache.password:
        yield _tried("Password of shared answers", "present", lambda: answers_password(settings))
    if settings.alerts.credential:
        yield _tried("Credential of alerts", "present", lambda: alerts_credential(settings))
    if settings.alerts.signing_key:
        yield _tried("Signing key of alerts", "present", lambda: alerts_signing_key(settings))
    if settings.metrics.credential:
        yield _tried("Credential of metrics", "present", lambda: metrics_credential(settings))


def _headers(settings: Settings) -> Iterator[Check]:
    """Of places outside, where they want any."""
    for section, outlet in outlets_of(settings).items():
        if outlet.headers:
            ask = partial(headers_of, settings, outlet, section)
            yield _tried(f"Headers of {section}", "present", ask)


def _sinks(settings: Settings) -> Iterator[Check]:
    for name, sink in settings.sinks.items():
        title = f"Sink {name}"
        wanted = "file" if sink.kind == "jsonl" else "url"
        if not getattr(sink, wanted):
            yield Check(title, "refused", f"sinks.{name}.{wanted}: is missing")
        else:
            yield _tried(title, "has an address", partial(sink_credential, settings, name))


def _openid(settings: Settings) -> Check:
    name = "Sign-in by OpenID"
    if not settings.oidc.issuer:
        return Check(name, "good", "not configured: people sign in with passwords")
    if not settings.oidc.client_id or not settings.admin_url:
        return Check(name, "refused", "oidc.client_id and admin_url are needed for it")
    return _tried(name, "wholly configured", lambda: oidc_secret(settings))


def _folder(settings: Settings) -> Check:
    name, folder = "Audit folder", settings.path(settings.audit.directory)
    try:
        with os.scandir(folder):  # A file in its place has a disk, too.
            free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(name, "refused", error.strerror or "cannot be read")
    if not os.access(folder, os.W_OK):
        return Check(name, "refused", "cannot be written")
    least_bytes = settings.audit.free_bytes_min
    said = f"{free_bytes // 2**20:,} MiB free, at least {least_bytes // 2**20:,} are needed"
    return Check(name, "good" if free_bytes >= least_bytes else "refused", said)


async def _keys(settings: Settings, database: Database) -> Check:
    name = "Keys of the database"
    try:
        await require_right_keys(settings, database, SystemClock())
    except GatewrightError as error:
        return Check(name, "refused", error.message)
    return Check(name, "good", "master key and pepper are its own")


async def _schema(database: Database) -> Check:
    name = "Schema of the database"
    try:
        newer = await require_permitted_schema(database)
    except GatewrightError as error:
        return Check(name, "refused", error.message)
    if newer:
        return Check(name, "warn", newer)
    return Check(name, "good", "the one that this program needs")
