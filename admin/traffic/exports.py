"""Rows as CSV or JSON lines, written as they are read: a file of any length in little memory."""

import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from gateway.store.traffic.lists import Row


FORMS: Final = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}
_RULES: Final = "rules"
_COLUMNS: Final = (
    *(name for name in Row.__struct_fields__ if name != _RULES),
    *("time", "key_name", _RULES),
)
_UNKNOWN: Final = "?"
"""Of a request whose rules nobody knows; where none held there is nothing."""
_ROWS_AT_ONCE: Final = 200


NamesOfKeys = Callable[[Collection[str]], Awaitable[Mapping[str, str]]]


async def lines_of(
    rows: AsyncIterator[Row], form: str, names_of: NamesOfKeys
) -> AsyncIterator[bytes]:
    """The file in pieces; `form` is one of FORMS. Keys are named as they are called now."""
    piece: list[Row] = []
    if form == "csv":
        yield _csv([dict(zip(_COLUMNS, _COLUMNS, strict=True))])
    async for row in rows:
        piece.append(row)
        if len(piece) == _ROWS_AT_ONCE:
            yield _written(piece, form, await names_of({each.key_id for each in piece}))
            piece = []
    yield _written(piece, form, await names_of({each.key_id for each in piece}))


def _written(rows: list[Row], form: str, names: Mapping[str, str]) -> bytes:
    values = [values_of(row) | _readable(row, names) for row in rows]
    if form == "csv":
        return _csv([each | _in_cells(each) for each in values])
    return b"".join(msgspec.json.encode(each) + b"\n" for each in values)


def values_of(row: Row) -> dict[str, Any]:
    """A row's fields by name, with the route that follows from them."""
    found = {name: getattr(row, name) for name in row.__struct_fields__}
    return found | {"findings": dict(row.findings)}


def _readable(row: Row, names: Mapping[str, str]) -> dict[str, str]:
    """What a person reads of it: spreadsheets make a rounded number of the microseconds."""
    moment = datetime.fromtimestamp(row.utc_us // 1_000_000, UTC)
    time = f"{moment:%Y-%m-%dT%H:%M:%S}.{row.utc_us % 1_000_000:06}Z"
    return {"time": time, "key_name": names.get(row.key_id, "")}


def _in_cells(values: Mapping[str, Any]) -> dict[str, str]:
    """What has several values, as one text each."""
    findings, rules = values["findings"], values[_RULES]
    return {
        "findings": " ".join(f"{label}:{count}" for label, count in findings.items()),
        _RULES: _UNKNOWN if rules is None else "; ".join(rules),
    }


def _csv(rows: list[dict[str, Any]]) -> bytes:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, _COLUMNS)
    writer.writerows({name: _inert(value) for name, value in row.items()} for row in rows)
    return file.getvalue().encode("utf-8", "backslashreplace")


def _inert(value: object) -> object:
    """A text that a spreadsheet would take for a formula begins with an apostrophe instead."""
    is_formula = isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{value}" if is_formula else value
