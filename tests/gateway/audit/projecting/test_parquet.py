"""Parquet: every field a typed column, rows as in the JSON lines, bounded groups, no content."""

import io
import sys
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyarrow import parquet

import gateway.audit.projecting.parquet as exporter
from gateway.audit.projecting.export import export_records, segment_rows
from gateway.audit.projecting.parquet import ParquetUnavailable, write_parquet
from gateway.recorded_facts import RecordedFacts
from gateway.types import Attempt, AuditRecord, Usage
from tests.gateway.audit.samples import KEYS, record, running


pytestmark = pytest.mark.anyio
FULL = AuditRecord(
    stage="outcome",
    request_id="req_1",
    organisation="acme",
    utc_us=1_800_057_600_123_456,
    findings={"email": 2},
    candidates=("a", "b"),
    attempts=(
        Attempt("a", 200, "", 5, 3, upstream_ids=("req_a", "b")),
        Attempt("b", 0, "upstream_timeout", 9, 0),
    ),
    usage=Usage(100, 10, estimated=True),
    cost_microusd=2**63 + 5,
    detail={"dialect_losses": "3"},
    facts=RecordedFacts("0" * 32, 7, 0.5, "mid", max_output_tokens=4),
)


async def exported(lines: AsyncIterator[Mapping[str, Any]]) -> tuple[Any, int]:
    file = io.BytesIO()
    unreadable = await write_parquet(lines, file)
    return parquet.ParquetFile(io.BytesIO(file.getvalue())), unreadable


async def recorded(folder: Path, *records: AuditRecord) -> AsyncIterator[Mapping[str, Any]]:
    async with running(folder) as log:
        for each in records:
            await log.append(each, b"said")
    async for line in export_records(segment_rows(folder), directory=folder, keys=KEYS):
        yield line


async def test_every_field_of_a_record_is_a_typed_column(tmp_path: Path) -> None:
    found, unreadable = await exported(recorded(tmp_path, FULL))
    (row,) = found.read().to_pylist(maps_as_pydicts="strict")
    schema = found.schema_arrow

    assert unreadable == 0
    assert set(AuditRecord.__struct_fields__) - {"utc_us"} < set(schema.names)
    assert "utc_us" not in schema.names, "it is the column of times"
    assert row["ended_again"] is False
    assert schema.field("utc").type == pa.timestamp("us", tz="UTC")
    assert schema.field("cost_microusd").type == pa.int64()
    assert schema.field("usage").type.field("input_tokens").type == pa.int64()
    assert row["utc"] == datetime(2027, 1, 16, 0, 0, 0, 123456, UTC)
    assert row["findings"] == {"email": 2}
    assert row["candidates"] == ["a", "b"]
    assert [each["error"] for each in row["attempts"]] == ["", "upstream_timeout"]
    assert [each["upstream_ids"] for each in row["attempts"]] == [["req_a", "b"], None]
    assert (row["usage"]["input_tokens"], row["usage"]["estimated"]) == (100, True)
    assert row["cost_microusd"] == 2**63 - 1
    assert (row["facts"]["max_output_tokens"], row["facts"]["stream"]) == (4, False)


async def test_what_was_said_and_where_it_lies_is_no_column(tmp_path: Path) -> None:
    found, _ = await exported(recorded(tmp_path, FULL))

    assert not [name for name in found.schema_arrow.names if "content" in name]
    assert "said" not in str(found.read().to_pylist())


async def test_rows_are_those_of_the_json_lines_in_groups_of_a_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "GROUP_ROWS", 10)
    records = [replace(record(n), utc_us=n) for n in range(25)]
    found, unreadable = await exported(recorded(tmp_path / "a", *records))
    lines = [line async for line in recorded(tmp_path / "b", *records)]
    rows = found.read().to_pylist()

    sizes = [found.metadata.row_group(n).num_rows for n in range(found.num_row_groups)]
    assert sizes == [10, 10, 5]
    assert unreadable == 0
    for name in ("organisation", "sequence", "request_id", "endpoint", "stage"):
        assert [row[name] for row in rows] == [line[name] for line in lines], name


async def test_a_record_that_cannot_be_read_is_a_row_that_says_so(tmp_path: Path) -> None:
    async def lines() -> AsyncIterator[Mapping[str, Any]]:
        yield {"sequence": 1, "worker": "w0", "record_error": "the record is damaged"}
        async for line in recorded(tmp_path, FULL):
            yield line

    found, unreadable = await exported(lines())
    first, second = found.read().to_pylist()

    assert unreadable == 1
    assert (first["record_error"], first["organisation"]) == ("the record is damaged", None)
    assert (second["record_error"], second["organisation"]) == (None, "acme")


async def test_an_empty_log_is_a_file_with_columns_and_no_rows(tmp_path: Path) -> None:
    found, unreadable = await exported(recorded(tmp_path))

    assert unreadable == 0
    assert "organisation" in found.schema_arrow.names


async def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ParquetUnavailable, match=r"gatewright\[parquet\]"):
        await write_parquet(recorded(tmp_path), io.BytesIO())
