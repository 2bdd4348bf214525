"""A PostgreSQL server for one test, which may be stopped, killed, frozen and made read-only."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy.engine import make_url

from tests.databases import PostgresServer, _own_server


class OwnPostgres(PostgresServer):
    """One server; every process of it may be signalled."""

    def __init__(self, server: Any) -> None:
        super().__init__(make_url(server.get_uri()))
        self._server = server

    def _processes(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            postmaster = psutil.Process(self._server.get_pid())
            return [postmaster, *postmaster.children(recursive=True)]
        return []

    def kill(self) -> None:
        """SIGKILL to the postmaster; its children notice and end by themselves."""
        processes = self._processes()
        processes[0].kill()
        psutil.wait_procs(processes, timeout=30)

    def stop(self) -> None:
        """As `pg_ctl stop -m immediate`: connections are cut, nothing is written out."""
        processes = self._processes()
        processes[0].send_signal(signal.SIGQUIT)
        psutil.wait_procs(processes, timeout=30)

    def start(self) -> None:
        self._server.ensure_postgres_running()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Every process stopped by a signal: connections stay open and nobody answers."""
        processes = self._processes()
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """As after a failover to a standby."""
        self.set("default_transaction_read_only = on")
        try:
            yield
        finally:
            self.set("default_transaction_read_only = off")

    def set(self, setting: str) -> None:
        """Change a setting that a reload makes good."""
        self._execute(f"ALTER SYSTEM SET {setting}")
        self._execute("SELECT pg_reload_conf()")


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    """Started on first use, gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="gw-pgf-"))
    server = _own_server(folder)
    try:
        own = OwnPostgres(server)
        # A killed process loses what the server had not handed to the system; `fsync` is for power.
        own.set("fsync = off")
        yield own
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
