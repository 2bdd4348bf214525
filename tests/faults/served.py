"""A machine's worker as a separate process, which may be killed at one step of its work."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.faults.test_kills import MAIN, until_ready
from tests.free_ports import free_port
from tests.running_gateway import BRISK_PROCESS, RunningGateway


KILLED = """
import functools, importlib, inspect, os, signal
def killed(where, *, after=False, only=lambda *given: True):
    module, _, path = where.partition(":")
    owner = importlib.import_module(module)
    *parts, name = path.split(".")
    for part in parts:
        owner = getattr(owner, part)
    usual = getattr(owner, name)
    def dies():
        os.kill(os.getpid(), signal.SIGKILL)
    async def awaited(*given, **more):
        done = await usual(*given, **more)
        dies()
    @functools.wraps(usual)
    def called(*given, **more):
        if not only(*given):
            return usual(*given, **more)
        if not after:
            dies()
        if inspect.iscoroutinefunction(usual):
            return awaited(*given, **more)
        usual(*given, **more)
        dies()
    setattr(owner, name, called)
"""
"""Statements for a process: it kills itself before it does something, or right after."""


class Served:
    """A worker, or the admin listener, of a machine that has run before."""

    def __init__(self, machine: RunningGateway, *, what: str = "serve") -> None:
        self.port, self._what = free_port(), what
        table = "data_plane" if what == "serve" else "admin"
        text = machine.config_file.read_text()
        text = text.replace("port = 0", f"port = {self.port if what == 'serve' else free_port()}")
        if table == "admin":
            text += f"\n[admin]\nport = {self.port}\n"
        self.config_file = machine.config_file.with_name(f"{what}.toml")
        self.config_file.write_text(text)
        self._log: Path = self.config_file.with_suffix(".log")
        self.process: asyncio.subprocess.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self, more: str = "") -> None:
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", f"{BRISK_PROCESS}{more}\n{MAIN}"),
                *(*self._what.split(), "--config", str(self.config_file)),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log,
            )

    @asynccontextmanager
    async def running(self, more: str = "") -> AsyncIterator[None]:
        """Ready; ended at the end if it still lives. `more` are statements that it obeys first."""
        await self.start(more)
        try:
            await until_ready(self.process, self.url)
            yield
        finally:
            if self.process.returncode is None:
                self.process.terminate()
            await self.process.wait()

    async def dies(self) -> None:
        """Wait until it was killed, and by nothing else."""
        assert await self.process.wait() == -signal.SIGKILL, self.said()

    def said(self) -> list[str]:
        return self._log.read_text().splitlines()
