"""A syslog server and an HTTP collector on loopback that keep every byte they receive."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


class Collectors:
    """Everything delivered, and the settings that deliver it here."""

    def __init__(self) -> None:
        self.syslog = bytearray()
        self.posted: dict[str, bytes] = {}
        self.settings = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65536):
            self.syslog.extend(piece)
        writer.close()

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.posted[request.path] = self.posted.get(request.path, b"") + body
        return web.Response()


@asynccontextmanager
async def collecting() -> AsyncIterator[Collectors]:
    """Both, listening; their settings have one sink of each kind."""
    collectors = Collectors()
    server = await asyncio.start_server(collectors.serve, "127.0.0.1", 0)
    application = web.Application(client_max_size=1 << 26)
    application.router.add_post("/{path:.*}", collectors.take)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port, http = server.sockets[0].getsockname()[1], runner.addresses[0][1]
    collectors.settings = f"""
[sinks.archive]
kind = "jsonl"
file = "var/sink.jsonl"
[sinks.siem]
kind = "syslog"
url = "tcp://127.0.0.1:{port}"
[sinks.lake]
kind = "http"
url = "http://127.0.0.1:{http}/lake"
[sinks.telemetry]
kind = "otlp"
url = "http://127.0.0.1:{http}/v1/traces"
"""
    try:
        yield collectors
    finally:
        server.close()
        await runner.cleanup()
