"""Checks of settings beyond their types: bounds, references between sections, addresses."""

import math
import re
from collections.abc import Mapping
from datetime import date
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Struct

from gateway.configuration.caller_issuers import check_issuers
from gateway.configuration.database_urls import refused_password
from gateway.configuration.outlets import check_outlets, outlet_references
from gateway.configuration.sections import (
    EXPLORATION_MAX,
    OPAQUE_KINDS,
    WINDOW_LEAST,
    SecretReference,
)
from gateway.configuration.settings import Listener, Settings
from gateway.configuration.suggesting import closest
from gateway.errors import ConfigurationInvalid


_MAY_BE_ZERO = frozenset(
    {
        "audit.free_bytes_min",
        "inspection.inline_bytes_max",
        "inspection.deadline_s_per_mib",
        "inspection.verdicts_kept",
        "responses.keep_days",
        "responses.conversation_keep_days",
        "responses.background_running_max",
        "response_cache.memory_bytes_max",
        "response_cache.wait_s",
        "inspection.cascade_exploration",
    }
)

_MOST = {"_days": 10**7, "_hours": 10**8, "_s": 10**12}
"""The largest value by the unit at the end of a name: each about 30,000 years."""

_MOST_WHOLE = 2**63 - 1

CHECKPOINT_PERIOD_MAX_S = 50
"""A minute at most, together with the seconds of polling and of signing."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")

_SECRET_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"}
)


def check(settings: Settings) -> None:
    """Check what types cannot express."""
    source = settings.source
    for name, listener in (("data_plane", settings.data_plane), ("admin", settings.admin)):
        _check_ports(source, name, listener)
        _check_tls(source, name, listener)
    _check_numbers(settings)
    if not re.fullmatch(r"[a-z0-9-]{1,32}", settings.audit.worker):
        reason = "must be 1 to 32 lower-case letters, digits or dashes"
        raise ConfigurationInvalid(source, "audit.worker", reason)
    if not 1 <= settings.audit.checkpoint_period_s <= CHECKPOINT_PERIOD_MAX_S:
        reason = f"must be between 1 and {CHECKPOINT_PERIOD_MAX_S}: a log is signed each minute"
        raise ConfigurationInvalid(source, "audit.checkpoint_period_s", reason)
    _check_references(settings)
    if not 0 <= settings.inspection.cascade_exploration <= EXPLORATION_MAX:
        reason = f"must be between 0 and {EXPLORATION_MAX}"
        raise ConfigurationInvalid(source, "inspection.cascade_exploration", reason)
    for name in settings.inspection.tolerated_opaque:
        if name not in OPAQUE_KINDS:
            reason = f"`{name}` is none of {', '.join(OPAQUE_KINDS)}"
            raise ConfigurationInvalid(source, "inspection.tolerated_opaque", reason)
    for name in settings.policy.headers:
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", name) or name in _SECRET_HEADERS:
            reason = f"`{name}` is not a header in lower case that may be recorded"
            raise ConfigurationInvalid(source, "policy.headers", reason)
    _check_currencies(settings)
    _check_targets(settings)
    _check_retention(settings)
    check_issuers(settings)
    check_outlets(settings)


def _check_ports(source: str, name: str, listener: Listener) -> None:
    for key in ("port", "probe_port"):
        if not 0 <= getattr(listener, key) <= 65535:  # noqa: PLR2004
            raise ConfigurationInvalid(source, f"{name}.{key}", "must be between 0 and 65535")
    if listener.probe_port and listener.probe_port == listener.port:
        # Two sockets of one process can be bound to it, and only one would receive anything.
        reason = "is the listener's own port: probes need another one"
        raise ConfigurationInvalid(source, f"{name}.probe_port", reason)


def _check_tls(source: str, name: str, listener: Listener) -> None:
    """A certificate needs its key and a key its certificate; other TLS settings need both."""
    pair = {each: getattr(listener, each) for each in ("tls_certificate_file", "tls_key_file")}
    if any(pair.values()) or listener.tls_client_ca_file:
        for missing in (each for each, file in pair.items() if not file):
            reason = "is needed for TLS: a certificate and its key are two files"
            raise ConfigurationInvalid(source, f"{name}.{missing}", reason)
    if listener.tls_client_crl_file and not listener.tls_client_ca_file:
        reason = "means nothing without tls_client_ca_file: no certificate is asked for"
        raise ConfigurationInvalid(source, f"{name}.tls_client_crl_file", reason)


def check_database(settings: Settings, environment: Mapping[str, str]) -> None:
    reason, url = "", settings.database.url
    if not url.startswith(("sqlite+aiosqlite:///", "postgresql+asyncpg://")):
        reason = "must start with sqlite+aiosqlite:/// or postgresql+asyncpg://"
    elif url.startswith("postgresql"):
        try:
            reason = refused_password(url, environment)
        except ValueError:
            reason = "is no address"
    if reason:
        raise ConfigurationInvalid(settings.source, "database.url", reason)


def _check_retention(settings: Settings) -> None:
    """Content is never destroyed before its day, and no promise is made beyond a vendor's.

    A vendor keeps what it batches for a while; a class that does not exist would keep for ever.
    """
    classes = settings.retention.classes
    for key, name in {
        "retention.default": settings.retention.default,
        **{f"retention.organisations.{o}": c for o, c in settings.retention.organisations.items()},
    }.items():
        if name and name not in classes:
            reason = f"there is no class `{name}` in retention.classes"
            raise ConfigurationInvalid(settings.source, key, reason)
    for name, days in classes.items():
        if days < 0:
            reason = "must not be less than zero: what was written today would be destroyed"
            raise ConfigurationInvalid(settings.source, f"retention.classes.{name}", reason)
        _check_most(settings, f"retention.classes.{name}", days, _MOST["_days"])
    for name, provider in settings.providers.items():
        if provider.native_batches and "no_retention" in provider.assurances:
            reason = "a vendor keeps its batches for days, which `no_retention` rules out"
            raise ConfigurationInvalid(settings.source, f"providers.{name}.native_batches", reason)


def _check_targets(settings: Settings) -> None:
    """Targets belong to configured providers, and every name refers to something that exists."""
    source = settings.source
    for name, target in settings.targets.items():
        if target.provider not in settings.providers:
            close = closest(target.provider, settings.providers)
            reason = f"there is no provider `{target.provider}`{close}"
            raise ConfigurationInvalid(source, f"targets.{name}.provider", reason)
    vectors = settings.response_cache.embeddings
    if vectors and vectors not in settings.targets:
        reason = f"there is no target `{vectors}`{closest(vectors, settings.targets)}"
        raise ConfigurationInvalid(source, "response_cache.embeddings", reason)


def _check_numbers(settings: Settings) -> None:
    """TOML knows `nan` and `inf`; a deadline with such a value would never come."""
    sections: dict[str, Struct] = {
        "limits": settings.limits,
        "audit": settings.audit,
        "responses": settings.responses,
        "response_cache": settings.response_cache,
        "inspection": settings.inspection,
        "secrets": settings.secrets,
        "batches": settings.batches,
    } | {f"providers.{name}": provider for name, provider in settings.providers.items()}
    sections |= {f"callers.issuers.{name}": each for name, each in settings.callers.issuers.items()}
    for section, values in sections.items():
        for name, value in msgspec.structs.asdict(values).items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            key = f"{section}.{name}"
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigurationInvalid(settings.source, key, "must be a finite number")
            most = next((most for unit, most in _MOST.items() if key.endswith(unit)), _MOST_WHOLE)
            _check_most(settings, key, value, most)
            if key in _MAY_BE_ZERO:
                if value < 0:
                    raise ConfigurationInvalid(settings.source, key, "must not be less than zero")
            elif value <= 0:
                raise ConfigurationInvalid(settings.source, key, "must be greater than zero")


def _check_most(settings: Settings, key: str, value: float, most: int) -> None:
    """Beyond it, times in microseconds and database numbers would overflow while requests run."""
    if value > most:
        raise ConfigurationInvalid(settings.source, key, f"must be {most} at most")


def _check_currencies(settings: Settings) -> None:
    for name, currency in settings.currencies.items():
        key = f"currencies.{name}"
        if not re.fullmatch(r"[A-Z]{3}", name) or name == "USD":
            raise ConfigurationInvalid(settings.source, key, "must be a code such as INR")
        is_number = re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", currency.per_usd)
        if not is_number or not float(currency.per_usd):
            reason = "must be a number above 0, as text"
            raise ConfigurationInvalid(settings.source, f"{key}.per_usd", reason)
        if not _is_date(currency.as_of):
            reason = "must be a date such as 2026-07-01"
            raise ConfigurationInvalid(settings.source, f"{key}.as_of", reason)
    if not all(0 < percent <= 1000 for percent in settings.alerts.percents):  # noqa: PLR2004
        reason = "must be above 0 and at most 1000"
        raise ConfigurationInvalid(settings.source, "alerts.percents", reason)
    dear = settings.alerts.dear_hour_microusd
    _check_most(settings, "alerts.dear_hour_microusd", dear, _MOST_WHOLE)
    if dear < 0:
        raise ConfigurationInvalid(settings.source, "alerts.dear_hour_microusd", "is negative")
    if not 1 <= settings.metrics.period_s <= 86_400:  # noqa: PLR2004 - a day
        raise ConfigurationInvalid(settings.source, "metrics.period_s", "must be from 1 to 86400")
    if not 0 < settings.drift.index_least <= 10:  # noqa: PLR2004
        raise ConfigurationInvalid(settings.source, "drift.index_least", "from above 0 to 10")
    if settings.drift.requests_least < WINDOW_LEAST:
        reason = f"must be {WINDOW_LEAST} at least"
        raise ConfigurationInvalid(settings.source, "drift.requests_least", reason)


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _check_references(settings: Settings) -> None:
    references = {
        "secrets.pepper": settings.secrets.pepper,
        "secrets.master_key": settings.secrets.master_key,
        "secrets.admin_token": settings.secrets.admin_token,
    } | {
        f"providers.{name}.credential": provider.credential
        for name, provider in settings.providers.items()
        if provider.credential
    }
    may_be_anywhere = {key for key in references if key.startswith("providers.")}
    references |= {
        f"providers.{name}.proxy_credential": provider.proxy_credential
        for name, provider in settings.providers.items()
        if provider.proxy_credential
    }
    references |= _other_keys(settings)
    _check_server(settings, "rates", settings.rates.url)
    _check_server(settings, "response_cache", settings.response_cache.url)
    for key, optional in (
        ("rates.password", settings.rates.password),
        ("response_cache.password", settings.response_cache.password),
        ("oidc.client_secret", settings.oidc.client_secret),
    ):
        if optional:
            references[key] = optional
    references |= outlet_references(settings)
    _check_stores(settings)
    references["vault.credential"] = settings.vault.credential
    for key, reference in references.items():
        may_move = key in may_be_anywhere
        if may_move and reference.places != 1:
            reason = "needs exactly one of `env`, `file`, `db`, `vault` and `aws_sm`"
            raise ConfigurationInvalid(settings.source, key, reason)
        if not may_move and (reference.places != 1 or not reference.is_local):
            # A secret that opens the other stores cannot be kept in them.
            reason = "needs exactly one of `env` and `file`"
            raise ConfigurationInvalid(settings.source, key, reason)


def _other_keys(settings: Settings) -> dict[str, SecretReference]:
    """Keys besides those in use, by the setting that names each."""
    others = settings.secrets.other_master_keys
    found = {f"secrets.other_master_keys[{at}]": each for at, each in enumerate(others)}
    for version, other in settings.secrets.other_peppers.items():
        key = f"secrets.other_peppers.{version}"
        if not re.fullmatch(r"[1-9][0-9]{0,8}", version):
            raise ConfigurationInvalid(settings.source, key, "a version is a number from 1 on")
        if int(version) == settings.secrets.pepper_version:
            reason = "is the version of secrets.pepper itself (secrets.pepper_version)"
            raise ConfigurationInvalid(settings.source, key, reason)
        found[key] = other
    return found


def _check_server(settings: Settings, section: str, url: str) -> None:
    """The address of a Valkey or Redis that workers share."""
    reason = ""
    if url and not url.startswith(("redis://", "rediss://")):
        reason = "must start with redis:// or rediss://"
    elif "@" in url:
        reason = f"must not hold a password; name one with `{section}.password`"
    else:
        try:
            parts = urlsplit(url)
            is_numbered = bool(re.fullmatch(r"/?[0-9]*", parts.path)) and parts.port != 0
        except ValueError:
            is_numbered = False
        if not is_numbered:
            reason = "must be redis://host:port/number"
    if reason:
        raise ConfigurationInvalid(settings.source, f"{section}.url", reason)


def _check_stores(settings: Settings) -> None:
    """The credential of a secret store is sent there, and other secrets are read from there."""
    stores = {"vault.url": settings.vault.url, "aws.endpoint_url": settings.aws.endpoint_url}
    for key, url in stores.items():
        reason = _wrong_with(url) if url else ""
        if reason:
            raise ConfigurationInvalid(settings.source, key, reason)


def _wrong_with(url: str) -> str:
    """Why no secret should be sent to this address; empty if it is safe."""
    try:
        parts = urlsplit(url)
        if not is_guarded(parts):
            return "must be https beyond this machine: credentials go there and come from there"
        is_alone = parts.username is None and not (parts.query or parts.fragment)
        return "" if is_alone else "must be an address alone"
    except ValueError:
        return "is no address"


def is_guarded(parts: SplitResult) -> bool:
    """Whether nobody in between can read along: https, or this machine itself."""
    if parts.scheme == "http":
        return parts.hostname in LOOPBACK
    return parts.scheme == "https" and bool(parts.hostname)
