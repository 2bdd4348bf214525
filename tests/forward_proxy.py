"""A forward proxy on a real socket: it tunnels what CONNECT asks for, or misbehaves on demand.

It has names of its own, as a company's proxy has: it may know names that nobody else resolves.
"""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Self


Fault = Literal[
    "",
    "silent",  # the question is read, nothing ever comes
    "slow",  # a header that never ends, byte by byte
    "endless",  # headers without end, as fast as they are taken
    "behind",  # a good answer, and bytes behind it that nobody asked for
    "later",  # a good answer, and such bytes once TLS has begun
    "close",  # closed without an answer
    "open_close",  # a good answer, then closed
    "no_http",  # another protocol
    "redirect",  # to another place
    "denied",  # 407, with what was said to it repeated
    "forbidden",  # 403 with a page
]
OPEN = b"HTTP/1.1 200 Connection established\r\n\r\n"
PAGE = b"<html>" + b"not allowed here " * 10_000
_SAID: Mapping[Fault, bytes] = {
    "behind": OPEN + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
    "later": OPEN,
    "close": b"",
    "open_close": OPEN,
    "no_http": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "redirect": b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n",
    "forbidden": b"HTTP/1.1 403 Forbidden\r\ncontent-length: %d\r\n\r\n%b" % (len(PAGE), PAGE),
}


class ForwardProxy:
    """An asynchronous context manager that listens on a free port of 127.0.0.1."""

    def __init__(self, names: Mapping[str, str] | None = None, *, authorization: str = "") -> None:
        self.names = dict(names or {})
        """Host names that it knows, and where they lead."""
        self.authorization = authorization
        """The required credentials; none if empty."""
        self.fault: Fault = ""
        self.heads: list[bytes] = []
        """The complete heads of its requests."""
        self.tunnels = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def asked(self) -> list[str]:
        """The places to which tunnels were requested."""
        return [head.split(b" ")[1].decode() for head in self.heads]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._taken, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        wanted = f"\r\nproxy-authorization: {self.authorization}\r\n".encode()
        if self.fault == "denied" or (self.authorization and wanted not in head):
            said = head.replace(b"\r\n", b" ")
            writer.write(b"HTTP/1.1 407 %b\r\nx-said: %b\r\n\r\n" % (said, said))
            await writer.drain()
        elif self.fault:
            await self._misbehave(self.fault, reader, writer)
        else:
            await self._tunnel(head, reader, writer)

    async def _misbehave(
        self, fault: Fault, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if fault == "silent":
            await reader.read()
            return
        while fault in ("slow", "endless"):
            writer.write(b"x" if fault == "slow" else b"x-more: and more\r\n" * 100)
            await writer.drain()
            await asyncio.sleep(0.01 if fault == "slow" else 0)
        writer.write(_SAID[fault])
        await writer.drain()
        if fault == "later":
            await reader.read(1)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await writer.drain()
            await reader.read()

    async def _tunnel(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, _, port = head.split(b" ")[1].decode().rpartition(":")
        there = await asyncio.open_connection(self.names.get(host, host.strip("[]")), int(port))
        writer.write(OPEN)
        self.tunnels += 1
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_carry(reader, there[1]))
                group.create_task(_carry(there[0], writer))
        except* ConnectionError:
            pass
        finally:
            there[1].transport.abort()


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while piece := await source.read(65536):
        sink.write(piece)
        await sink.drain()
    sink.transport.abort()
