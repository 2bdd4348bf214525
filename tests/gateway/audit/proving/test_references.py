"""Outcomes and the intents that they name: told right from what little of a log is held."""

import asyncio
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from gateway.audit.proving.references import OpenOf
from gateway.audit.proving.verify import VerifyReport, verify_directory
from gateway.audit.writer import SegmentedAuditLog
from gateway.types import AuditRecord
from tests.gateway.audit.samples import record, running


pytestmark = pytest.mark.anyio
FEW_BYTES = 40_000
"""A ninth of what 1,000 requests take when all are held."""


def outcome(number: int, intent: str, **detail: str) -> AuditRecord:
    return msgspec.structs.replace(record(number, "outcome", intent), detail=detail)


async def ended(log: SegmentedAuditLog, requests: range) -> None:
    """Requests with an intent and an outcome each, all at once."""
    begun = await asyncio.gather(*(log.append(record(number)) for number in requests))
    ends = zip(requests, begun, strict=True)
    await asyncio.gather(*(log.append(outcome(each, got.leaf_hash)) for each, got in ends))


def verified(directory: Path) -> tuple[VerifyReport, int]:
    """What it reports, and how many bytes it held at its peak."""
    tracemalloc.start()
    try:
        return verify_directory(directory), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_a_log_of_any_length_is_verified_in_the_same_memory(tmp_path: Path) -> None:
    peaks = []
    for count in (200, 1200):
        directory = tmp_path / str(count)
        async with running(directory) as log:
            for first in range(0, count, 50):
                await ended(log, range(first, first + 50))
        verified(directory)  # What is made once is made by now.
        report, peak_bytes = verified(directory)
        assert (report.ok, report.outcomes, report.open_intents) == (True, count, 0)
        peaks.append(peak_bytes)
    assert peaks[1] - peaks[0] < FEW_BYTES


async def test_an_outcome_besides_another_is_told_whoever_wrote_it(tmp_path: Path) -> None:
    async with running(tmp_path, "w1") as log:
        first = await log.append(record(1))
        await log.append(outcome(1, first.leaf_hash))
        await log.append(outcome(1, first.leaf_hash))
    async with running(tmp_path, "w0") as log:
        # Before the log with its intent: it ends it, and the others come besides.
        await log.append(outcome(1, first.leaf_hash))
        await ended(log, range(2, 4))
    report = verify_directory(tmp_path)
    assert (report.bad, report.open_intents) == ((), 0)
    assert [note[:36] for note in report.notes] == ["2 outcomes are of requests that have"]


async def test_an_outcome_of_another_requests_intent_is_bad_also_when_that_has_ended(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as log:
        intent = await log.append(record(1))
        await log.append(outcome(1, intent.leaf_hash))
        wrong = await log.append(outcome(2, intent.leaf_hash, path="native_batch"))
    report = verify_directory(tmp_path)
    assert report.first_bad is not None
    assert report.first_bad.offset_bytes == wrong.offset_bytes
    assert "not of its request" in report.first_bad.reason
    assert report.notes == ()


async def test_an_outcome_that_names_what_is_no_intent_is_bad(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        intent = await log.append(record(1))
        ended = await log.append(outcome(1, intent.leaf_hash))
        wrong = await log.append(outcome(1, ended.leaf_hash))
    bad = verify_directory(tmp_path).first_bad
    assert bad is not None
    assert bad.offset_bytes == wrong.offset_bytes


async def test_an_intent_behind_a_workers_damage_does_not_count(tmp_path: Path) -> None:
    async with running(tmp_path, "w0") as log:
        damaged = await log.append(record(1))
        intent = await log.append(record(2))
    async with running(tmp_path, "w1") as log:
        await log.append(outcome(2, intent.leaf_hash))
    path = tmp_path / "w0" / "00000001.log"
    data = bytearray(path.read_bytes())
    data[damaged.offset_bytes + 40] ^= 1
    path.write_bytes(data)
    assert [bad.worker for bad in verify_directory(tmp_path).bad] == ["w0", "w1"]


async def test_open_intents_are_told_by_worker_since_the_oldest(tmp_path: Path) -> None:
    async with running(tmp_path, "w0") as log:
        await log.append(record(5))
        await log.append(record(4))
        await ended(log, range(6, 8))
    since_us = record(4).utc_us
    assert verify_directory(tmp_path).open_of == (OpenOf("w0", 2, since_us),)


async def test_an_outcome_says_that_another_worker_began(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.append(outcome(1, "ab" * 32, path="native_batch"))
        await log.append(outcome(2, "cd" * 32, worker="away"))
    report = verify_directory(tmp_path)
    assert report.bad == ()
    assert [note[:28] for note in report.notes] == ["2 outcomes are of intents in"]
