"""Segments made by hand: whatever is out of place is named, however well its checksums fit."""

import hashlib
from pathlib import Path

import msgspec
import pytest

from gateway.audit.entries import (
    ContentReference,
    chain_hash,
    encode_record,
    encode_reference,
    entry_bytes,
    leaf_hash,
)
from gateway.audit.frames import CONTENT, HEADER, RECORD, encode_frame
from gateway.audit.proving.verify import verify_directory
from gateway.audit.segments import (
    FORMAT,
    GENESIS,
    SegmentHeader,
    encode_header,
    list_segments,
    list_workers,
    read_entries,
    segment_path,
)
from tests.gateway.audit.samples import journeys, record, running
from tests.gateway.audit.test_reckoning import away


ENTRY = entry_bytes(encode_record(record(1))[1])
CHANGES = [
    ({"format": "gatewright-audit/2"}, "unknown format"),
    ({"worker": "w1"}, "another segment"),
    ({"segment": 2}, "another segment"),
    ({"previous_chain": "ab" * 32}, "does not continue"),
    ({"previous_chain": "ab"}, "wrong length"),
    ({"previous_chain": "no hex"}, "cannot be read"),
    ({"previous_end_bytes": 5}, "does not continue"),
]


def header(**changes: object) -> SegmentHeader:
    plain = SegmentHeader(FORMAT, "w0", 1, GENESIS.hex(), 0, 1_800_000_000_000_000)
    return msgspec.structs.replace(plain, **changes)


def reason(directory: Path, *frames: bytes, first: bytes = b"") -> str:
    """What the verifier says of a log whose only segment has these frames behind its header."""
    (directory / "w0").mkdir()
    data = (first or encode_header(header())[0]) + b"".join(frames)
    segment_path(directory / "w0", 1).write_bytes(data)
    bad = verify_directory(directory).first_bad
    return "" if bad is None else bad.reason


def record_frame(entry: bytes) -> bytes:
    chain = chain_hash(encode_header(header())[1], leaf_hash(entry))
    return encode_frame(RECORD, chain + entry)


def with_content(content: bytes) -> bytes:
    reference = ContentReference("k", len(content), sha256=hashlib.sha256(content).hexdigest())
    return entry_bytes(encode_record(record(1))[1], encode_reference(reference))


def test_what_is_made_by_hand_correctly_verifies(tmp_path: Path) -> None:
    content = encode_frame(CONTENT, b"sealed")
    assert reason(tmp_path, content, record_frame(with_content(b"sealed"))) == ""


@pytest.mark.parametrize(("changes", "expected"), CHANGES)
def test_a_header_that_does_not_fit_its_place_is_refused(
    tmp_path: Path, changes: dict[str, object], expected: str
) -> None:
    raw = encode_frame(HEADER, msgspec.json.encode(header(**changes)))
    assert expected in reason(tmp_path, first=raw)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [(b"{}", "cannot be read"), (b"[", "cannot be read")],
)
def test_a_header_that_says_something_else_is_refused(
    tmp_path: Path, payload: bytes, expected: str
) -> None:
    assert expected in reason(tmp_path, first=encode_frame(HEADER, payload))


def test_a_segment_that_begins_with_a_record_is_refused(tmp_path: Path) -> None:
    assert "begin with a header" in reason(tmp_path, first=record_frame(ENTRY))


@pytest.mark.parametrize("entry", [b"{}", b"no JSON", b'{"record":{"stage":"other"}}'])
def test_a_chained_record_that_is_none_is_refused(tmp_path: Path, entry: bytes) -> None:
    assert "not a record" in reason(tmp_path, record_frame(entry))


def test_frames_out_of_place_are_refused(tmp_path: Path) -> None:
    content, plain = encode_frame(CONTENT, b"sealed"), record_frame(ENTRY)
    wrong = {
        "content of nobody": [content, plain],
        "content missing": [record_frame(with_content(b"sealed"))],
        "two contents": [content, content, record_frame(with_content(b"sealed"))],
        "a second header": [encode_header(header())[0]],
        "a record without a chain": [encode_frame(RECORD, bytes(32))],
        "another content": [
            encode_frame(CONTENT, b"other!"),
            record_frame(with_content(b"sealed")),
        ],
    }
    for name, frames in wrong.items():
        folder = tmp_path / name
        folder.mkdir()
        assert reason(folder, *frames), name


def test_only_folders_and_files_of_ours_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "w0").mkdir()
    (tmp_path / "Not-Ours").mkdir()
    (tmp_path / "w1").write_text("a file")
    (tmp_path / "w0" / "00000001.log.bak").write_text("")
    (tmp_path / "w0" / "1.log").write_text("")
    assert list_workers(tmp_path) == ["w0"]
    assert list_segments(tmp_path / "w0") == []
    report = verify_directory(tmp_path)
    assert (report.ok, report.workers, report.records) == (True, 1, 0)


@pytest.mark.anyio
async def test_strictly_read_only_what_is_gone_or_damaged_is_left_out(tmp_path: Path) -> None:
    receipts = []
    for _ in range(2):
        async with running(tmp_path) as log:
            receipts += await journeys(log, 1, 1)
    places = [(each.worker, each.segment, each.offset_bytes) for each in receipts]
    first, second = (segment_path(tmp_path / "w0", number) for number in (1, 2))
    assert list(read_entries(tmp_path, places, strict=True)) == places
    with away(first):
        with pytest.raises(IsADirectoryError):
            read_entries(tmp_path, places, strict=True)
        unread: dict[tuple[str, int], OSError] = {}
        assert list(read_entries(tmp_path, places, away=unread)) == places[2:]
        assert list(unread) == [("w0", 1)]
        assert list(read_entries(tmp_path, places)) == places[2:]
    raw = bytearray(second.read_bytes())
    raw[places[2][2] + 40] ^= 1
    second.write_bytes(raw)
    first.unlink()
    assert list(read_entries(tmp_path, places, strict=True)) == places[3:]
