"""Exports records as Parquet for analysts: typed columns, one row per record, never content.

The schema is derived from `AuditRecord`, so that a new field cannot be forgotten. Rows are written
in groups of a bounded size: an export of any length holds one group in memory. It needs the extra
`parquet` (pyarrow), which is imported when an export begins.
"""

from collections.abc import AsyncIterator, Mapping
from typing import IO, Any

import msgspec
from msgspec import inspect, structs

from gateway.recorded_facts import RecordedFacts
from gateway.types import AuditRecord


GROUP_ROWS = 5000
_INT64_MAX = 2**63 - 1
_NO_CONTENT = ("content", "content_error", "content_reference")
"""Fields of an exported line that are left out: the content, and its place."""
_TIME = "utc"
_AGAIN = "ended_again"
"""True for an outcome that is not its request's first: sums leave it out."""


class ParquetUnavailable(Exception):
    """The extra `parquet` is not installed."""


async def write_parquet(lines: AsyncIterator[Mapping[str, Any]], file: IO[bytes]) -> int:
    """Write exported lines (`gateway.audit.projecting.export.export_records`) to a binary file.

    A record that cannot be read is a row with `record_error`, so that an export never stops
    half-way. Returns how many these are.

    Raises:
        ParquetUnavailable: pyarrow is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra: 120 MiB, and half a second
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise ParquetUnavailable("install the extra: pip install 'gatewright[parquet]'") from error
    schema = _schema(pa)
    unreadable = 0
    group: list[dict[str, Any]] = []
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:

        def flush() -> None:
            writer.write_batch(pa.RecordBatch.from_pylist(group, schema=schema))
            group.clear()

        async for line in lines:
            group.append(_row(line))
            unreadable += "record_error" in line
            if len(group) >= GROUP_ROWS:
                flush()
        if group:
            flush()
    return unreadable


def _schema(pa: Any) -> Any:
    columns = [
        ("sequence", pa.int64()),
        ("worker", pa.string()),
        ("segment", pa.int64()),
        ("offset_bytes", pa.int64()),
        ("leaf_hash", pa.string()),
        (_TIME, pa.timestamp("us", tz="UTC")),
        ("record_error", pa.string()),
        (_AGAIN, pa.bool_()),
    ]
    fields = [field for field in _fields(AuditRecord) if field.name != "utc_us"]
    return pa.schema([*columns, *((field.name, _column(field.type, pa)) for field in fields)])


def _fields(kind: type) -> tuple[inspect.Field, ...]:
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    return described.fields


def _column(kind: inspect.Type, pa: Any) -> Any:
    """The column type of a field of a record."""
    match kind:
        case inspect.BoolType():
            return pa.bool_()
        case inspect.IntType():
            return pa.int64()
        case inspect.FloatType():
            return pa.float64()
        case inspect.StrType() | inspect.LiteralType():
            return pa.string()
        case inspect.VarTupleType(item_type=item):
            return pa.list_(_column(item, pa))
        case inspect.DictType(key_type=key, value_type=value):
            return pa.map_(_column(key, pa), _column(value, pa))
        case inspect.UnionType(types=types):
            (present,) = [each for each in types if not isinstance(each, inspect.NoneType)]
            return _column(present, pa)
        case inspect.StructType(fields=fields):
            return pa.struct([(field.name, _column(field.type, pa)) for field in fields])
        case _:
            raise TypeError(f"no column for {kind}")


def _row(line: Mapping[str, Any]) -> dict[str, Any]:
    row = {name: _value(value) for name, value in line.items() if name not in _NO_CONTENT}
    row[_TIME] = row.pop("utc_us", None)
    row.setdefault(_AGAIN, False)
    if line.get("facts"):
        # JSON leaves out defaults; a column has them.
        row["facts"] = structs.asdict(msgspec.convert(line["facts"], RecordedFacts))
    return row


def _value(value: object) -> object:
    """Numbers beyond 64 bits, which JSON allows, become the largest possible one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-_INT64_MAX, min(_INT64_MAX, value))
    if isinstance(value, Mapping):
        return {name: _value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_value(each) for each in value]
    return value
