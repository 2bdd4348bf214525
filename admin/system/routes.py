"""The system room: its pages, and the JSON behind them."""

from typing import Any

from admin.services import Services
from admin.system.configuration import configuration_routes
from admin.system.diagnostics import diagnostics_routes
from admin.system.gone import gone_routes
from admin.system.sinks import sink_routes
from admin.system.workers import worker_routes


def system_routes(services: Services) -> list[Any]:
    """All of them."""
    return [
        *worker_routes(services),
        *gone_routes(services),
        *configuration_routes(services),
        *sink_routes(services),
        *diagnostics_routes(services),
    ]
