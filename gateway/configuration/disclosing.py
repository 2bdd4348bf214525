"""Settings as they may be shown and compared: without anything that could open a door. Pure.

Settings hold no secrets, only where each is kept. But an address may carry a password, and a web
hook's address is often itself the secret: so addresses are shown without user, password and query,
and some only as the host.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from gateway.configuration.settings import Settings


HIDDEN: Final = "…"
_HOST_ONLY: Final = frozenset({"alerts.url", "metrics.url", "sinks.*.url", "oidc.issuer"})
"""Addresses whose path is often secret or private."""
OWN_OF_A_WORKER: Final = frozenset(
    {
        *("source", "folder", "data_plane", "admin", "audit.worker", "audit.directory"),
        *("audit.checkpoint_directory", "audit.pack_directory", "log_level"),
    }
)
"""Settings that workers of one installation may each have for themselves."""


def disclosed(settings: Settings) -> dict[str, Any]:
    """All settings as plain tables: for secrets the places where they are kept; addresses cut."""
    tree: dict[str, Any] = msgspec.to_builtins(settings)
    return {name: _cut(name, value) for name, value in tree.items()}


def settings_digest(settings: Settings) -> str:
    """Equal on all workers that were given the same settings.

    It covers no password. It covers the path of a web hook, which nobody can guess from a hash.
    """
    lines: dict[str, Any] = {}
    tree: dict[str, Any] = msgspec.to_builtins(settings)
    _flatten("", {name: _cut(name, value, frozenset()) for name, value in tree.items()}, lines)
    shared = {key: value for key, value in lines.items() if not _is_own(key)}
    encoded = msgspec.json.encode(shared, order="sorted")
    return hashlib.sha256(encoded).hexdigest()[:32]


def flat(settings: Settings) -> dict[str, Any]:
    """The same as `disclosed`, as one line per setting: `limits.messages_max` → 2000."""
    lines: dict[str, Any] = {}
    _flatten("", disclosed(settings), lines)
    return lines


def safe_url(text: str, *, host_only: bool = False) -> str:
    """An address without user, password, query and fragment; text without a host as it is."""
    if "://" not in text:
        return text
    try:
        parts = urlsplit(text)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return HIDDEN
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        # A password may contain what ends a host: its beginning would then be shown as one.
        return HIDDEN
    user = f"{HIDDEN}@" if "@" in parts.netloc else ""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    path = parts.path if not host_only or parts.path in ("", "/") else f"/{HIDDEN}"
    query = f"?{HIDDEN}" if parts.query or parts.fragment else ""
    return f"{parts.scheme}://{user}{host}{port}{path}{query}"


def _cut(key: str, value: Any, host_only: frozenset[str] = _HOST_ONLY) -> Any:
    if isinstance(value, Mapping):
        return {name: _cut(f"{key}.{name}", each, host_only) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(key, each, host_only) for each in value]
    if not isinstance(value, str):
        return value
    section, _, rest = key.partition(".")
    return safe_url(value, host_only=not host_only.isdisjoint({key, f"{section}.*.{rest[-3:]}"}))


def _flatten(key: str, value: Any, lines: dict[str, Any]) -> None:
    if not isinstance(value, Mapping):
        lines[key] = value
        return
    for name, each in value.items():
        _flatten(f"{key}.{name}" if key else str(name), each, lines)


def _is_own(key: str) -> bool:
    return any(key == own or key.startswith(f"{own}.") for own in OWN_OF_A_WORKER)
