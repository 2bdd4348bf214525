"""SIGKILL at any moment: no acknowledged record is lost, and a restart continues the chain."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.audit.memory import MemoryAuditSink
from gateway.audit.projecting.projector import Projector
from gateway.audit.proving.verify import parse_receipt, verify_directory
from gateway.types import Receipt
from tests.gateway.audit.samples import journeys, running


RUNS = 12

_WRITER = """
import asyncio, os, sys
from pathlib import Path
import msgspec
from tests.gateway.audit.samples import LIMITS, record, running

async def main():
    limits = msgspec.structs.replace(LIMITS, segment_max_bytes=100_000)
    async with running(Path(sys.argv[1]), limits=limits) as log:
        async def client(number):
            while True:
                number += 64
                intent = await log.append(record(number), b"prompt" * 20)
                os.write(1, f"{intent}\\n".encode())
                outcome = await log.append(record(number, "outcome", intent.leaf_hash))
                os.write(1, f"{outcome}\\n".encode())
        await asyncio.gather(*(client(number) for number in range(64)))

asyncio.run(main())
"""


def acknowledged_until_killed(directory: Path, after_s: float) -> list[Receipt]:
    """Receipts that the writer had printed when it was killed `after_s` after its first one."""
    with (directory / "acknowledged").open("wb+") as out:
        command = [sys.executable, "-c", _WRITER, str(directory / "audit")]
        with subprocess.Popen(command, stdout=out) as process:
            while out.tell() == 0 and process.poll() is None:
                time.sleep(0.005)
                out.seek(0, 2)
            time.sleep(after_s)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        out.seek(0)
        lines = out.read().decode().split("\n")[:-1]
    receipts = [parse_receipt(line) for line in lines]
    return [receipt for receipt in receipts if receipt is not None]


@pytest.mark.anyio
async def test_twelve_kills_under_64_clients_lose_nothing_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    dice = random.Random(7)
    receipts: list[Receipt] = []
    for _ in range(RUNS):
        receipts += acknowledged_until_killed(tmp_path, dice.uniform(0.0, 0.25))
    async with running(tmp_path / "audit") as log:
        receipts += await journeys(log, 10**6, 1)
    report = verify_directory(tmp_path / "audit", expected=receipts)
    assert report.bad == ()
    assert report.records >= len(set(map(str, receipts))) == len(receipts) > RUNS
    sink = MemoryAuditSink()
    assert await Projector(tmp_path / "audit", sink).catch_up() == report.records
