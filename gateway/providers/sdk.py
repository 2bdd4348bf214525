"""The one late import: loads the vendors' SDKs when a low-rate operation first needs them.

Together they take about a second to import and 60 MiB to hold, while the gateway must start in two
seconds and idle in 120 MiB; the hot path never needs them.
"""

import asyncio
from types import ModuleType
from typing import Literal

from gateway.providers.egress.client import Egress, Route


Vendor = Literal["anthropic", "openai"]


async def probe(vendor: Vendor, egress: Egress, models_route: Route, deadline_s: float) -> str:
    """List the models through the vendor's SDK; empty if that works, otherwise the reason."""
    clients = await asyncio.to_thread(_load)
    verdict: str = await clients.PROBES[vendor](egress, models_route, deadline_s)
    return verdict


def _load() -> ModuleType:
    from gateway.providers import sdk_clients  # noqa: PLC0415 - see the module's docstring

    return sdk_clients
