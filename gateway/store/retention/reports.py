"""Reports of how retention stands in each audit folder, by a process that has the folder.

There is one row for each folder and organisation. From what was last reported anybody can tell
which folder is late, including one whose worker is down: its keys grow old all the same.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Self

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, case, delete, func, literal, select

from gateway.clock import DAY_US
from gateway.configuration.sections import RetentionSettings
from gateway.store.custody.audit_folders import all_folders
from gateway.store.custody.elsewhere import retired_workers
from gateway.store.engine import Database
from gateway.store.schema.custody import retention_reports
from gateway.store.speech import insert_into


_R = retention_reports.c
AT_ONCE = 500


class RetentionReport(Struct, frozen=True):
    """What was found in one folder about one organisation's keys."""

    folder: str
    """Its mark."""
    organisation: str
    told_by: str
    """The worker that looked."""
    looked_us: int
    days: int
    """How long its class keeps content, by that worker's settings."""
    due: int
    """Keys past their time that were left, since nobody destroys them automatically."""
    held: int
    unsure: int
    over_day: int
    """The first day, since 1970, when the oldest key left is past its time; 0 for none."""
    gone: int = 0
    """How many keys were destroyed the last time that any were."""
    gone_us: int = 0

    @property
    def is_telling(self) -> bool:
        """Whether the folder has, or had, any of its keys."""
        return bool(self.over_day or self.held or self.gone)

    def by(self, days: int) -> Self:
        """The same for a class that keeps content for this many days; 0 is for ever."""
        over_day = self.over_day - self.days + days if self.over_day and days else 0
        return msgspec.structs.replace(self, days=days, over_day=over_day)

    def overdue_us(self, now_us: int) -> int:
        """How long a key there without a hold is past its time; 0 if none is."""
        return max(now_us - self.over_day * DAY_US, 0) if self.over_day else 0


class FolderRetentionStanding(Struct, frozen=True):
    """A folder as shown to people: its workers, and its report on one organisation."""

    workers: tuple[str, ...]
    report: RetentionReport
    is_lost: bool
    """The names of all its workers are retired: nobody waits for its disk."""


class RetentionReports:
    """The reports of all folders in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, folder: str, reports: Sequence[RetentionReport]) -> None:
        """Store a folder's reports on all organisations, replacing earlier ones.

        The time of the last destruction is kept if nothing is destroyed this time.
        """
        mine = _R.folder == folder
        async with self._database.writing() as connection:
            gone = select(_R.organisation, _R.gone, _R.gone_us).where(mine)
            rows = {each.organisation: each for each in (await connection.execute(gone)).all()}
            await connection.execute(delete(retention_reports).where(mine))
            said = [
                _with_gone(each, rows.get(each.organisation))
                for each in reports
                if each.is_telling or each.organisation in rows
            ]
            put = insert_into(self._database.kind, retention_reports)
            for at in range(0, len(said), AT_ONCE):
                # Another process of the folder may have reported the same meanwhile.
                some = put.on_conflict_do_nothing()
                await connection.execute(some, said[at : at + AT_ONCE])

    async def of(self, organisation: str, days: int) -> Sequence[FolderRetentionStanding]:
        """Each folder's report on an organisation, the most overdue first.

        `days` are those of its present class: a worker that is down may have used others.
        """
        query = select(retention_reports).where(_R.organisation == organisation)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        if not rows:
            return ()
        workers = {each.folder: each.workers for each in await all_folders(self._database)}
        retired = await retired_workers(self._database)
        # A folder that changed its mark is known by the new one.
        found = [
            _standing(RetentionReport(**row).by(days), workers[row["folder"]], retired)
            for row in rows
            if row["folder"] in workers
        ]
        return sorted(found, key=lambda each: (each.report.over_day or 1 << 31, each.workers))

    async def over_day(self, retention: RetentionSettings) -> int:
        """The first day when any key in a folder that is not lost is past its time.

        By the present classes; 0 if no key is left anywhere.
        """
        limit = _limit(retention)
        over = func.min(_R.over_day - _R.days + limit)
        query = select(_R.folder, over).where(_R.over_day > 0, limit > 0).group_by(_R.folder)
        async with self._database.reading() as connection:
            days = {row[0]: int(row[1]) for row in (await connection.execute(query)).all()}
        if not days:
            return 0
        retired = await retired_workers(self._database)
        folders = await all_folders(self._database)
        there = {each.folder for each in folders if not _is_lost(each.workers, retired)}
        return min((day for folder, day in days.items() if folder in there), default=0)


def _limit(retention: RetentionSettings) -> ColumnElement[int]:
    """The limit of each row's organisation, in days; 0 if its class keeps for ever."""
    usual, named = retention.classes.get(retention.default, 0), dict[int, list[str]]()
    for organisation, name in retention.organisations.items():
        named.setdefault(retention.classes.get(name, 0), []).append(organisation)
    if not named:
        return literal(usual)
    return case(*((_R.organisation.in_(names), days) for days, names in named.items()), else_=usual)


def _with_gone(report: RetentionReport, before: Any) -> dict[str, Any]:
    said = msgspec.structs.asdict(report)
    if not report.gone and before is not None:
        said |= {"gone": before.gone, "gone_us": before.gone_us}
    return said


def _standing(
    report: RetentionReport, workers: Sequence[str], retired: Collection[str]
) -> FolderRetentionStanding:
    return FolderRetentionStanding(tuple(workers), report, _is_lost(workers, retired))


def _is_lost(workers: Iterable[str], retired: Collection[str]) -> bool:
    names = set(workers)
    return bool(names) and names <= set(retired)
