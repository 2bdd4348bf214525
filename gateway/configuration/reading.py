"""Configuration: one `gatewright.toml` plus environment variables, checked before anything starts.

This is the only module that reads the environment. `GATEWRIGHT_<SECTION>__<KEY>=value` overrides a
scalar, e.g. `GATEWRIGHT_DATA_PLANE__PORT=9000`; what is in no section stands alone, e.g.
`GATEWRIGHT_LOG_LEVEL`. Every error names the file (or variable), the key and the reason.
"""

import math
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, get_args
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Struct

from gateway.configuration.database_urls import refused_password
from gateway.configuration.sections import EXPLORATION_MAX, OPAQUE_KINDS, WINDOW_LEAST
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid


ENVIRONMENT_PREFIX = "GATEWRIGHT_"
_ALONE = ("log_level", "admin_url", "data_plane_url")
_MAY_BE_ZERO = frozenset(
    {
        "audit.free_bytes_min",
        "inspection.inline_bytes_max",
        "inspection.deadline_s_per_mib",
        "inspection.verdicts_kept",
        "responses.keep_days",
        "response_cache.memory_bytes_max",
        "inspection.cascade_exploration",
    }
)
_MOST = {"_days": 10**7, "_hours": 10**8, "_s": 10**12}
"""By the unit that ends a name: each about 30,000 years."""
_MOST_WHOLE = 2**63 - 1
CHECKPOINT_PERIOD_MAX_S = 50
"""With the seconds until it is asked for, and those that signing takes, a minute at most."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_SECRET_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"}
)


def load_settings(file: Path, environment: Mapping[str, str] | None = None) -> Settings:
    """Read and check the configuration.

    Raises:
        ConfigurationInvalid: with the file or variable, the key and the reason.
    """
    environment = os.environ if environment is None else environment
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationInvalid(str(file), "", error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise ConfigurationInvalid(str(file), "", "is not UTF-8 text") from error
    return parse_settings(text, str(file), file.resolve().parent, environment)


def parse_settings(
    text: str, source: str, folder: Path, environment: Mapping[str, str]
) -> Settings:
    """Check a configuration text; see `load_settings`."""
    tree = _tree_of(text, source)
    _apply_environment(tree, environment, source)
    tree |= {"source": source, "folder": str(folder)}
    try:
        settings = msgspec.convert(tree, Settings)
    except msgspec.ValidationError as error:
        reason, _, where = str(error).partition(" - at `$.")
        key = _key_of(tree, where.rstrip("`"), reason)
        raise ConfigurationInvalid(source, key, reason) from error
    _check(settings)
    _check_database(settings, environment)
    return settings


def _tree_of(text: str, source: str) -> dict[str, Any]:
    """The tables of a configuration text, as far as they can be read at all."""
    try:
        tree = tomllib.loads(text)
        key = _with_nul(tree)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationInvalid(source, "", f"not valid TOML: {error}") from error
    except RecursionError as error:
        raise ConfigurationInvalid(source, "", "is nested too deeply") from error
    except ValueError as error:
        raise ConfigurationInvalid(source, "", "has a number of thousands of digits") from error
    for reserved in ("source", "folder"):
        if reserved in tree:
            raise ConfigurationInvalid(source, reserved, "is not a setting")
    if key:
        raise ConfigurationInvalid(source, key, "has a NUL in it, which no name or file has")
    return tree


def read_environment(name: str) -> str | None:
    """A variable that a setting names, e.g. a provider's key; None when it is unset or empty."""
    return os.environ.get(name) or None


