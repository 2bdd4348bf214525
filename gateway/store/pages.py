"""Parts of lists: of one that grows at its new end, so that none is skipped, or of one counted."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct
from sqlalchemy import ColumnElement, RowMapping, Select, Table, and_, func, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.batches import PageOf


_Row = TypeVar("_Row")
_Other = TypeVar("_Other")


class Part(Struct, Generic[_Row], frozen=True):
    """Some rows of a list that may have ten thousand."""

    rows: tuple[_Row, ...]
    count: int
    """Of the whole list."""
    first: int = 0
    """How many come before these."""
    onward: str = ""
    """The key of the last of them, behind which the next part begins; empty where none is told."""

    @property
    def following(self) -> int:
        """Where the next part begins; 0 after the last one."""
        end = self.first + len(self.rows)
        return end if self.rows and end < self.count else 0

    def of(self, rows: Iterable[_Other]) -> "Part[_Other]":
        """The same part, with something else said of each row."""
        return Part(tuple(rows), self.count, self.first, self.onward)


class Order(Struct, frozen=True):
    """By which columns a list is ordered; the last of them makes each row's place its own."""

    columns: tuple[ColumnElement[Any], ...]
    falling: frozenset[int] = frozenset()
    """The places of those that go down."""

    def by(self) -> list[ColumnElement[Any]]:
        return [
            column.desc() if number in self.falling else column.asc()
            for number, column in enumerate(self.columns)
        ]

    def key_of(self, row: RowMapping) -> str:
        """Where a row stands, as a pager says it."""
        return _BETWEEN.join(str(row[str(column.key)]) for column in self.columns)

    def behind(self, key: str) -> ColumnElement[bool] | None:
        """What stands behind the row of this key, though it may be gone; None for what is none."""
        said = key.split(_BETWEEN, len(self.columns) - 1)
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


_BETWEEN: Final = "~"
_DIGITS_MAX: Final = 19


async def part_of(
    connection: AsyncConnection,
    query: Select[Any],
    first: int,
    limit: int,
    made: Callable[[RowMapping], _Row],
) -> Part[_Row]:
    """Some rows of an ordered query; a place beyond its end, as after a deed, is in the last part.

    With a limit of 0 only how many there are.
    """
    count = await _count(connection, query)
    if not limit or not count:
        return Part((), count)
    first = first if first < count else (count - 1) // limit * limit
    rows = (await connection.execute(query.limit(limit).offset(first))).mappings()
    return Part(tuple(made(row) for row in rows), count, first)


async def part_behind(
    connection: AsyncConnection,
    query: Select[Any],
    order: Order,
    place: tuple[int, str],
    limit: int,
    made: Callable[[RowMapping], _Row],
) -> Part[_Row]:
    """The same of a list with a hundred thousand rows: those before the part are not read.

    `place` is how many come before it, which is only said, and the key of the last of these. Where
    none is named, or nothing stands behind it any more, the rows before are counted off as ever.
    """
    first, key = place
    count = await _count(connection, query)
    if not limit or not count:
        return Part((), count)
    ordered = query.order_by(*order.by()).limit(limit)
    behind = order.behind(key) if key else None
    found: Sequence[RowMapping] = ()
    if behind is not None:
        found = (await connection.execute(ordered.where(behind))).mappings().all()
        # Rows may have come or gone meanwhile: what is said still adds up.
        first = max(0, min(first, count - len(found)))
    if not found:
        first = first if first < count else (count - 1) // limit * limit
        found = (await connection.execute(ordered.offset(first))).mappings().all()
    onward = order.key_of(found[-1]) if found else ""
    return Part(tuple(made(row) for row in found), count, first, onward)


async def _count(connection: AsyncConnection, query: Select[Any]) -> int:
    counting = query.with_only_columns(func.count(), maintain_column_froms=True).order_by(None)
    return int((await connection.execute(counting)).scalar_one())


async def count_by(
    connection: AsyncConnection, column: ColumnElement[str], *where: ColumnElement[bool]
) -> Counter[str]:
    """How many rows there are of each text of a column."""
    query = select(column, func.count()).where(*where).group_by(column)
    return Counter({text: int(count) for text, count in await connection.execute(query)})


async def page_of(
    connection: AsyncConnection, table: Table, seen: Sequence[ColumnElement[bool]], page: PageOf
) -> tuple[list[RowMapping], bool]:
    """Rows of a table with `created_us` and `id`, and whether there are more beyond them.

    An id that names no row that is seen gives an empty page, as it stands nowhere in the list.
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
    # What stands before a mark was read from the mark on: turn it round.
    return (rows if goes_up == page.oldest_first else rows[::-1]), has_more
