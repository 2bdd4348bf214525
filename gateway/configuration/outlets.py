"""Checks the headers of outside places that receive something, and lists the secrets they name.

Nobody may set a header that is ours, or that says where a message ends.
"""

import re

from gateway.configuration.sections import OutletSettings, SecretReference
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid


_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_OURS = re.compile(
    r"accept.*|connection|content-.*|cookie|expect|host|keep-alive|proxy-.*|te|trailer|"
    r"transfer-encoding|upgrade|user-agent|webhook-.*"
)
_MEANINGLESS = {
    "jsonl": (
        *("headers", "ca_file", "client_certificate", "client_key"),
        *("proxy", "proxy_credential"),
    ),
    "syslog": ("headers", "proxy"),
}
"""By kind of sink, the settings that have no effect there."""


def outlets_of(settings: Settings) -> dict[str, OutletSettings]:
    """All outlets, by their sections."""
    sinks = {f"sinks.{name}": sink for name, sink in settings.sinks.items()}
    return {"alerts": settings.alerts, "metrics": settings.metrics, **sinks}


def outlet_references(settings: Settings) -> dict[str, SecretReference]:
    """The secrets that they name, by setting."""
    found: dict[str, SecretReference | None] = {"alerts.signing_key": settings.alerts.signing_key}
    for name, sink in settings.sinks.items():
        found[f"sinks.{name}.signing_key"] = sink.signing_key
    for section, outlet in outlets_of(settings).items():
        found[f"{section}.credential"] = outlet.credential
        found[f"{section}.proxy_credential"] = outlet.proxy_credential
        for header, reference in outlet.headers.items():
            found[f"{section}.headers.{header}"] = reference
    return {key: reference for key, reference in found.items() if reference is not None}


def check_outlets(settings: Settings) -> None:
    """Raises ConfigurationInvalid if a header is not allowed, or a setting has no effect."""
    for section, outlet in outlets_of(settings).items():
        for header in outlet.headers:
            reason = _wrong_with(header, outlet)
            if reason:
                raise ConfigurationInvalid(settings.source, f"{section}.headers.{header}", reason)
    for name, sink in settings.sinks.items():
        for key in _MEANINGLESS.get(sink.kind, ()):
            if getattr(sink, key):
                reason = f"means nothing for a sink of kind `{sink.kind}`"
                raise ConfigurationInvalid(settings.source, f"sinks.{name}.{key}", reason)


def _wrong_with(header: str, outlet: OutletSettings) -> str:
    if not _NAME.fullmatch(header):
        return "is no name of a header in lower case"
    if _OURS.fullmatch(header):
        return "is a header that the gateway sets itself"
    if header == "authorization" and outlet.credential:
        return "is what `credential` sets: name one of the two"
    return ""
