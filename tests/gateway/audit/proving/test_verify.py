"""The verifier: no false alarm on a whole log, and every tampering found at its first record."""

import asyncio
import hashlib
import itertools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.entries import chain_hash, leaf_hash
from gateway.audit.frames import CONTENT, RECORD, encode_frame
from gateway.audit.proving.verify import (
    VerifyReport,
    parse_receipt,
    verify_directory,
    verify_receipt,
)
from gateway.audit.segments import (
    HASH_BYTES,
    LOCK_NAME,
    SegmentReader,
    segment_path,
    written_bytes,
)
from gateway.types import Receipt
from tests.gateway.audit.samples import LIMITS, journeys, record, running


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Receipt]]:
    """A log of two starts and several segments, and all its receipts."""
    directory = tmp_path_factory.mktemp("audit")

    async def write() -> list[Receipt]:
        limits = msgspec.structs.replace(LIMITS, segment_max_bytes=2500)
        receipts = []
        for start in range(2):
            async with running(directory, limits=limits) as log:
                receipts += await journeys(log, start * 6, 6)
        return receipts

    return directory, asyncio.run(write())


@pytest.fixture
def copy(original: tuple[Path, list[Receipt]], tmp_path: Path) -> tuple[Path, list[Receipt]]:
    shutil.copytree(original[0], tmp_path / "copy")
    return tmp_path / "copy", original[1]


def pieces(path: Path) -> list[bytes]:
    """The file's header, then one piece per record with its content."""
    data = path.read_bytes()
    with SegmentReader(path) as reader:
        cuts = [0, reader.start_bytes, *(stored.end_bytes for stored in reader.records())]
    return [data[start:end] for start, end in itertools.pairwise(cuts)]


