"""Reports of each audit folder on what it did for each erasure, wherever that was agreed to.

There is one row for each case and folder: first what was found, before any of it is destroyed, and
which process is working on it; then that it is done. After a crash, the next process finds the row
and continues from there.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from sqlalchemy import RowMapping, and_, bindparam, func, or_, outerjoin, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.store.claims import is_unclaimed
from gateway.store.custody.audit_folders import AuditFolder
from gateway.store.engine import Database
from gateway.store.erasure.attempts import DatedKey, holds_on
from gateway.store.erasure.cases import CLAIM_US
from gateway.store.erasure.waiting_cases import IS_DONE
from gateway.store.schema.custody import audit_folders, erasure_cases, erasure_reports
from gateway.store.speech import insert_into


_C, _R, _F = erasure_cases.c, erasure_reports.c, audit_folders.c
_NEWEST: Final = select(func.max(_C.closed_revision)).where(IS_DONE)
AT_ONCE = 500


class PendingCase(Struct, frozen=True):
    """A case that was carried out, but not yet reported as done by a folder.

    `covered` are the workers whose keys the folder reported on; others came into it since.
    """

    id: str
    organisation: str
    subject: str
    ticket: str
    asked_by: str
    closed_by: str
    closed_us: int
    closed_revision: int = 0
    covered: tuple[str, ...] = ()


class FolderReport(Struct, frozen=True):
    """What one folder did, or has to do."""

    case_id: str
    folder: str
    workers: tuple[str, ...]
    """The workers whose keys lay there."""
    told_by: str
    """The worker that does it."""
    found: tuple[DatedKey, ...]
    younger: int = 0
    """Keys of the same scope that stay, since they were made later."""
    seen_us: int = 0
    held_by: str = ""
    """The hold that forbids it; empty without one."""
    claimed_us: int = 0
    done_us: int = 0
    """When all of them were destroyed; 0 before."""
    checked: str = ""
    """JSON: what was found in their records afterwards; empty if nothing was looked at.

    If it is not done, the last failure.
    """

    @property
    def is_begun(self) -> bool:
        """Whether the keys to destroy were noted, but are not known to be gone."""
        return bool(self.seen_us) and not self.done_us

    @property
    def failure(self) -> str:
        """Why it is not done, in the words of what failed; empty if nothing failed."""
        if self.done_us or not self.checked:
            return ""
        return msgspec.json.decode(self.checked, type=_Failed).failed


class _Failed(Struct, frozen=True):
    failed: str = ""


class FolderReports:
    """The reports on all cases and folders in one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def pending(self, folder: AuditFolder) -> Sequence[PendingCase]:
        """What a folder has not done yet of all that lies there, longest waiting first.

        It notes up to where nothing is left: the next look begins there.
        """
        here = _json(folder.workers)
        settled = folder.settled_revision if folder.settled_workers == here else 0
        since = max(folder.since_revision, settled, 0)
        mine = and_(_R.case_id == _C.id, _R.folder == folder.folder, _R.done_us > 0)
        columns = [_C[name] for name in PendingCase.__struct_fields__[:-1]]
        undone = (
            select(*columns, _R.workers)
            .select_from(outerjoin(erasure_cases, erasure_reports, mine))
            .where(IS_DONE, or_(_R.workers.is_(None), _R.workers != here))
        )
        # Each uses the index; an older program told nobody when it closed a case.
        queries = [
            undone.where(each) for each in (_C.closed_revision == 0, _C.closed_revision > since)
        ]
        async with self._database.reading() as connection:
            # Read first: what is closed meanwhile has a greater number, and is found by the next
            # look.
            newest = (await connection.execute(_NEWEST)).scalar_one_or_none() or 0
            rows = [row for each in queries for row in (await connection.execute(each)).mappings()]
        found = sorted(map(_pending_of, rows), key=lambda case: (case.closed_us, case.id))
        left = [each for each in found if not set(folder.workers).issubset(each.covered)]
        until = min([newest, *(each.closed_revision - 1 for each in left if each.closed_revision)])
        if until > since:
            await self._settle(folder, here, until)
        return left

    async def _settle(self, folder: AuditFolder, here: str, revision: int) -> None:
        """Note that cases closed up to `revision` are done while the folder's content stays."""
        mine = (_F.folder == folder.folder) & (_F.workers == here)
        values = {"settled_revision": revision, "settled_workers": here}
        async with self._database.writing() as connection:
            await connection.execute(update(audit_folders).where(mine).values(values))

    async def done_here(self, folder: AuditFolder) -> set[str]:
        """The ids of all keys that a folder reported as gone."""
        gone = (_R.folder == folder.folder) & (_R.done_us > 0) & (_R.found != "[]")
        async with self._database.reading() as connection:
            rows = (await connection.execute(select(_R.found).where(gone))).scalars().all()
        return {key.key for row in rows for key in _keys(row)}

    async def of(
        self, case_ids: Sequence[str], *, only_state: bool = False
    ) -> dict[str, list[FolderReport]]:
        """By case, in the order in which they were done; unfinished reports come last.

        `only_state` leaves out what was found and what its records showed, which may be much.
        """
        found: dict[str, list[FolderReport]] = {}
        columns = [_R[name] for name in FolderReport.__struct_fields__]
        if only_state:
            columns = [each for each in columns if each.name not in ("found", "checked")]
        for at in range(0, len(case_ids), AT_ONCE):
            some = select(*columns).where(_R.case_id.in_(case_ids[at : at + AT_ONCE]))
            async with self._database.reading() as connection:
                rows = (await connection.execute(some)).mappings().all()
            for report in map(_report_of, rows):
                found.setdefault(report.case_id, []).append(report)
        for reports in found.values():
            reports.sort(key=lambda each: (each.done_us == 0, each.done_us, each.folder))
        return found

    async def claim(self, report: FolderReport) -> FolderReport | None:
        """Claim a report before its folder destroys anything; what was found is stored for good.

        Returns the report as it then is: with `held_by` if a hold forbids it, and including what an
        earlier attempt found. None if another process is at it, or it is done.
        """
        now_us = self._clock.utc_us()
        mine = and_(_R.case_id == report.case_id, _R.folder == report.folder)
        # If this name claimed it before, that process is gone: a name has one process at a time.
        is_free = or_(is_unclaimed(_R.claimed_us, now_us, CLAIM_US), _R.told_by == report.told_by)
        async with self._database.writing() as connection:
            await self._begin(connection, [report])
            query = select(erasure_reports).where(mine).with_for_update()
            known = _report_of((await connection.execute(query)).mappings().one())
            if known.done_us and set(known.workers).issuperset(report.workers):
                return None
            report = _joined(known, report)
            held = (await connection.execute(holds_on(report.case_id))).first()
            values = _found_of(report) | {
                "held_by": held.id if held else "",
                "claimed_us": 0 if held else now_us,
                "done_us": 0,
                "seen_us": report.seen_us,
            }
            taken = update(erasure_reports).where(mine, _R.done_us == known.done_us, is_free)
            if not (await connection.execute(taken.values(values))).rowcount:
                return None
            if known.done_us:
                # It was counted, and is counted again when all is done.
                await self._count(connection, report.case_id, -len(known.found))
            row = (await connection.execute(select(erasure_reports).where(mine))).mappings().one()
        return _report_of(row)

    async def may_go(self, report: FolderReport) -> bool:
        """Right before the keys go: whether the claim is still ours, and no hold was set."""
        mine = and_(
            _R.case_id == report.case_id,
            _R.folder == report.folder,
            _R.claimed_us == report.claimed_us,
            _R.done_us == 0,
        )
        async with self._database.writing() as connection:
            held = (await connection.execute(holds_on(report.case_id))).first()
            values = {"held_by": held.id, "claimed_us": 0} if held else {"held_by": ""}
            changed = await connection.execute(update(erasure_reports).where(mine).values(values))
        return held is None and bool(changed.rowcount)

    async def done(self, report: FolderReport) -> bool:
        """Note that all of it was destroyed; returns whether this was the first report of it."""
        now_us = self._clock.utc_us()
        mine = and_(_R.case_id == report.case_id, _R.folder == report.folder, _R.done_us == 0)
        async with self._database.writing() as connection:
            ended = update(erasure_reports).where(mine)
            values = {"done_us": now_us, "claimed_us": 0, "checked": report.checked}
            if not (await connection.execute(ended.values(values))).rowcount:
                return False
            await self._count(connection, report.case_id, len(report.found))
        return True

    async def release(self, report: FolderReport) -> None:
        """Release it after a failure: it may be tried again at once."""
        mine = and_(
            _R.case_id == report.case_id,
            _R.folder == report.folder,
            _R.claimed_us == report.claimed_us,
        )
        async with self._database.writing() as connection:
            await connection.execute(update(erasure_reports).where(mine).values(claimed_us=0))

    async def failed(self, reports: Sequence[FolderReport], reason: str) -> None:
        """Note cases that cannot be carried out here now; any of them may be tried again.

        Includes cases for which nobody could see yet what there is to destroy (`seen_us` 0).
        """
        said = msgspec.json.encode(_Failed(reason)).decode()
        change = update(erasure_reports).where(
            _R.case_id == bindparam("case"),
            _R.folder == bindparam("mark"),
            _R.claimed_us == bindparam("claim"),
            _R.done_us == 0,
        )
        for at in range(0, len(reports), AT_ONCE):
            some = reports[at : at + AT_ONCE]
            keys = [
                {"case": each.case_id, "mark": each.folder, "claim": each.claimed_us}
                for each in some
            ]
            async with self._database.writing() as connection:
                await self._begin(connection, some)
                await connection.execute(change.values(checked=said, claimed_us=0), keys)

    async def had_none(self, reports: Sequence[FolderReport]) -> None:
        """Note that a folder has no such keys; what an earlier attempt left is not touched.

        A report that covered fewer workers' keys is extended to these.
        """
        more = update(erasure_reports).where(
            _R.case_id == bindparam("case"), _R.folder == bindparam("mark"), _R.done_us > 0
        )
        more = more.values(workers=bindparam("names"))
        first = update(erasure_reports).where(
            _R.case_id == bindparam("case"), _R.folder == bindparam("mark"), _R.seen_us == 0
        )
        first = first.values(
            workers=bindparam("names"),
            seen_us=bindparam("now"),
            done_us=bindparam("now"),
            checked=bindparam("damage"),
        )
        for at in range(0, len(reports), AT_ONCE):
            some = reports[at : at + AT_ONCE]
            said = [
                {"case": each.case_id, "mark": each.folder, "names": _json(each.workers)}
                for each in some
            ]
            seen = [
                one | {"now": each.seen_us, "damage": each.checked}
                for one, each in zip(said, some, strict=True)
            ]
            async with self._database.writing() as connection:
                await self._begin(connection, some)
                await connection.execute(more, said)
                await connection.execute(first, seen)

    async def _begin(self, connection: AsyncConnection, reports: Sequence[FolderReport]) -> None:
        """Insert the first row of each case and folder, unless another process was faster."""
        begun = insert_into(self._database.kind, erasure_reports).on_conflict_do_nothing()
        await connection.execute(begun, [row_of(each) for each in reports])

    @staticmethod
    async def _count(connection: AsyncConnection, case_id: str, keys: int) -> None:
        more = update(erasure_cases).where(_C.id == case_id)
        await connection.execute(more.values(keys=_C["keys"] + keys))


