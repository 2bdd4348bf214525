"""Finds erasures that listed content but did not finish, and that a hold set since then forbids.

The list is applied again at each start, since a backup may have brought something back. It also
names what was about to be destroyed when the database failed; nobody has said that this is gone. A
hold set before the listing had been released by then; it is in force only in a restored database.
"""

from collections.abc import Collection
from typing import Final

from sqlalchemy import func, or_, select

from gateway.store.engine import Database
from gateway.store.erasure.attempts import covers
from gateway.store.erasure.waiting_cases import WAITS_FOR_MORE
from gateway.store.schema.custody import audit_holds, erasure_cases


_C, _H = erasure_cases.c, audit_holds.c
_AT_ONCE: Final = 500


async def held_back(database: Database, case_ids: Collection[str]) -> dict[str, int]:
    """Those of these cases that are not finished, and that a hold forbids now.

    Each with the time when the last such hold was set.
    """
    ids, found = sorted(case_ids), dict[str, int]()
    for at in range(0, len(ids), _AT_ONCE):
        query = (
            select(_C.id, func.max(_H.set_us))
            .join(audit_holds, (_H.organisation == _C.organisation) & covers())
            .where(
                _C.id.in_(ids[at : at + _AT_ONCE]),
                _H.released_by == "",
                or_(_C.state == "open", WAITS_FOR_MORE),
            )
            .group_by(_C.id)
        )
        async with database.reading() as connection:
            rows = (await connection.execute(query)).all()
        found.update({case_id: int(set_us) for case_id, set_us in rows})
    return found