def scratch(original: Path) -> Iterator[Path]:
    """A copy for one example of a property: fixtures are made once per test only."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(original, Path(folder) / "copy")
        yield Path(folder) / "copy"


def first_place(report: VerifyReport) -> tuple[int, int]:
    assert report.first_bad is not None
    return report.first_bad.segment, report.first_bad.offset_bytes


def test_a_whole_log_verifies_and_is_counted(original: tuple[Path, list[Receipt]]) -> None:
    directory, receipts = original
    report = verify_directory(directory, expected=receipts)
    assert report.ok
    assert report.segments == len(list(directory.rglob("*.log"))) >= 4
    assert (report.records, report.intents, report.outcomes, report.contents) == (24, 12, 12, 12)
    assert (report.open_intents, report.notes) == (0, ())


@given(data=st.data())
def test_every_flipped_bit_is_found(
    original: tuple[Path, list[Receipt]], data: st.DataObject
) -> None:
    directory, receipts = original
    number = data.draw(st.sampled_from(sorted({receipt.segment for receipt in receipts})))
    for copy in scratch(directory):
        path = segment_path(copy / "w0", number)
        changed = bytearray(path.read_bytes())
        bit = data.draw(st.integers(0, len(changed) * 8 - 1))
        changed[bit // 8] ^= 1 << bit % 8
        ends = [0]
        for piece in pieces(path):
            ends.append(ends[-1] + len(piece))
        path.write_bytes(changed)
        segment, offset = first_place(verify_directory(copy))
        assert segment == number
        assert offset <= bit // 8
        # The place it names is in the record that was touched, not in an earlier one.
        assert max(end for end in ends if end <= bit // 8) <= offset


@given(data=st.data())
def test_removing_repeating_or_swapping_records_is_found_where_it_happened(
    original: tuple[Path, list[Receipt]], data: st.DataObject
) -> None:
    directory, receipts = original
    number = data.draw(st.sampled_from(sorted({receipt.segment for receipt in receipts})))
    for copy in scratch(directory):
        path = segment_path(copy / "w0", number)
        header, *records = pieces(path)
        at = data.draw(st.integers(0, len(records) - 1))
        how = data.draw(st.sampled_from(["remove", "repeat", "swap"]))
        if how == "remove":
            changed = records[:at] + records[at + 1 :]
        elif how == "repeat":
            changed = records[: at + 1] + records[at:]
        else:
            other = (at + 1) % len(records)
            at, other = min(at, other), max(at, other)
            changed = list(records)
            changed[at], changed[other] = changed[other], changed[at]
        path.write_bytes(b"".join([header, *changed]))
        # A record cut off the very end is shown by receipts only, like any missing tail.
        report = verify_directory(copy, expected=receipts)
        if changed == records:
            assert report.ok
            continue
        segment, offset = first_place(report)
        start = len(header) + sum(map(len, records[: at + (how == "repeat")]))
        assert segment == number
        assert offset >= start - len(records[at])


def test_a_record_rewritten_with_fresh_checksums_breaks_the_chain(
    copy: tuple[Path, list[Receipt]],
) -> None:
    directory, _ = copy
    path = segment_path(directory / "w0", 1)
    header, first, *rest = pieces(path)
    with SegmentReader(path) as reader:
        stored = next(reader.records())
    assert stored.content is not None
    raw = stored.raw.replace(b"managed/small", b"managed/large")
    forged = encode_frame(CONTENT, stored.content) + encode_frame(RECORD, stored.chain + raw)
    assert len(forged) == len(first)
    path.write_bytes(b"".join([header, forged, *rest]))
    report = verify_directory(directory)
    assert first_place(report) == (1, stored.offset_bytes)
    assert "chain" in str(report.first_bad)


def test_a_record_that_is_no_text_is_named_though_its_hashes_are_right(
    copy: tuple[Path, list[Receipt]],
) -> None:
    directory, _ = copy
    path = segment_path(directory / "w0", 1)
    out = pieces(path)[:1]
    with SegmentReader(path) as reader:
        stored = next(reader.records())
        raw = stored.raw.replace(b"managed/small", b"managed/\xffmall")
        assert stored.content is not None
        out.append(encode_frame(CONTENT, stored.content))
        out.append(encode_frame(RECORD, chain_hash(reader.start_chain, leaf_hash(raw)) + raw))
    path.write_bytes(b"".join(out))
    report = verify_directory(directory)
    assert first_place(report) == (1, stored.offset_bytes)
    assert "not a record" in str(report.first_bad)


def test_a_fork_rewritten_to_the_segments_end_does_not_fit_the_next_segment(
    copy: tuple[Path, list[Receipt]],
) -> None:
    directory, receipts = copy
    path = segment_path(directory / "w0", 1)
    out = pieces(path)[:1]
    with SegmentReader(path) as reader:
        chain = reader.start_chain
        for stored in reader.records():
            raw = stored.raw.replace(b"managed/small", b"managed/large")
            chain = chain_hash(chain, leaf_hash(raw))
            if stored.content is not None:
                out.append(encode_frame(CONTENT, stored.content))
            out.append(encode_frame(RECORD, chain + raw))
    path.write_bytes(b"".join(out))
    bad = verify_directory(directory).first_bad
    assert bad is not None
    # The outcomes still name the old intents, which the fork no longer has.
    assert bad.segment == 2
    assert "does not continue" in bad.reason
    assert not verify_receipt(directory, str(receipts[0])).ok


def test_swapped_content_is_found(copy: tuple[Path, list[Receipt]]) -> None:
    directory, _ = copy
    path = segment_path(directory / "w0", 1)
    with SegmentReader(path) as reader:
        stored = next(reader.records())
    assert stored.content is not None
    data = path.read_bytes()
    other = encode_frame(CONTENT, bytes(len(stored.content)))
    path.write_bytes(data.replace(encode_frame(CONTENT, stored.content), other))
    report = verify_directory(directory)
    assert first_place(report) == (1, stored.offset_bytes)
    assert "content" in str(report.first_bad)


def test_a_missing_a_foreign_and_an_emptied_segment_are_found(
    copy: tuple[Path, list[Receipt]], tmp_path: Path
) -> None:
    directory, _ = copy
    second = segment_path(directory / "w0", 2)
    whole = second.read_bytes()
    second.unlink()
    assert first_place(verify_directory(directory)) == (2, 0)
    shutil.copyfile(segment_path(directory / "w0", 3), second)
    assert "another segment" in str(verify_directory(directory).first_bad)
    second.write_bytes(b"")
    assert first_place(verify_directory(directory)) == (2, 0)
    second.write_bytes(whole)
    assert verify_directory(directory).ok


def test_a_tail_cut_at_a_record_is_shown_by_any_receipt_for_it(
    copy: tuple[Path, list[Receipt]],
) -> None:
    directory, receipts = copy
    last = receipts[-1]
    path = segment_path(directory / "w0", last.segment)
    path.write_bytes(path.read_bytes()[: last.offset_bytes])
    assert verify_directory(directory).ok
    assert first_place(verify_directory(directory, expected=receipts)) == (
        last.segment,
        last.offset_bytes,
    )
    assert verify_receipt(directory, str(last)).reason == "no record begins there"


def test_a_tail_cut_inside_a_record_is_found_where_it_begins_though_a_segment_lies_before(
    copy: tuple[Path, list[Receipt]],
) -> None:
    directory, receipts = copy
    last = receipts[-1]
    path = segment_path(directory / "w0", last.segment)
    path.write_bytes(path.read_bytes()[: last.offset_bytes + 40])
    report = verify_directory(directory)
    assert last.segment > 1
    assert first_place(report) == (last.segment, last.offset_bytes)
    assert "cut off" in str(report.first_bad)


def test_records_planted_behind_a_sealed_segment_are_found(
    copy: tuple[Path, list[Receipt]],
) -> None:
    directory, _ = copy
    path = segment_path(directory / "w0", 1)
    end = path.stat().st_size
    path.write_bytes(path.read_bytes() + pieces(path)[1])
    segment, offset = first_place(verify_directory(directory))
    assert segment == 1
    assert offset >= end


@pytest.mark.anyio
async def test_an_outcome_must_name_an_intent_of_its_own_request(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        first = await log.append(record(1))
        await log.append(record(2))
        await log.append(record(1, "outcome", first.leaf_hash))
        wrong = await log.append(record(2, "outcome", first.leaf_hash))
        await log.append(record(3, "outcome", hashlib.sha256(b"").hexdigest()))
    report = verify_directory(tmp_path)
    assert first_place(report) == (1, wrong.offset_bytes)
    assert report.open_intents == 1


@pytest.mark.anyio
async def test_an_outcome_may_be_written_by_another_worker(tmp_path: Path) -> None:
    async with running(tmp_path, "w1") as other, running(tmp_path, "w0") as log:
        intent = await other.append(record(1))
        await log.append(record(1, "outcome", intent.leaf_hash))
    report = verify_directory(tmp_path)
    assert (report.ok, report.open_intents) == (True, 0)


def write_over_the_zeros(path: Path, data: bytes) -> None:
    """What a writer's call has come to; the file is as long as before."""
    with path.open("r+b") as file:
        file.seek(written_bytes(path))
        file.write(data)


