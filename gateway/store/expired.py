"""Deletes all expired rows, a few at a time, so that other changes wait only for those few."""

from sqlalchemy import ColumnElement, Table, delete, select

from gateway.store.engine import Database


async def delete_over(
    database: Database, table: Table, is_over: ColumnElement[bool], at_once: int
) -> int:
    """Delete rows; returns how many. The table has an `id`. Raises NotReady without a database.

    `at_once` is for SQLite, where one change holds up all others: a MiB takes it about 10 ms.
    """
    some = select(table.c.id).where(is_over).limit(at_once)
    gone, count = -1, 0
    while gone:
        async with database.reading() as connection:
            found = (await connection.execute(some)).scalars().all()
        if not found:
            return count
        async with database.writing() as connection:
            # What was put under a hold meanwhile is no longer over.
            these = delete(table).where(table.c.id.in_(found), is_over)
            gone = (await connection.execute(these)).rowcount
        count += gone
    return count
