"""A database that can be inspected, copied and restored, and commands typed beside a gateway."""

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.engine import make_url

from gateway.cli.audit.erasing import opened_erasures
from tests.faults.own_postgres import OwnPostgres, own_postgres
from tests.running_gateway import RunningGateway


KINDS = os.environ.get("GATEWRIGHT_FAULT_DATABASES", "sqlite").split(",")


class Store:
    """A database whose files can be looked into, copied and put back."""

    def __init__(self, url: str, folder: Path, server: OwnPostgres | None) -> None:
        self.url, self.folder, self._server = url, folder, server
        self._backup = ""

    def back_up(self) -> None:
        if self._server is not None:
            self._backup = self._server.create(make_url(self.url).database or "")
            return
        source, target = (sqlite3.connect(self.folder / name) for name in ("gateway.db", "old.db"))
        source.backup(target)
        source.close()
        target.close()

    def restore(self) -> None:
        if self._server is not None:
            self._server.drop(self.url)
            name = make_url(self.url).database
            old = make_url(self._backup).database
            self._server._execute(f'CREATE DATABASE "{name}" TEMPLATE "{old}"')
            return
        for path in self.folder.glob("gateway.db*"):
            path.unlink()
        shutil.copyfile(self.folder / "old.db", self.folder / "gateway.db")

    def files(self) -> Iterator[Path]:
        roots = [self.folder]
        if self._server is not None:
            roots.append(Path(self._server._server.pgdata))
        for root in roots:
            yield from (path for path in root.rglob("*") if path.is_file())


@contextmanager
def opened_store(kind: str, sqlite_url: str, folder: Path) -> Iterator[Store]:
    """One in a folder, or in a PostgreSQL server of its own."""
    if kind == "sqlite":
        yield Store(sqlite_url, folder, None)
        return
    with own_postgres() as server:
        yield Store(server.create_migrated(), folder, server)


async def types(gateway: RunningGateway, *arguments: str) -> str:
    """A command as an operator types it; its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *arguments, "--config", str(gateway.config_file)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, (output + errors).decode()
    return output.decode()


async def erased_by_two(gateway: RunningGateway, *arguments: str) -> int:
    """An erasure that one person types and another agrees to; how many keys it destroyed."""
    asked = await types(gateway, "audit", "erase", *arguments, "--yes")
    case_id = asked.split()[-1]
    async with opened_erasures(gateway.settings) as erasures:
        case = await erasures.cases.found(case_id)
        done = await erasures.approve("os:anton", case, "as the ticket says")
    return done.keys
