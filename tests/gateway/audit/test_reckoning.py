"""What a crash left without an outcome is found in the last segments, and nothing else is."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from gateway.audit import reckoning
from gateway.audit.disk import Disk
from gateway.audit.open_intents import OPEN_NAME, OpenLine, keep_mark
from gateway.audit.reckoning import CRASHED, closing, open_intents
from gateway.audit.segments import SegmentReader, segment_path
from gateway.audit.writer import SegmentedAuditLog
from tests.gateway.audit.samples import LIMITS, record, running


pytestmark = pytest.mark.anyio
SHORT = msgspec.structs.replace(LIMITS, segment_max_bytes=2000)


async def written(folder: Path, count: int, answered: set[int]) -> int:
    """Intents, and outcomes of some of them, over many segments; the number of the next one."""
    async with running(folder, limits=SHORT) as log:
        for number in range(1, count + 1):
            receipt = await log.append(record(number), b"content")
            if number in answered:
                await log.append(record(number, "outcome", receipt.leaf_hash))
        return log.position[0] + 1


def found(folder: Path, below: int) -> list[str]:
    return sorted(each.record.request_id for each in open_intents(folder / "w0", below).requests)


async def test_only_intents_without_an_outcome_are_open(tmp_path: Path) -> None:
    below = await written(tmp_path, 12, {1, 2, 4, 5, 7, 8, 9, 10, 12})
    assert below > 4
    assert found(tmp_path, below) == ["req_11", "req_3", "req_6"]
    assert found(tmp_path, 1) == []


async def test_a_line_of_a_batch_is_left_to_its_batch(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        of_line = msgspec.structs.replace(record(1), detail={"batch": "b", "line": "7"})
        receipt = await log.append(of_line)
        await log.append(record(2))
        below = log.position[0] + 1
    assert found(tmp_path, below) == ["req_2"]
    spot = (receipt.segment, receipt.offset_bytes)
    assert open_intents(tmp_path / "w0", below).lines == {"req_1": OpenLine(spot, "b", 7)}


async def test_a_damaged_segment_hides_no_other(tmp_path: Path) -> None:
    below = await written(tmp_path, 12, set())
    path = segment_path(tmp_path / "w0", below - 2)
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 1
    path.write_bytes(raw)
    left = found(tmp_path, below)
    assert {"req_1", "req_12"} <= set(left)
    assert len(left) < 12


@contextmanager
def away(segment: Path) -> Iterator[None]:
    """A segment that cannot be read at this moment: neither gone nor damaged."""
    aside = segment.rename(segment.with_name("aside"))
    segment.mkdir()
    yield
    segment.rmdir()
    aside.rename(segment)


async def test_of_what_began_before_a_segment_that_cannot_be_read_nothing_is_told_yet(
    tmp_path: Path,
) -> None:
    """It may have ended there: what is unknown is not taken for open, nor for ended."""
    below = await written(tmp_path, 30, {1, 4, 7, 8, 12, 25})
    folder = tmp_path / "w0"
    everything = found(tmp_path, below)
    with away(segment_path(folder, 3)):
        left = open_intents(folder, below)
    certain = sorted(int(each.record.request_id.removeprefix("req_")) for each in left.requests)
    assert left.unread == (2, 3), "where the one before ends is not known either"
    numbers = sorted(int(name.removeprefix("req_")) for name in everything)
    assert 1 < len(certain) < len(numbers)
    assert certain == [number for number in numbers if number >= certain[0]]
    assert found(tmp_path, below) == everything
    assert open_intents(folder, below).unread == ()
    # What is gone for good is waited for by nobody.
    segment_path(folder, 3).unlink()
    assert open_intents(folder, below).unread == ()


async def test_an_intent_that_is_marked_and_cannot_be_read_is_waited_for(tmp_path: Path) -> None:
    async with running(tmp_path, limits=SHORT) as log:
        log.open.adopt({})
        await log.append(record(1))
        for number in range(2, 20):
            receipt = await log.append(record(number), b"content")
            await log.append(record(number, "outcome", receipt.leaf_hash))
        mark(log, tmp_path)
        await log.append(record(20))
        below = log.position[0] + 1
    folder = tmp_path / "w0"
    with away(segment_path(folder, 1)):
        left = open_intents(folder, below)
        assert [each.record.request_id for each in left.requests] == ["req_20"]
        assert left.unread == (1,)
    assert found(tmp_path, below) == ["req_1", "req_20"]


def mark(log: SegmentedAuditLog, folder: Path) -> None:
    found = log.open.mark(*log.position)
    assert found is not None
    keep_mark(folder / "w0", found, Disk())


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Segments that are gone through, and from where on."""
    begun: list[tuple[int, int]] = []

    class Watched(SegmentReader):
        def records(self, offset_bytes: int = 0):  # type: ignore[no-untyped-def]
            begun.append((self.header.segment, offset_bytes))
            return super().records(offset_bytes)

    monkeypatch.setattr(reckoning, "SegmentReader", Watched)
    return begun


