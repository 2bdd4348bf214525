"""Counts what depends on each pepper: a key's secret was digested under the pepper of its day."""

from collections import Counter
from typing import Final

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.schema.custody import audit_holds
from gateway.store.schema.tables import virtual_keys


SECRETS: Final = "live virtual keys"
FORMER: Final = "former secrets of live virtual keys"
_C: Final = virtual_keys.c


async def hanging_on_peppers(connection: AsyncConnection, now_us: int) -> dict[int, Counter[str]]:
    """By version: keys that are valid now, and replaced secrets of theirs that still are."""
    has_secret = _C.workload.is_(None)
    is_unexpired = or_(_C.expires_us.is_(None), _C.expires_us > now_us)
    is_live = has_secret & _C.revoked_us.is_(None) & is_unexpired
    queries = {
        SECRETS: (_C.pepper_version, is_live),
        FORMER: (_C.former_pepper_version, is_live & (_C.former_until_us > now_us)),
    }
    found: dict[int, Counter[str]] = {}
    for name, (version, is_meant) in queries.items():
        query = select(version, func.count()).where(is_meant, version.is_not(None))
        for number, count in (await connection.execute(query.group_by(version))).all():
            found.setdefault(number, Counter())[name] = count
    return found


async def holds_of_end_users(connection: AsyncConnection) -> int:
    """Holds in force for one end user, known by a digest under the oldest pepper."""
    columns = audit_holds.c
    query = select(func.count()).where(columns.subject != "", columns.released_by == "")
    return int((await connection.execute(query)).scalar_one())
