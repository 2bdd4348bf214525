"""Whose content was erased as a whole, and when: what is kept in memories goes by it, too."""

from sqlalchemy import func, select

from gateway.store.engine import Database
from gateway.store.schema.custody import erasure_cases


async def erased_wholly_us(database: Database) -> dict[str, int]:
    """By organisation, when the last case was closed that was about all of it; raises NotReady."""
    columns = erasure_cases.c
    query = (
        select(columns.organisation, func.max(columns.closed_us))
        .where(columns.state == "done", columns.subject == "")
        .group_by(columns.organisation)
    )
    async with database.reading() as connection:
        rows = (await connection.execute(query)).all()
    return {organisation: int(closed_us) for organisation, closed_us in rows}