async def test_an_intent_far_behind_is_found_and_little_is_read_for_it(
    tmp_path: Path, read: list[tuple[int, int]]
) -> None:
    async with running(tmp_path, limits=SHORT) as log:
        log.open.adopt({})
        waits = msgspec.structs.replace(record(2), detail={"batch": "b", "line": "1"})
        await log.append(record(1))
        await log.append(waits)
        for number in range(3, 90):
            receipt = await log.append(record(number), b"content")
            await log.append(record(number, "outcome", receipt.leaf_hash))
        await log.append(record(90))
        mark(log, tmp_path)
        marked = log.position
        receipt = await log.append(record(91))
        await log.append(record(92))
        await log.append(record(91, "outcome", receipt.leaf_hash))
        await log.append(record(90, "outcome"))
        below = log.position[0] + 1
    assert marked[0] > 20
    left = open_intents(tmp_path / "w0", below)
    assert [each.record.request_id for each in left.requests] == ["req_1", "req_92"]
    assert list(left.lines) == ["req_2"]
    assert read[0] == marked
    assert {segment for segment, _ in read} == set(range(marked[0], below))


async def test_without_a_mark_or_with_one_of_another_log_everything_is_read(
    tmp_path: Path, read: list[tuple[int, int]]
) -> None:
    below = await written(tmp_path, 40, set(range(2, 40)))
    everything = list(range(1, below))
    assert found(tmp_path, below) == ["req_1", "req_40"]
    assert [segment for segment, _ in read] == everything
    path = tmp_path / "w0" / OPEN_NAME
    for torn_or_ahead in (
        b'{"segment":1',
        b'{"segment":1,"offset_bytes":0,"open":{"\xff":[1,2]}}',
        b'{"segment":3,"offset_bytes":999999,"open":{}}',
    ):
        read.clear()
        path.write_bytes(torn_or_ahead)
        assert found(tmp_path, below) == ["req_1", "req_40"]
        assert [segment for segment, _ in read] == everything
    # The zeros behind a segment that was copied in use do not reach a mark.
    segment = segment_path(tmp_path / "w0", 3)
    written_to = segment.stat().st_size
    os.truncate(segment, written_to + 4096)
    path.write_bytes(b'{"segment":3,"offset_bytes":%d,"open":{}}' % (written_to + 1))
    read.clear()
    assert found(tmp_path, below) == ["req_1", "req_40"]
    assert [segment for segment, _ in read] == everything


async def test_nothing_is_marked_before_what_was_left_is_known(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.append(record(1))
        assert log.open.mark(*log.position) is None
        log.open.adopt({"req_0": OpenLine((1, 99), "b", 3)})
        first = log.open.mark(*log.position)
        assert first is not None
        assert sorted(first.open) == ["req_0", "req_1"]
        assert log.open.mark(*log.position) is None


async def test_what_is_closed_costs_what_was_set_aside_and_names_its_intent(
    tmp_path: Path,
) -> None:
    begun = msgspec.structs.replace(record(1), reserved_microusd=77, key_id="k", subject="s")
    async with running(tmp_path) as log:
        receipt = await log.append(begun)
        below = log.position[0] + 1
    (intent,) = open_intents(tmp_path / "w0", below).requests
    outcome = closing(intent, 5)
    assert (outcome.stage, outcome.status, outcome.error) == ("outcome", "incomplete", CRASHED)
    assert (outcome.cost_microusd, outcome.utc_us) == (77, 5)
    assert (outcome.intent, outcome.request_id) == (receipt.leaf_hash, "req_1")
    assert (outcome.organisation, outcome.key_id, outcome.subject) == ("acme", "k", "s")
