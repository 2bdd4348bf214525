"""A listener of our protocol on a port of its own, for tests of what comes over the wire."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from gateway.api.protocol import bounded_protocol
from gateway.configuration.settings import Limits


@asynccontextmanager
async def listening(
    application: Any, limits: Limits, connections_max: int = 0
) -> AsyncIterator[int]:
    """Its port."""
    http = bounded_protocol(limits, connections_max)
    config = uvicorn.Config(application, port=0, http=http, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    yield int(server.servers[0].sockets[0].getsockname()[1])
    server.should_exit = True
    await serving
