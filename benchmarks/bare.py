"""`python -m benchmarks.bare --port P --upstream-port U`: the least a proxy in Python costs.

It is uvicorn with uvloop and httptools, like the gateway, and an application that passes bodies on
over kept connections and looks at nothing. The difference to nginx is the cost of Python's sockets;
the difference to the gateway is the cost of what the gateway does.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httptools
import uvicorn


Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

KEPT_HEADERS = frozenset({b"content-type", b"content-length"})


class Upstream(asyncio.Protocol):
    """One kept connection: one request at a time, its reply in pieces as they come."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None
        self._pieces: list[bytes] = []
        self._parser: Any = None
        self.is_complete = False
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def ask(self, head: bytes, body: bytes) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.is_complete, self.headers = False, []
        self._transport.writelines((head, body))

    async def read(self) -> bytes:
        """The next piece; empty at the end of the reply."""
        while not self._pieces and not self.is_complete:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in KEPT_HEADERS:
            self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self.is_complete = True


class BareProxy:
    """An ASGI application that passes every POST on to one upstream."""

    def __init__(self, upstream_port: int) -> None:
        self._port = upstream_port
        self._idle: list[Upstream] = []

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        connection = self._idle.pop() if self._idle else await self._connect()
        head = f"POST {scope['path']} HTTP/1.1\r\nhost: upstream\r\ncontent-length: {len(body)}"
        connection.ask(f"{head}\r\ncontent-type: application/json\r\n\r\n".encode(), body)
        piece = await connection.read()
        await send(
            {"type": "http.response.start", "status": 200, "headers": connection.headers},
        )
        while piece:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = await connection.read()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        self._idle.append(connection)

    async def _connect(self) -> Upstream:
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(Upstream, "127.0.0.1", self._port))[1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream-port", type=int, required=True)
    arguments = parser.parse_args()
    uvicorn.run(
        BareProxy(arguments.upstream_port),
        host="127.0.0.1",
        port=arguments.port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
    )


if __name__ == "__main__":
    main()
