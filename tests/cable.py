"""A TCP cable to a server on this machine, byte by byte, that a test may cut and mend."""

import asyncio
from types import TracebackType
from typing import Self


PIECE_BYTES = 65_536


class Cable:
    """An asynchronous context manager; the server is reached through `port`."""

    def __init__(self, host: str, port: int) -> None:
        """A `host` that begins with a slash is the folder of a PostgreSQL server's socket."""
        self._to = (host, port)
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._server: asyncio.Server
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.cut()
        self._server.close()
        await asyncio.gather(*self._tasks)

    def cut(self) -> None:
        """End every connection and accept no more."""
        self._is_cut = True
        for end in self._ends:
            end.close()

    def mend(self) -> None:
        self._is_cut = False

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.close()
            return
        there, back = await self._reach()
        self._ends |= {writer, back}
        for pair in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._carry(*pair))
            self._tasks.add(task)

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._to
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(PIECE_BYTES):
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()
