"""A process that reads a complete log while one system call after the other fails on its segments.

See `failing_calls.c`. For each reader, call, error and place: it reports what is there, or that it
could not read it. A failed call never makes it report something as damaged, missing or ended.
"""

import asyncio
import contextlib
import ctypes
import io
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

from gateway.audit.memory import MemoryAuditLog
from gateway.audit.reckoning import open_intents
from gateway.audit.writer import SegmentedAuditLog
from gateway.cli.audit.evidence import fsck
from gateway.cli.init import prepare
from gateway.cli.options import Refused
from gateway.clock import StoppedClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.secrets.credentials import master_key
from gateway.store.custody.orders import Custody, CustodyRefused
from gateway.store.engine import open_database
from gateway.store.erasure.erasing import Consequences, Erasures
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.sink import AuditQuery
from tests.faults.syscall_victim import CODES, ROTATING
from tests.gateway.audit.samples import record


CALLS = ("open", "read", "pread", "stat", "opendir")
RECORDS = 9
ENDED = {1, 2, 5, 7}
CANNOT = "it could not be read"


class Reader:
    """Reads one log in the ways of those who act on what is missing in it."""

    def __init__(self, settings: Settings, config_file: Path) -> None:
        self._settings = settings
        self._config_file = config_file
        self._folder = settings.path(settings.audit.directory)
        self.ways: dict[str, Callable[[], Awaitable[object]]] = {
            "records": self._records,
            "fsck": self._fsck,
            "erasure": self._erasure,
            "open intents": self._open,
        }

    @contextlib.asynccontextmanager
    async def _parts(self) -> AsyncIterator[Integration]:
        database = open_database(self._settings.database_url, pooled=False)
        try:
            clock = StoppedClock()
            yield Integration(self._settings, database, clock, master_key(self._settings))
        finally:
            await database.close()

    async def _records(self) -> object:
        async with self._parts() as parts:
            rows = parts.sink.records(AuditQuery(), strict=True)
            return [row.projected.leaf_hash async for row in rows]

    async def _fsck(self) -> object:
        said, errors = io.StringIO(), io.StringIO()

        def run() -> None:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
                fsck.main(["--config", str(self._config_file)], standalone_mode=False)

        try:
            await asyncio.to_thread(run)
        except SystemExit as end:
            return end.code, said.getvalue()
        raise AssertionError("it ends with a status")

    async def _erasure(self) -> Consequences:
        async with self._parts() as parts:
            master = master_key(self._settings)
            custody = Custody(parts.database, MemoryAuditLog(), StoppedClock())
            given = (self._settings, parts.database, custody, parts, master, StoppedClock())
            return await Erasures(*given).consequences("acme", None)

    async def _open(self) -> object:
        reckoned = open_intents(self._folder / "w0", 10**8)
        if reckoned.unread:
            raise OSError(CANNOT)
        return sorted(each.record.request_id for each in reckoned.requests)


async def _written(root: Path) -> Reader:
    await prepare(root)
    config_file = root / "gatewright.toml"
    settings = load_settings(config_file)
    folder = settings.path(settings.audit.directory)
    clock = StoppedClock()
    log = SegmentedAuditLog(folder, "w0", keys=master_key(settings), clock=clock, limits=ROTATING)
    await log.start()
    for number in range(1, RECORDS + 1):
        receipt = await log.append(record(number), b"content")
        if number in ENDED:
            await log.append(record(number, "outcome", receipt.leaf_hash))
    await log.close()
    reader = Reader(settings, config_file)
    async with reader._parts() as parts:
        await parts.projector.catch_up()
    return reader


async def _tried(way: Callable[[], Awaitable[object]]) -> object:
    try:
        return await way()
    except (OSError, CustodyRefused, Refused):
        return CANNOT


async def _run(root: Path, shim: ctypes.CDLL, codes: Sequence[str]) -> None:
    reader = await _written(root)
    below = str(reader._folder).encode()
    for name, way in reader.ways.items():
        right = await way()
        for call in CALLS:
            for code in codes:
                place, hit = 0, True
                while hit:
                    place += 1
                    shim.fail_call(call.encode(), below, place, CODES[code])
                    found = await _tried(way)
                    hit = bool(shim.failed_calls())
                    shim.fail_call(b"", b"", 0, 0)
                    wrong = "" if found in (right, CANNOT) else repr(found)
                    line = {"call": call, "error": code, "place": place, "way": name, "hit": hit}
                    line |= {"wrong": wrong, "told": found == CANNOT}
                    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1]), ctypes.CDLL(sys.argv[2]), sys.argv[3:]))
