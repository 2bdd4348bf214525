"""What every AuditLog promises; the one on disk and the one in memory keep the same contract."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest

from gateway.audit.memory import MemoryAuditLog
from gateway.errors import AuditUnavailable
from gateway.ports import AuditLog
from gateway.types import AuditRecord
from tests.gateway.audit.samples import make_log, record


pytestmark = pytest.mark.anyio


class RunningLog(AuditLog, Protocol):
    """The port, and what the composition root needs besides."""

    @property
    def healthy(self) -> bool: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...


@pytest.fixture(params=["memory", "segments"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RunningLog]:
    made: RunningLog = MemoryAuditLog() if request.param == "memory" else make_log(tmp_path)
    await made.start()
    yield made
    await made.close()


async def test_a_receipt_names_a_place_and_a_hash(log: RunningLog) -> None:
    receipt = await log.append(record(1))
    assert receipt.segment >= 1
    assert len(bytes.fromhex(receipt.leaf_hash)) == 32
    assert str(receipt).count(".") == 3


async def test_records_lie_behind_each_other(log: RunningLog) -> None:
    receipts = [await log.append(record(number)) for number in range(5)]
    offsets = [receipt.offset_bytes for receipt in receipts]
    assert offsets == sorted(set(offsets))
    assert len({receipt.leaf_hash for receipt in receipts}) == 5


async def test_equal_records_hash_equally_whatever_the_order_of_their_maps(
    log: RunningLog,
) -> None:
    first = AuditRecord("admin", "r", "acme", 1, findings={"a": 1, "b": 2})
    second = AuditRecord("admin", "r", "acme", 1, findings={"b": 2, "a": 1})
    assert (await log.append(first)).leaf_hash == (await log.append(second)).leaf_hash


async def test_a_record_too_large_to_keep_is_cut_and_not_refused(log: RunningLog) -> None:
    huge = AuditRecord("admin", "r", "acme", 1, detail={str(n): "x" * 999 for n in range(999)})
    assert (await log.append(huge, b"content")).leaf_hash


async def test_concurrent_callers_each_get_their_own_receipt(log: RunningLog) -> None:
    receipts = await asyncio.gather(*(log.append(record(number)) for number in range(50)))
    assert len({str(receipt) for receipt in receipts}) == 50


async def test_a_running_log_is_healthy_and_a_closed_one_refuses(log: RunningLog) -> None:
    health = [log.healthy]
    await log.close()
    assert [*health, log.healthy] == [True, False]
    with pytest.raises(AuditUnavailable):
        await log.append(record(1))


async def test_closing_twice_is_harmless(log: RunningLog) -> None:
    await log.close()
    await log.close()
    assert not log.healthy


async def test_the_memory_log_refuses_when_told_to_and_then_recovers() -> None:
    log = MemoryAuditLog()
    await log.start()
    log.failing = True
    with pytest.raises(AuditUnavailable):
        await log.append(record(1))
    log.failing = False
    await log.append(record(2), b"text")
    assert [kept.request_id for kept in log.records] == ["req_2"]
    assert log.contents == [b"text"]
