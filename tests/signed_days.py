"""Copies a log's signature to other days, as running workers would have left it."""

from collections.abc import Iterable

from sqlalchemy import select

from gateway.clock import DAY_US
from gateway.store.engine import Database
from gateway.store.schema.audit import audit_checkpoints


async def sign_on(
    database: Database, organisation: str, now_us: int, days_ago: Iterable[int]
) -> None:
    """Copy its signatures to that many days before `now_us`."""
    mine = select(audit_checkpoints).where(audit_checkpoints.c.organisation == organisation)
    async with database.writing() as connection:
        made = dict((await connection.execute(mine.limit(1))).mappings().one())
        rows = [made | {"signed_us": now_us - days * DAY_US} for days in days_ago]
        await connection.execute(audit_checkpoints.insert(), rows)
