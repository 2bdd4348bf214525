"""A worker whose SQLite takes nothing more says so to whoever gives it requests, and comes back."""

import asyncio
import resource
import sqlite3
import sys
from pathlib import Path

import aiohttp
import pytest

from gateway.clock import SystemClock
from tests.cli.operator import Operator
from tests.free_ports import free_port


pytestmark = pytest.mark.anyio
CONFIG = """
[data_plane]
port = {port}
[audit]
free_bytes_min = 1
"""


async def _told(http: aiohttp.ClientSession, port: int) -> tuple[int, str, str]:
    """What health says, and the metric of it."""
    async with http.get(f"http://127.0.0.1:{port}/health/ready") as answer:
        said = await answer.text()
    async with http.get(f"http://127.0.0.1:{port}/metrics") as figures:
        lines = (await figures.text()).splitlines()
    (ready,) = [line for line in lines if line.startswith("gatewright_ready ")]
    return answer.status, said, ready.removeprefix("gatewright_ready ")


async def _until(http: aiohttp.ClientSession, port: int, status: int) -> tuple[str, str]:
    clock = SystemClock()
    begun_s = clock.monotonic_s()
    while clock.monotonic_s() - begun_s < 60.0:
        try:
            found, said, ready = await _told(http, port)
            if found == status:
                return said, ready
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)
    raise AssertionError(f"it never answered {status}")


def _lengthen_the_journal(file: Path) -> int:
    """Longer than what the audit log has on disk already; how long it is then."""
    connection = sqlite3.connect(file, isolation_level=None)
    for _ in range(100):
        connection.execute("UPDATE revisions SET revision = revision + 1")
    connection.close()
    return Path(f"{file}-wal").stat().st_size


async def test_a_worker_whose_database_is_full_is_not_ready_until_there_is_room(
    operator: Operator,
) -> None:
    port = free_port()
    operator.config_file.write_text(CONFIG.format(port=port))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "serve", "--config", str(operator.config_file)),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession() as http:
            _, ready = await _until(http, port, 200)
            assert ready == "1.0"
            before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
            length = _lengthen_the_journal(operator.config_file.parent / "var/gatewright.db")
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (length, before[1]))
            said, ready = await _until(http, port, 503)
            assert "The database takes no writes: its disk fails." in said
            assert ready == "0.0"
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)
            await _until(http, port, 200)
    finally:
        process.kill()
        await process.wait()
