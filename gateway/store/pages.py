"""Pages of a list that grows at its new end: by time of making and id, so that none is skipped."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, RowMapping, Table, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.batches import PageOf


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
