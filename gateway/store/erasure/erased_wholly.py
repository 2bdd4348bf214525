"""Organisations whose content was erased completely, and when; in-memory caches follow it too."""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import func, select

from gateway.store.engine import Database
from gateway.store.erasure.waiting_cases import IS_DONE
from gateway.store.schema.custody import erasure_cases


_C = erasure_cases.c
_NEWEST: Final = select(func.max(_C.closed_revision)).where(IS_DONE)


class ErasedWholly:
    """What one process has read from one database: each look begins where the last one ended."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._read_until = 0
        """By the counter of changes; 0 before the first look."""
        self._times_us: dict[str, int] = {}

    async def times_us(self) -> Mapping[str, int]:
        """By organisation, when the last case about all of its content was closed.

        Raises:
            NotReady: the database does not answer.
        """
        columns = _C.organisation, func.max(_C.closed_us)
        whole = select(*columns).where(IS_DONE, _C.subject == "").group_by(_C.organisation)
        async with self._database.reading() as connection:
            # Read first: what is closed meanwhile has a greater number, and is found by the next
            # look.
            newest = (await connection.execute(_NEWEST)).scalar_one_or_none() or 0
            # A counter that went back comes from a backup.
            since = self._read_until if self._read_until <= newest else 0
            # Each uses the index; an older program told nobody when it closed a case.
            for which in (_C.closed_revision == 0, _C.closed_revision > since):
                for organisation, at_us in (await connection.execute(whole.where(which))).all():
                    before_us = self._times_us.get(organisation, 0)
                    self._times_us[organisation] = max(int(at_us), before_us)
        self._read_until = newest
        return self._times_us