def row_of(report: FolderReport) -> dict[str, Any]:
    """A row of `erasure_reports`."""
    return msgspec.structs.asdict(report) | _found_of(report)


def _found_of(report: FolderReport) -> dict[str, Any]:
    return {
        "workers": _json(report.workers),
        "found": _json(report.found),
        "told_by": report.told_by,
        "younger": report.younger,
    }


def _joined(known: FolderReport, now: FolderReport) -> FolderReport:
    """The keys found before and those found now, each once."""
    keys = {key.key: key for key in (*known.found, *now.found)}
    workers = tuple(sorted({*known.workers, *now.workers}))
    return msgspec.structs.replace(
        known,
        found=tuple(keys.values()),
        workers=workers,
        told_by=now.told_by,
        younger=now.younger,
    )


def _pending_of(row: RowMapping) -> PendingCase:
    values = dict(row)
    covered = values.pop("workers") or "[]"
    return PendingCase(**values, covered=_names(covered))


def _report_of(row: RowMapping) -> FolderReport:
    values = dict(row)
    values |= {"workers": _names(values["workers"]), "found": _keys(values.get("found", "[]"))}
    return FolderReport(**values)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _names(said: str) -> tuple[str, ...]:
    return msgspec.json.decode(said, type=tuple[str, ...])


def _keys(said: str) -> tuple[DatedKey, ...]:
    return msgspec.json.decode(said, type=tuple[DatedKey, ...])
