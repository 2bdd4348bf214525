"""Export: flat lines, numbered like the projection, content only with the master key."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gateway.audit.content_keys.keys import KEY_ELSEWHERE, KEYS_NAME, read_keys
from gateway.audit.projecting.export import export_records, segment_rows
from gateway.audit.projecting.projection import SequencedRecord
from gateway.audit.segments import segment_path
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from tests.gateway.audit.samples import KEYS, journeys, record, running
from tests.gateway.audit.test_reckoning import away


pytestmark = pytest.mark.anyio


async def lines(directory: Path, keys: MasterKey | None = None) -> list[dict[str, object]]:
    rows = export_records(segment_rows(directory), directory=directory, keys=keys)
    return [line async for line in rows]


async def test_lines_are_flat_json_with_numbers_places_and_all_fields(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        receipts = await journeys(log, 1, 2)
    exported = await lines(tmp_path)
    assert [line["sequence"] for line in exported] == [1, 2, 3, 4]
    assert [line["leaf_hash"] for line in exported] == [r.leaf_hash for r in receipts]
    first, second = exported[:2]
    assert {"stage", "request_id", "target", "decision", "usage", "cost_microusd"} <= first.keys()
    assert (first["stage"], second["stage"]) == ("intent", "outcome")
    assert "content" not in first
    assert json.loads(msgspec.json.encode(second))["usage"]["input_tokens"] == 1


async def test_numbers_are_dense_in_each_organisation(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await journeys(log, 0, 6)
    numbers: dict[object, list[object]] = {}
    for line in await lines(tmp_path):
        numbers.setdefault(line["organisation"], []).append(line["sequence"])
    assert numbers == {"globex": [1, 2, 3, 4], "acme": [1, 2, 3, 4, 5, 6, 7, 8]}


async def test_the_master_key_opens_the_content(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.append(record(1), "grüße".encode())
        await log.append(record(2), b"\xff\x00")
        await log.append(record(4), b"")
    contents = [line["content"] for line in await lines(tmp_path, KEYS)]
    assert contents == ["grüße", "\\xff\x00", ""]


async def test_another_master_key_or_a_destroyed_data_key_opens_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.append(record(1), b"prompt")
    (line,) = await lines(tmp_path, MasterKey(Secret(bytes(32))))
    assert "content" not in line
    assert "another master key" in str(line["content_error"])
    (tmp_path / "w0" / KEYS_NAME).write_bytes(b"")
    (line,) = await lines(tmp_path, KEYS)
    assert line["content_error"] == "the content's key was destroyed"


async def test_content_that_cannot_be_found_now_is_told_from_content_that_is_shut_for_good(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as log:
        await log.append(record(1), b"prompt")
    rows = [row async for row in segment_rows(tmp_path)]

    async def said() -> object:
        async def each() -> AsyncIterator[SequencedRecord]:
            for row in rows:
                yield row

        (line,) = [line async for line in export_records(each(), directory=tmp_path, keys=KEYS)]
        return line["content_error"]

    with away(segment_path(tmp_path / "w0", 1)):
        assert await said() == "the content's segment cannot be read"
        (tmp_path / "w0" / KEYS_NAME).write_bytes(b"")
        assert await said() == "the content's key was destroyed"


async def test_content_whose_key_file_is_not_here_is_not_called_destroyed(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.append(record(1), b"prompt")
        await log.append(record(2))
    (tmp_path / "w0" / KEYS_NAME).unlink()
    with_content, without = await lines(tmp_path, KEYS)
    assert str(with_content["content_error"]).startswith(KEY_ELSEWHERE)
    assert "content" not in with_content
    assert not {"content", "content_error"} & without.keys()


async def test_a_key_line_moved_to_another_organisation_opens_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.append(record(1), b"prompt")
    path = tmp_path / "w0" / KEYS_NAME
    path.write_bytes(path.read_bytes().replace(b'"acme"', b'"evil"'))
    (line,) = await lines(tmp_path, KEYS)
    assert "content_error" in line


async def test_each_organisation_day_and_start_has_a_data_key_of_its_own(tmp_path: Path) -> None:
    for start in range(2):
        async with running(tmp_path) as log:
            await journeys(log, start * 6, 6)
    keys = read_keys(tmp_path / "w0")
    assert sorted(key.organisation for key in keys) == ["acme", "acme", "globex", "globex"]
    assert len({key.key for key in keys}) == len({key.wrapped for key in keys}) == 4


async def test_a_key_line_cut_off_by_a_crash_spoils_no_other(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.append(record(1), b"one")
    path = tmp_path / "w0" / KEYS_NAME
    path.write_bytes(path.read_bytes() + b'\n{"key":"0123')
    async with running(tmp_path) as log:
        await log.append(record(2), b"two")
    assert [line["content"] for line in await lines(tmp_path, KEYS)] == ["one", "two"]
