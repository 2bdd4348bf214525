"""The listener's probes, open without signing in: whether it lives, and its own figures."""

from typing import Any

from litestar import Response, route
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from admin.access import PUBLIC
from admin.sign_in.pages import READING


def probe_routes(registry: CollectorRegistry) -> list[Any]:
    """All of them; whether it is ready says the overview's room, which asks the database."""

    @route("/health/live", http_method=READING, opt=PUBLIC)
    async def live() -> dict[str, str]:
        return {"status": "live"}

    @route("/metrics", http_method=READING, opt=PUBLIC)
    async def metrics() -> Response[bytes]:
        headers = {"content-type": CONTENT_TYPE_LATEST}
        return Response(generate_latest(registry), headers=headers)

    return [live, metrics]
