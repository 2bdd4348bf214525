"""Pages of lists: each is sought from the last row of the previous one, however long the list."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar
from urllib.parse import unquote

from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Label,
    RowMapping,
    Select,
    Table,
    and_,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.batches import PageOf


_Row = TypeVar("_Row")
_Other = TypeVar("_Other")


class Part(Struct, Generic[_Row], frozen=True):
    """Some rows of a list that may be very long."""

    rows: tuple[_Row, ...]
    count: int
    """The length of the complete list."""
    first: int = 0
    """How many rows come before these."""
    onward: str = ""
    """The key of the last row, after which the next part begins; empty if it is not given."""

    @property
    def following(self) -> int:
        """Where the next part begins; 0 after the last one."""
        end = self.first + len(self.rows)
        return end if self.rows and end < self.count else 0

    def of(self, rows: Iterable[_Other]) -> "Part[_Other]":
        """The same part, with its rows turned into something else."""
        return Part(tuple(rows), self.count, self.first, self.onward)


class Order(Struct, frozen=True):
    """The columns by which a list is ordered; the last one makes the order unique.

    Expressions that are not columns of the table are labelled, and read along with each row.
    """

    columns: tuple[ColumnElement[Any], ...]
    falling: frozenset[int] = frozenset()
    """The positions of those in descending order."""

    def by(self) -> list[ColumnElement[Any]]:
        return [
            column.desc() if number in self.falling else column.asc()
            for number, column in enumerate(self.columns)
        ]

    def key_of(self, row: RowMapping) -> str:
        """A row's place, as a pager writes it."""
        return _BETWEEN.join(_written(str(row[str(column.key)])) for column in self.columns)

    def reading(self, query: Select[Any]) -> Select[Any]:
        """The query in this order, with everything that a row's key consists of."""
        more = [column for column in self.columns if isinstance(column, Label)]
        return query.add_columns(*more).order_by(*self.by())

    def behind(self, key: str) -> ColumnElement[bool] | None:
        """The rows after this key's row, even if that is gone; None if it is not a key."""
        said = [unquote(each) for each in key.split(_BETWEEN)]
        if len(said) != len(self.columns):
            return None
        values: list[Any] = []
        for column, text in zip(self.columns, said, strict=True):
            is_number = column.type.python_type is int
            if is_number and not (text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX):
                return None
            values.append(int(text) if is_number else text)
        ways = [
            and_(
                *(self.columns[at] == values[at] for at in range(number)),
                column < values[number] if number in self.falling else column > values[number],
            )
            for number, column in enumerate(self.columns)
        ]
        return or_(*ways)


START: Final = (0, "")
"""The place of a list's first part."""
AT_ONCE: Final = 100
"""Rows that are opened before other tasks get a turn of the loop, of a few milliseconds."""
_BETWEEN: Final = "~"
_DIGITS_MAX: Final = 19


def _written(text: str) -> str:
    """The text without the sign that separates two parts of a key."""
    return text.replace("%", "%25").replace(_BETWEEN, "%7E")


async def part_behind(
    connection: AsyncConnection,
    query: Select[Any],
    order: Order,
    place: tuple[int, str],
    limit: int,
    made: Callable[[RowMapping], _Row],
) -> Part[_Row]:
    """Some rows of a query in an order; with a limit of 0 only how many there are.

    `place` is how many come before it, which is only reported, and the key of the last of these:
    rows before the part are not read, even in a list of a hundred thousand. Without a key, or if
    nothing comes after it any more, the rows before are counted off; a place beyond the end, as
    after a deletion, gives the last part.
    """
    first, key = place
    count = await count_of(connection, query)
    if not limit or not count:
        return Part((), count)
    ordered = order.reading(query)
    behind = order.behind(key) if key else None
    found: Sequence[RowMapping] = ()
    if behind is not None:
        asked = await connection.execute(ordered.where(behind).limit(limit + 1))
        rows = asked.mappings().all()
        found, is_more = rows[:limit], len(rows) > limit
        # Rows may have come or gone meanwhile: the reported place still leads to the end.
        left = count - len(found)
        first = max(0, min(first, left - 1)) if is_more else left
    if not found:
        first = first if first < count else (count - 1) // limit * limit
        found = (await connection.execute(ordered.limit(limit).offset(first))).mappings().all()
    onward = order.key_of(found[-1]) if found else ""
    return Part(tuple(made(row) for row in found), count, first, onward)


async def count_of(connection: AsyncConnection, query: Select[Any]) -> int:
    """How many rows a query finds."""
    counting = query.with_only_columns(func.count(), maintain_column_froms=True).order_by(None)
    return int((await connection.execute(counting)).scalar_one())


async def count_by(
    connection: AsyncConnection, column: ColumnElement[str], *where: ColumnElement[bool]
) -> Counter[str]:
    """How many rows there are for each text in a column."""
    query = select(column, func.count()).where(*where).group_by(column)
    return Counter({text: int(count) for text, count in await connection.execute(query)})


async def opened(rows: Sequence[RowMapping], made: Callable[[RowMapping], _Row]) -> list[_Row]:
    """Convert rows that have something sealed, letting other tasks run in between."""
    found: list[_Row] = []
    for first in range(0, len(rows), AT_ONCE):
        found += map(made, rows[first : first + AT_ONCE])
        await asyncio.sleep(0)
    return found


async def page_of(
    connection: AsyncConnection, table: Table, seen: Sequence[ColumnElement[bool]], page: PageOf
) -> tuple[list[RowMapping], bool]:
    """Rows of a table with `created_us` and `id`, and whether there are more beyond them.

    An id that names no visible row gives an empty page, since it has no place in the list.
    """
    place = tuple_(table.c.created_us, table.c.id)
    order = [table.c.created_us, table.c.id]
    goes_up = page.oldest_first
    query = select(table).where(*seen)
    named = page.after or page.before
    if named:
        mark = select(table.c.created_us, table.c.id).where(table.c.id == named, *seen)
        row = (await connection.execute(mark)).one_or_none()
        if row is None:
            return [], False
        goes_up = page.oldest_first == bool(page.after)
        beyond = tuple_(*row)
        query = query.where(place > beyond if goes_up else place < beyond)
    ordered = [column.asc() if goes_up else column.desc() for column in order]
    limited = query.order_by(*ordered).limit(page.limit + 1)
    rows = list((await connection.execute(limited)).mappings())
    has_more, rows = len(rows) > page.limit, rows[: page.limit]
    # Rows before a mark were read starting from it, so they are reversed.
    return (rows if goes_up == page.oldest_first else rows[::-1]), has_more