def _with_nul(value: object) -> str:
    """The key of the first text with a NUL; empty where there is none."""
    items: Iterable[tuple[str, object]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = ((f"[{index}]", each) for index, each in enumerate(value))
    for key, each in items:
        if isinstance(each, str) and "\0" in each:
            return key
        if below := _with_nul(each):
            return f"{key}.{below}"
    return ""


def _key_of(tree: Mapping[str, Any], where: str, reason: str) -> str:
    """The key that is wrong; msgspec writes `providers[...]` for whichever provider it was."""
    section, is_table, rest = where.partition("[...]")
    if is_table:
        table: Mapping[str, Any] = tree
        kind: Any = Settings
        for name in section.split("."):
            kind = next(each.type for each in msgspec.structs.fields(kind) if each.name == name)
            table = table[name]
        for name, item in table.items():
            try:
                msgspec.convert(item, get_args(kind)[1])
            except msgspec.ValidationError:
                where = f"{section}.{name}{rest}"
                break
    found = re.search(r"field `([^`]+)`", reason)
    return ".".join(filter(None, (where, found[1] if found else "")))


def _apply_environment(tree: dict[str, Any], environment: Mapping[str, str], source: str) -> None:
    """Put `GATEWRIGHT_SECTION__KEY` values where TOML would have put them."""
    sections = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    for name in _ALONE:
        variable = f"{ENVIRONMENT_PREFIX}{name.upper()}"
        if value := environment.get(variable):
            tree[name] = _scalar(variable, name, value, sections[name])
    for variable, value in sorted(environment.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX) or "__" not in variable:
            continue
        section, _, key = variable.removeprefix(ENVIRONMENT_PREFIX).lower().partition("__")
        kind = sections.get(section)
        if not (isinstance(kind, type) and issubclass(kind, Struct)):
            raise ConfigurationInvalid(variable, section, "there is no such section")
        fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
        if key not in fields:
            raise ConfigurationInvalid(variable, f"{section}.{key}", "there is no such setting")
        scalar = _scalar(variable, f"{section}.{key}", value, fields[key])
        table = tree.setdefault(section, {})
        if not isinstance(table, dict):
            raise ConfigurationInvalid(source, section, "must be a table")
        table[key] = scalar


def _scalar(variable: str, key: str, value: str, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationInvalid(variable, key, str(error)) from error


def _check(settings: Settings) -> None:
    """What types cannot say."""
    source = settings.source
    for name, listener in (("data_plane", settings.data_plane), ("admin", settings.admin)):
        if not 0 <= listener.port <= 65535:  # noqa: PLR2004
            raise ConfigurationInvalid(source, f"{name}.port", "must be between 0 and 65535")
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


def _check_database(settings: Settings, environment: Mapping[str, str]) -> None:
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
    """Content is never destroyed before its day, and nobody promises what a vendor does not keep.

    What a vendor batches it keeps for a while; a class that is none would keep for ever.
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
    """Targets are of configured providers, and who is named is there."""
    source = settings.source
    for name, target in settings.targets.items():
        if target.provider not in settings.providers:
            reason = f"there is no provider `{target.provider}`"
            raise ConfigurationInvalid(source, f"targets.{name}.provider", reason)
    vectors = settings.response_cache.embeddings
    if vectors and vectors not in settings.targets:
        reason = f"there is no target `{vectors}`"
        raise ConfigurationInvalid(source, "response_cache.embeddings", reason)


def _check_numbers(settings: Settings) -> None:
    """TOML knows `nan` and `inf`; a deadline that is one of them would never come."""
    sections: dict[str, Struct] = {
        "limits": settings.limits,
        "audit": settings.audit,
        "responses": settings.responses,
        "response_cache": settings.response_cache,
        "inspection": settings.inspection,
        "secrets": settings.secrets,
        "batches": settings.batches,
    } | {f"providers.{name}": provider for name, provider in settings.providers.items()}
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
    """Beyond it, times in microseconds and numbers of a database overflow while requests run."""
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
    _check_server(settings, "rates", settings.rates.url)
    _check_server(settings, "response_cache", settings.response_cache.url)
    for key, optional in (
        ("rates.password", settings.rates.password),
        ("response_cache.password", settings.response_cache.password),
        ("oidc.client_secret", settings.oidc.client_secret),
        ("alerts.credential", settings.alerts.credential),
    ):
        if optional:
            references[key] = optional
    for name, sink in settings.sinks.items():
        if sink.credential:
            references[f"sinks.{name}.credential"] = sink.credential
    _check_vault(settings)
    references["vault.credential"] = settings.vault.credential
    for key, reference in references.items():
        may_move = key.startswith("providers.")
        if may_move and reference.places != 1:
            reason = "needs exactly one of `env`, `file`, `db`, `vault` and `aws_sm`"
            raise ConfigurationInvalid(settings.source, key, reason)
        if not may_move and (reference.places != 1 or not reference.is_local):
            # What opens the other places cannot itself be kept in them.
            reason = "needs exactly one of `env` and `file`"
            raise ConfigurationInvalid(settings.source, key, reason)


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


def _check_vault(settings: Settings) -> None:
    """Our credential goes there, and every provider's comes from there."""
    if not settings.vault.url:
        return
    reason = ""
    try:
        parts = urlsplit(settings.vault.url)
        if not is_guarded(parts):
            reason = "must be https beyond this machine: credentials go there and come from there"
        elif parts.username is not None or parts.query or parts.fragment:
            reason = "must be an address alone"
    except ValueError:
        reason = "is no address"
    if reason:
        raise ConfigurationInvalid(settings.source, "vault.url", reason)


def is_guarded(parts: SplitResult) -> bool:
    """Whether nobody between us can read along: https, or this machine itself."""
    if parts.scheme == "http":
        return parts.hostname in LOOPBACK
    return parts.scheme == "https" and bool(parts.hostname)
