"""The OpenTelemetry resource that names this service in spans and metrics alike. Pure."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class Source(Struct, frozen=True):
    """The source of points or spans; no two workers that run at once are the same."""

    worker: str
    installation: str = ""
    """Its name in the settings, if several send to one collector."""
    environment: str = ""
    """Its purpose, in the settings' word, such as `production`."""


def resource_of(source: Source) -> dict[str, Any]:
    """A `Resource`; unknown attributes are left out."""
    said = {
        "service.namespace": source.installation,
        "service.name": "gatewright",
        "service.instance.id": source.worker,
        "deployment.environment.name": source.environment,
    }
    return {"attributes": attributes_of(said)}


def attributes_of(said: Mapping[str, object]) -> list[dict[str, Any]]:
    """Those that have a value, in OTLP's form, which writes 64-bit numbers as text."""
    return [
        {
            "key": name,
            "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value},
        }
        for name, value in said.items()
        if value not in (None, "")
    ]
