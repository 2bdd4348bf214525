"""Reads from the database how far erasures have come, and notes which are complete everywhere."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from sqlalchemy import bindparam, select, update

from gateway.clock import Clock
from gateway.store.custody.audit_folders import all_folders
from gateway.store.custody.elsewhere import awaited_workers, retired_workers
from gateway.store.engine import Database
from gateway.store.erasure.cases import ErasureCase
from gateway.store.erasure.folder_reports import FolderReports
from gateway.store.erasure.outstanding import Reach, reach_of
from gateway.store.erasure.waiting_cases import IS_UNREACHED, WaitingCases
from gateway.store.schema.custody import erasure_cases


_C = erasure_cases.c


class Unreached(Struct, frozen=True):
    """Which folders and workers a case that was carried out still waits for."""

    id: str
    organisation: str
    closed_us: int
    closed_revision: int
    awaited: str


class ErasureReach:
    """Tells how far all cases in one database have come."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._reports = FolderReports(database, clock)
        self._waiting = WaitingCases(database)

    async def of(self, cases: Sequence[ErasureCase]) -> dict[str, Reach]:
        """By id, how far each case that was carried out has come."""
        return await self._of([each for each in cases if each.state == "done"])

    async def note_reached(self) -> int:
        """Note which cases are complete; returns when the oldest of the others was closed.

        A case that waits for content still arriving counts as one of the others. 0 without any.
        """
        columns = [_C[name] for name in Unreached.__struct_fields__]
        oldest = (await self._waiting.ids())[:1]
        async with self._database.reading() as connection:
            query = select(*columns).where(IS_UNREACHED).order_by(_C.closed_us)
            rows = (await connection.execute(query)).all()
            late = select(_C.closed_us).where(_C.id.in_(oldest))
            late_us = (await connection.execute(late)).scalars().all()
        cases = [Unreached(*row) for row in rows]
        await self._note_awaited([each for each in cases if not each.awaited])
        reached = await self._of(cases, only_state=True)
        over = [{"case": each} for each, reach in reached.items() if reach.is_complete]
        if over:
            noted = update(erasure_cases).where(_C.id == bindparam("case"), _C.reached_us == 0)
            async with self._database.writing() as connection:
                await connection.execute(noted.values(reached_us=self._clock.utc_us()), over)
        waiting = [each.closed_us for each in cases if not reached[each.id].is_complete]
        return min([*waiting, *late_us], default=0)

    async def _of(
        self, cases: Sequence[ErasureCase | Unreached], *, only_state: bool = False
    ) -> dict[str, Reach]:
        if not cases:
            return {}
        folders, retired = await all_folders(self._database), await retired_workers(self._database)
        reports = await self._reports.of([each.id for each in cases], only_state=only_state)
        awaited = await self._awaited(cases)
        return {
            each.id: reach_of(
                awaited[each.id],
                each.closed_revision,
                folders,
                reports.get(each.id, ()),
                retired,
            )
            for each in cases
        }

    async def _awaited(self, cases: Sequence[ErasureCase | Unreached]) -> dict[str, Sequence[str]]:
        """The workers whose folders each case waits for; as of now if an old program closed it."""
        unsaid = sorted({each.organisation for each in cases if not each.awaited})
        now = {each: await awaited_workers(self._database, each) for each in unsaid}
        return {
            each.id: msgspec.json.decode(each.awaited, type=list[str])
            if each.awaited
            else now[each.organisation]
            for each in cases
        }

    async def _note_awaited(self, cases: Sequence[Unreached]) -> None:
        """Store these lists, once and for all, for cases that an older program closed."""
        if not cases:
            return
        said = [
            {"case": case, "names": msgspec.json.encode(names).decode()}
            for case, names in (await self._awaited(cases)).items()
        ]
        noted = update(erasure_cases).where(_C.id == bindparam("case"), _C.awaited == "")
        async with self._database.writing() as connection:
            await connection.execute(noted.values(awaited=bindparam("names")), said)
