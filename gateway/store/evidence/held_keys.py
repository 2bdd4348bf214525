"""Keys that are listed as erased but still exist somewhere, and that a legal hold covers.

Either a backup brought them back: then they are destroyed again. Or a disk failed when they were
about to be destroyed: then a hold that was set since takes precedence, and nobody has said that
they are gone.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct
from sqlalchemy import func, select

from gateway.audit.content_keys.keys import WrappedKey
from gateway.store.engine import Database
from gateway.store.held import was_set_since
from gateway.store.schema.custody import audit_holds, erasure_cases, erasure_reports


_C, _R, _H = erasure_cases.c, erasure_reports.c, audit_holds.c


class _Certified(Struct, frozen=True):
    keys_destroyed: tuple[str, ...] = ()


class _Key(Struct, frozen=True):
    key: str


async def held_subjects(database: Database) -> dict[tuple[str, str], int]:
    """The subjects now on hold, by organisation, and when the last hold on each was set.

    An empty subject means everybody.
    """
    query = (
        select(_H.organisation, _H.subject, func.max(_H.set_us))
        .where(_H.released_by == "")
        .group_by(_H.organisation, _H.subject)
    )
    async with database.reading() as connection:
        rows = (await connection.execute(query)).all()
    return {(organisation, subject): int(set_us) for organisation, subject, set_us in rows}


async def spared(
    database: Database,
    held: Mapping[tuple[str, str], int],
    keys: Sequence[WrappedKey],
    erased_us: Mapping[str, int],
) -> frozenset[str]:
    """Ids of those keys that holds on `held` cover and that no erasure says are gone.

    `keys` are on a list of erased keys but still exist somewhere, `erased_us` says when each was
    listed. A hold that was set earlier had been released by then.
    """
    theirs = [
        key
        for key in keys
        if any(
            was_set_since(held.get((key.organisation, whose)), erased_us[key.key])
            for whose in ("", key.subject)
        )
    ]
    gone = await _gone(database, {key.organisation for key in theirs}) if theirs else set[str]()
    return frozenset(key.key for key in theirs).difference(gone)


async def _gone(database: Database, organisations: Iterable[str]) -> set[str]:
    """Keys whose destruction is certified by erasures of these organisations."""
    theirs = (_C.organisation.in_(sorted(organisations)), _C.state == "done")
    certificates = select(_C.certificate).where(*theirs)
    reports = select(_R.found).join(erasure_cases, _C.id == _R.case_id)
    reports = reports.where(*theirs, _R.done_us > 0)
    async with database.reading() as connection:
        said = (await connection.execute(certificates)).scalars().all()
        found = (await connection.execute(reports)).scalars().all()
    gone = {key for each in said if each for key in _certified(each)}
    return gone | {one.key for each in found for one in _keys(each)}


def _certified(said: str) -> tuple[str, ...]:
    return msgspec.json.decode(said, type=_Certified).keys_destroyed


def _keys(said: str) -> tuple[_Key, ...]:
    return msgspec.json.decode(said, type=tuple[_Key, ...])
