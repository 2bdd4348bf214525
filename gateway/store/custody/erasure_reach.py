"""How far erasures have come, as the database has it, and which have come to their end."""

from collections.abc import Sequence

import msgspec
from msgspec import structs
from sqlalchemy import select, update

from gateway.clock import Clock
from gateway.store.custody.audit_folders import all_folders
from gateway.store.custody.elsewhere import awaited_workers, retired_workers
from gateway.store.custody.erasure_cases import ErasureCase
from gateway.store.custody.folder_reports import FolderReports
from gateway.store.custody.reaching import Reach, reach_of
from gateway.store.engine import Database
from gateway.store.schema.custody import erasure_cases


_C = erasure_cases.c


class ErasureReach:
    """Of all cases of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._reports = FolderReports(database, clock)

    async def of(self, cases: Sequence[ErasureCase]) -> dict[str, Reach]:
        """By id, of those that were carried out."""
        done = [each for each in cases if each.state == "done"]
        if not done:
            return {}
        folders, retired = await all_folders(self._database), await retired_workers(self._database)
        reports = await self._reports.of([each.id for each in done])
        return {
            each.id: reach_of(
                await self._awaited(each),
                each.closed_revision,
                folders,
                reports.get(each.id, ()),
                retired,
            )
            for each in done
        }

    async def note_reached(self) -> int:
        """Note the cases for which nobody is waited for any more; when the oldest other was closed.

        0 where there is no other.
        """
        query = (
            select(erasure_cases)
            .where(_C.state == "done", _C.reached_us == 0)
            .order_by(_C.closed_us)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        cases = [await self._with_awaited(ErasureCase(**row)) for row in rows]
        reached = {case: each.is_complete for case, each in (await self.of(cases)).items()}
        over = [case for case, is_over in reached.items() if is_over]
        if over:
            unnoted = _C.id.in_(over) & (_C.reached_us == 0)
            noted = update(erasure_cases).where(unnoted).values(reached_us=self._clock.utc_us())
            async with self._database.writing() as connection:
                await connection.execute(noted)
        return min((each.closed_us for each in cases if not reached[each.id]), default=0)

    async def _awaited(self, case: ErasureCase) -> Sequence[str]:
        """Whose folders a case waits for; of one that an older program closed, as it is now."""
        if case.awaited:
            return msgspec.json.decode(case.awaited, type=list[str])
        return await awaited_workers(self._database, case.organisation)

    async def _with_awaited(self, case: ErasureCase) -> ErasureCase:
        """One that an older program closed gets its list, once and for all."""
        if case.awaited:
            return case
        said = msgspec.json.encode(await self._awaited(case)).decode()
        unsaid = (_C.id == case.id) & (_C.awaited == "")
        async with self._database.writing() as connection:
            await connection.execute(update(erasure_cases).where(unsaid).values(awaited=said))
        return structs.replace(case, awaited=said)
