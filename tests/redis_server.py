"""A real Valkey or Redis for one test, on loopback, that can be stopped and started again.

It needs `redis-server` or `valkey-server` on the path; continuous integration installs one and says
so (`GATEWRIGHT_TEST_SERVERS`), so that tests of shared state cannot be skipped there.
"""

import asyncio
import shutil
import subprocess
from asyncio.subprocess import DEVNULL, Process
from pathlib import Path

from tests.free_ports import free_port


SERVER = shutil.which("valkey-server") or shutil.which("redis-server")


def speaks_tls() -> bool:
    """Whether the installed server has TLS: then it lacks a certificate, not a setting."""
    if not SERVER:
        return False
    asked = [SERVER, "--port", "0", "--tls-port", "1", "--save", ""]
    told = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False)
    return "tls-cert-file" in told.stdout


class Server:
    """A server on loopback that can be stopped and started again."""

    def __init__(self, folder: Path, certificate: Path | None = None) -> None:
        """With a certificate and its key, in one file, it speaks TLS only."""
        self.port = free_port()
        self._folder = folder
        self._certificate = certificate
        self._process: Process | None = None

    @property
    def url(self) -> str:
        scheme = "redis" if self._certificate is None else "rediss"
        return f"{scheme}://127.0.0.1:{self.port}/0"

    @property
    def _listening(self) -> list[str]:
        if self._certificate is None:
            return ["--port", str(self.port)]
        file = str(self._certificate)
        return [
            *("--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"),
            *("--tls-cert-file", file, "--tls-key-file", file, "--tls-ca-cert-file", file),
        ]

    async def start(self) -> None:
        assert SERVER
        self._process = await asyncio.create_subprocess_exec(
            *(SERVER, *self._listening, "--bind", "127.0.0.1", "--save", ""),
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
