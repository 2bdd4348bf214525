"""Which cases were carried out and wait for what was not there yet.

Their certificates say so, and these are long. One that says that all is there never says anything
else again, so a process reads each of those once.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select

from gateway.store.engine import Database
from gateway.store.schema.custody import erasure_cases


_C = erasure_cases.c
AT_ONCE: Final = 500
WAITS_FOR_MORE: Final = _C.certificate.contains('"kept_arriving":["', autoescape=True)
"""Of a case that was carried out, and of which something was not there yet."""


class WaitingCases:
    """Of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._settled: frozenset[str] = frozenset()
        """Those of which nothing is to come any more."""

    async def ids(self) -> Sequence[str]:
        """The longest waiting first."""
        done = select(_C.id).where(_C.state == "done").order_by(_C.closed_us, _C.id)
        waiting = WAITS_FOR_MORE & (_C.state == "done")
        async with self._database.reading() as connection:
            every = (await connection.execute(done)).scalars().all()
            unread = [each for each in every if each not in self._settled]
            if len(unread) <= AT_ONCE:
                # Of more, at a start, PostgreSQL would read every row for each few of them.
                waiting &= _C.id.in_(unread)
            query = select(_C.id).where(waiting)
            found = set((await connection.execute(query)).scalars()) if unread else set[str]()
        self._settled = frozenset(every).difference(found)
        return [each for each in unread if each in found]
