"""What each audit folder did for each erasure that was agreed to, wherever that was.

One row for a case and a folder: first what was found, before any of it goes, and who is at it;
then that it is done. Whoever comes after a crash finds the row and goes on from there.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import RowMapping, and_, exists, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.store.claims import is_unclaimed
from gateway.store.custody.audit_folders import AuditFolder
from gateway.store.custody.erasure_attempts import DatedKey, holds_on
from gateway.store.custody.erasure_cases import CLAIM_US
from gateway.store.engine import Database
from gateway.store.schema.custody import erasure_cases, erasure_reports
from gateway.store.speech import insert_into


_C, _R = erasure_cases.c, erasure_reports.c
AT_ONCE = 500


class PendingCase(Struct, frozen=True):
    """A case that was carried out, and of which a folder has not said that it did its part."""

    id: str
    organisation: str
    subject: str
    ticket: str
    asked_by: str
    closed_by: str
    closed_us: int


class FolderReport(Struct, frozen=True):
    """What one folder did, or is to do."""

    case_id: str
    folder: str
    workers: tuple[str, ...]
    """Whose keys lay there."""
    told_by: str
    """The worker that does it."""
    found: tuple[DatedKey, ...]
    younger: int = 0
    """Keys of the same scope that stay: they were made later."""
    seen_us: int = 0
    held_by: str = ""
    """The hold that forbids it; empty for none."""
    claimed_us: int = 0
    done_us: int = 0
    """When all of them were destroyed; 0 before."""
    checked: str = ""
    """JSON: what was seen of their records afterwards; empty where nothing was looked at."""


class FolderReports:
    """Of all cases and folders of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def pending(self, folder: AuditFolder) -> Sequence[PendingCase]:
        """What a folder has not done yet, the longest waiting first."""
        is_done = exists().where(_R.case_id == _C.id, _R.folder == folder.folder, _R.done_us > 0)
        concerns = or_(_C.closed_revision == 0, _C.closed_revision > folder.since_revision)
        columns = [_C[name] for name in PendingCase.__struct_fields__]
        query = select(*columns).where(_C.state == "done", concerns, ~is_done)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query.order_by(_C.closed_us, _C.id))).mappings().all()
        return [PendingCase(**row) for row in rows]

    async def of(self, case_ids: Sequence[str]) -> dict[str, list[FolderReport]]:
        """By case, in the order in which they were done; what is not done comes last."""
        found: dict[str, list[FolderReport]] = {}
        for at in range(0, len(case_ids), AT_ONCE):
            some = select(erasure_reports).where(_R.case_id.in_(case_ids[at : at + AT_ONCE]))
            async with self._database.reading() as connection:
                rows = (await connection.execute(some)).mappings().all()
            for report in map(_report_of, rows):
                found.setdefault(report.case_id, []).append(report)
        for reports in found.values():
            reports.sort(key=lambda each: (each.done_us == 0, each.done_us, each.folder))
        return found

    async def claim(self, report: FolderReport) -> FolderReport | None:
        """Before its folder destroys anything: what was found is noted for good.

        The report as it stands then: with `held_by` where a hold forbids it, and with what an
        attempt before found, too. None where somebody else is at it, or it is done.
        """
        now_us = self._clock.utc_us()
        mine = and_(_R.case_id == report.case_id, _R.folder == report.folder)
        # Who claimed it by this name before is gone: a name has one process at a time.
        is_free = or_(is_unclaimed(_R.claimed_us, now_us, CLAIM_US), _R.told_by == report.told_by)
        async with self._database.writing() as connection:
            await self._begin(connection, report)
            query = select(erasure_reports).where(mine).with_for_update()
            row = (await connection.execute(query)).mappings().one()
            report = _joined(_report_of(row), report)
            held = (await connection.execute(holds_on(report.case_id))).first()
            values = _found_of(report) | {
                "held_by": held.id if held else "",
                "claimed_us": 0 if held else now_us,
            }
            taken = update(erasure_reports).where(mine, _R.done_us == 0, is_free)
            if not (await connection.execute(taken.values(values))).rowcount:
                return None
            row = (await connection.execute(select(erasure_reports).where(mine))).mappings().one()
        return _report_of(row)

    async def done(self, report: FolderReport) -> bool:
        """After all of it was destroyed; whether nobody had said so."""
        now_us = self._clock.utc_us()
        mine = and_(_R.case_id == report.case_id, _R.folder == report.folder, _R.done_us == 0)
        async with self._database.writing() as connection:
            ended = update(erasure_reports).where(mine)
            values = {"done_us": now_us, "claimed_us": 0, "checked": report.checked}
            if not (await connection.execute(ended.values(values))).rowcount:
                return False
            more = update(erasure_cases).where(_C.id == report.case_id)
            await connection.execute(more.values(keys=_C["keys"] + len(report.found)))
        return True

    async def release(self, report: FolderReport) -> None:
        """After it failed: it may be tried again at once."""
        mine = and_(
            _R.case_id == report.case_id,
            _R.folder == report.folder,
            _R.claimed_us == report.claimed_us,
        )
        async with self._database.writing() as connection:
            await connection.execute(update(erasure_reports).where(mine).values(claimed_us=0))

    async def had_none(self, reports: Sequence[FolderReport]) -> None:
        """Of a folder that has no such keys; what an attempt before left is not touched."""
        for at in range(0, len(reports), AT_ONCE):
            some = reports[at : at + AT_ONCE]
            async with self._database.writing() as connection:
                for each in some:
                    await self._begin(connection, each)

    async def _begin(self, connection: AsyncConnection, report: FolderReport) -> None:
        """The first row of a case and a folder, unless somebody was faster."""
        begun = insert_into(self._database.kind, erasure_reports).values(row_of(report))
        await connection.execute(begun.on_conflict_do_nothing())


def row_of(report: FolderReport) -> dict[str, Any]:
    """A row of `erasure_reports`."""
    return msgspec.structs.asdict(report) | _found_of(report)


def _found_of(report: FolderReport) -> dict[str, Any]:
    return {
        "workers": msgspec.json.encode(report.workers).decode(),
        "found": msgspec.json.encode(report.found).decode(),
        "told_by": report.told_by,
        "younger": report.younger,
    }


def _joined(known: FolderReport, now: FolderReport) -> FolderReport:
    """What was found before and what is found now, each key once."""
    keys = {key.key: key for key in (*known.found, *now.found)}
    workers = tuple(sorted({*known.workers, *now.workers}))
    return msgspec.structs.replace(
        known,
        found=tuple(keys.values()),
        workers=workers,
        told_by=now.told_by,
        younger=now.younger,
    )


def _report_of(row: RowMapping) -> FolderReport:
    values = dict(row)
    workers = msgspec.json.decode(values["workers"], type=tuple[str, ...])
    found = msgspec.json.decode(values["found"], type=tuple[DatedKey, ...])
    return FolderReport(**values | {"workers": workers, "found": found})
