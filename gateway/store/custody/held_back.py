"""What an erasure listed before it went, and did not come to: a hold that was set since goes first.

The list is applied again at each start, since a backup may have brought something back. It has also
what was about to go when the database failed; nobody has said that this is gone.
"""

from collections.abc import Collection
from typing import Final

from sqlalchemy import or_, select

from gateway.store.custody.erasure_attempts import covers
from gateway.store.custody.waiting_cases import WAITS_FOR_MORE
from gateway.store.engine import Database
from gateway.store.schema.custody import audit_holds, erasure_cases


_C, _H = erasure_cases.c, audit_holds.c
_AT_ONCE: Final = 500


async def held_back(database: Database, case_ids: Collection[str]) -> frozenset[str]:
    """Those of these cases that are not at their end, and that a hold forbids now."""
    ids, found = sorted(case_ids), set[str]()
    for at in range(0, len(ids), _AT_ONCE):
        query = (
            select(_C.id)
            .join(audit_holds, (_H.organisation == _C.organisation) & covers())
            .where(
                _C.id.in_(ids[at : at + _AT_ONCE]),
                _H.released_by == "",
                or_(_C.state == "open", WAITS_FOR_MORE),
            )
        )
        async with database.reading() as connection:
            found.update((await connection.execute(query)).scalars())
    return frozenset(found)
