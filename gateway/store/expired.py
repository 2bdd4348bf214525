"""Deletes all expired rows, a few at a time, so that other changes wait only for those few."""

from sqlalchemy import ColumnElement, Table, delete, select

from gateway.store.engine import Database


async def delete_over(
    database: Database, table: Table, is_over: ColumnElement[bool], at_once: int
) -> int:
    """How many rows went; the table has an `id`. Raises NotReady where the database is away.

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
            # What is held since then is not over any more.
            these = delete(table).where(table.c.id.in_(found), is_over)
            gone = (await connection.execute(these)).rowcount
        count += gone
    return count
