"""Records, keys and logs that the audit tests share."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.audit.device import AuditLimits
from gateway.audit.disk import Disk
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import Clock, SystemClock
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.types import AuditRecord, Receipt, Stage, Usage


KEYS = MasterKey(Secret(bytes(range(32))))
# The deadline is far away: a disk shared with other suites may take seconds for one sync.
LIMITS = AuditLimits(free_floor_bytes=1, probe_s=0.05, deadline_s=60.0)


def record(number: int, stage: Stage = "intent", intent: str = "") -> AuditRecord:
    return AuditRecord(
        stage=stage,
        request_id=f"req_{number}",
        organisation="acme" if number % 3 else "globex",
        utc_us=1_800_000_000_000_000 + number,
        target="managed/small",
        findings={"email": 1, "card": 2},
        intent=intent,
        usage=Usage(input_tokens=number) if stage == "outcome" else None,
    )


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread brings about; the test's timeout ends a vain wait."""
    while not condition():
        await asyncio.sleep(0.002)


def make_log(
    directory: Path,
    worker: str = "w0",
    *,
    limits: AuditLimits = LIMITS,
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> SegmentedAuditLog:
    return SegmentedAuditLog(
        directory, worker, keys=KEYS, clock=clock or SystemClock(), limits=limits, disk=disk
    )


@asynccontextmanager
async def running(
    directory: Path,
    worker: str = "w0",
    *,
    limits: AuditLimits = LIMITS,
    disk: Disk | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[SegmentedAuditLog]:
    log = make_log(directory, worker, limits=limits, disk=disk, clock=clock)
    await log.start()
    try:
        yield log
    finally:
        await log.close()


async def journeys(log: SegmentedAuditLog, first: int, count: int) -> list[Receipt]:
    """Whole requests, one after the other: an intent with content and its outcome each."""
    receipts = []
    for number in range(first, first + count):
        intent = await log.append(record(number), b"prompt %d" % number)
        outcome = await log.append(record(number, "outcome", intent.leaf_hash))
        receipts += [intent, outcome]
    return receipts
