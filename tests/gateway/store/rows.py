"""Rows for tests to which most of their columns say nothing."""

from typing import Any

from sqlalchemy import Boolean, Float, Integer, LargeBinary, Table, insert


def filled(table: Table, **values: object) -> Any:
    """A row of a table; columns nobody cares for are empty."""
    blank = {column.name: _blank(column.type) for column in table.columns}
    return insert(table).values(blank | values)


def _blank(kind: object) -> object:
    if isinstance(kind, Boolean):
        return False
    if isinstance(kind, LargeBinary):
        return b""
    return 0 if isinstance(kind, Integer | Float) else ""