@pytest.mark.anyio
async def test_zeros_in_place_of_a_record_are_damage_while_the_log_is_written(
    tmp_path: Path,
) -> None:
    """As after a power cut, but the power is on: what lies behind them was written later."""
    async with running(tmp_path) as log:
        receipts = [await log.append(record(number), bytes(900)) for number in range(6)]
        path = segment_path(tmp_path / "w0", 1)
        with path.open("r+b") as file:
            file.seek(receipts[3].offset_bytes)
            file.write(bytes(1024))
        bad = verify_directory(tmp_path).first_bad
        assert bad is not None
        assert (bad.segment, bad.offset_bytes) == (1, receipts[3].offset_bytes)
    bad = verify_directory(tmp_path).first_bad
    assert bad is not None
    assert receipts[2].offset_bytes < bad.offset_bytes <= receipts[3].offset_bytes
    assert "cut off" in bad.reason
    assert not verify_directory(tmp_path, expected=receipts).ok


@pytest.mark.anyio
async def test_a_log_that_is_being_written_verifies(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        receipts = await journeys(log, 0, 3)
        path = segment_path(tmp_path / "w0", 1)
        write_over_the_zeros(path, encode_frame(RECORD, b"x" * (HASH_BYTES + 9))[:30])
        segment_path(tmp_path / "w0", 2).write_bytes(b"\x00\x00")
        report = verify_directory(tmp_path, expected=receipts)
        assert (report.ok, report.records) == (True, 6)
        assert "is writing" in report.notes[0]


def test_a_receipt_brings_back_the_records_of_its_request(
    original: tuple[Path, list[Receipt]],
) -> None:
    directory, receipts = original
    for receipt in receipts:
        report = verify_receipt(directory, f" {receipt}\n")
        assert report.ok
        assert [found.stage for found in report.records] == ["intent", "outcome"]


def test_a_receipt_survives_damage_behind_it_but_not_before_it(
    copy: tuple[Path, list[Receipt]],
) -> None:
    directory, receipts = copy
    middle = receipts[8]
    path = segment_path(directory / "w0", middle.segment)
    changed = bytearray(path.read_bytes())
    changed[middle.offset_bytes + 70] ^= 1
    path.write_bytes(changed)
    before, after = (verify_receipt(directory, str(receipts[at])) for at in (5, 12))
    assert before.ok
    assert before.later_damage is not None
    assert not after.ok
    assert "damaged" in after.reason
    begun = receipts[5]
    misplaced = msgspec.structs.replace(begun, offset_bytes=begun.offset_bytes + 1)
    assert verify_receipt(directory, str(misplaced)).reason == "no record begins there"


@pytest.mark.parametrize(
    "text",
    ["", "w0.1.2", "w0.1.2.xyz", f"../w.1.2.{'a' * 64}", f"w0.x.2.{'a' * 64}", "w0.1.2.3.4"],
)
def test_what_is_no_receipt_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    assert parse_receipt(text) is None
    assert "no receipt" in verify_receipt(tmp_path, text).reason


def test_a_receipt_of_an_unknown_worker_or_with_another_hash_is_refused(
    original: tuple[Path, list[Receipt]],
) -> None:
    directory, receipts = original
    other = msgspec.structs.replace(receipts[0], leaf_hash="a" * 64)
    assert verify_receipt(directory, str(other)).reason == "the record there is another one"
    stranger = msgspec.structs.replace(receipts[0], worker="w9")
    assert not verify_receipt(directory, str(stranger)).ok
    bad = verify_directory(directory, expected=[stranger]).first_bad
    assert bad is not None
    assert bad.worker == "w9"
    bad = verify_directory(directory, expected=[*receipts[1:], other]).first_bad
    assert bad is not None
    assert (bad.offset_bytes, bad.reason) == (
        receipts[0].offset_bytes,
        "the record is not the one in its receipt",
    )


@pytest.mark.anyio
async def test_a_log_whose_lock_cannot_be_looked_at_is_not_called_cut_off(tmp_path: Path) -> None:
    """Whether what lies at its end is being written now is not known then."""
    async with running(tmp_path) as log:
        await log.append(record(1))
        write_over_the_zeros(segment_path(tmp_path / "w0", 1), b"half ")
        assert verify_directory(tmp_path).ok
        lock = tmp_path / "w0" / LOCK_NAME
        aside = lock.rename(lock.with_name("aside"))
        lock.symlink_to(lock.name)
        with pytest.raises(OSError, match="symbolic links"):
            verify_directory(tmp_path)
        lock.unlink()
        aside.rename(lock)
    assert verify_directory(tmp_path).ok
    write_over_the_zeros(segment_path(tmp_path / "w0", 1), b"half ")
    assert not verify_directory(tmp_path).ok
