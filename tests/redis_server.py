"""A real Valkey or Redis of a test's own, on loopback, that can be stopped and started again.

It needs `redis-server` or `valkey-server` on the path; continuous integration installs one and
says so (`GATEWRIGHT_TEST_SERVERS`), so that what is shared cannot be left out there.
"""

import asyncio
import shutil
import socket
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path


SERVER = shutil.which("valkey-server") or shutil.which("redis-server")


class Server:
    """A server on loopback that can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._folder = folder
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def start(self) -> None:
        assert SERVER
        self._process = await asyncio.create_subprocess_exec(
            *(SERVER, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""),
            *("--dir", str(self._folder)),
            stdout=DEVNULL,
        )
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.01)
                continue
            writer.close()
            return

    async def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None
