"""Records that a restored database waits for: their numbers were signed, and workers hold them.

The tree grows at once by the leaves that lie beside the checkpoints; a record takes its old number
when its worker delivers it. No new numbers are given before every worker has said which are taken.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import delete, exists, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.projecting.projection import ProjectedRecord
from gateway.audit.proving.merkle import split_hashes
from gateway.errors import NotReady
from gateway.oversight.deeds import OPERATORS
from gateway.store.engine import Database
from gateway.store.evidence.rows import organisations_of
from gateway.store.schema.audit import (
    audit_awaited_deeds,
    audit_awaited_records,
    audit_awaited_workers,
    audit_records,
)
from gateway.store.speech import insert_into


_AT_ONCE = 400
_RECORDS, _WORKERS = audit_awaited_records.c, audit_awaited_workers.c
_HAS_NOT_TOLD = (_WORKERS.told_us == 0) & (_WORKERS.lost_us == 0)
_HAS_NOT_BROUGHT = (_WORKERS.brought_us == 0) & (_WORKERS.lost_us == 0)
ANYTHING = select(
    exists(select(_WORKERS.worker).where(_HAS_NOT_TOLD)), exists(select(_RECORDS.sequence))
)
_DEED = audit_records.c
_DEEDS = (
    select(_DEED.sequence, _DEED.utc_us, _DEED.actor, _DEED.action, _DEED.about)
    .where(
        _DEED.organisation == OPERATORS,
        _DEED.sequence.in_(select(audit_awaited_deeds.c.sequence)),
    )
    .order_by(_DEED.sequence)
)


class AwaitedDeed(Struct, frozen=True):
    """An order given after the backup was made, and not in effect now."""

    sequence: int
    utc_us: int
    actor: str
    action: str
    about: str
    """The organisation; empty for the installation."""


class Awaited(Struct, frozen=True):
    """What is still awaited; nothing unless a database was put back."""

    untold: tuple[str, ...] = ()
    """Workers that have not yet said which signed numbers they know of."""
    unbrought: tuple[str, ...] = ()
    """Workers whose records are not all in the database."""
    records: dict[str, int] = {}
    """How many signed numbers of each organisation have no record."""
    deeds: tuple[AwaitedDeed, ...] = ()
    """Orders that somebody has to say the database may do without."""

    def __str__(self) -> str:
        parts = []
        if workers := self.untold or self.unbrought:
            parts.append(f"workers {', '.join(workers)}")
        parts += [f"{count} records of {name}" for name, count in sorted(self.records.items())]
        actions = Counter(deed.action for deed in self.deeds)
        parts += [f"a decision about {actions[action]} {action}" for action in sorted(actions)]
        return ", ".join(parts)


async def recalled(
    connection: AsyncConnection, batch: list[ProjectedRecord], anything: Sequence[Sequence[Any]]
) -> dict[int, int]:
    """Places in a batch of records that had a number before, and the numbers, no longer awaited.

    `anything` is what the database answers to `ANYTHING`.

    Raises:
        NotReady: not every worker has said which numbers are taken.
    """
    if not batch:
        return {}
    ((waits, has_numbers),) = anything
    if waits:
        raise NotReady("the database was put back: not every worker has started since")
    if not has_numbers:
        return {}
    names = organisations_of(batch)
    numbers: dict[int, int] = {}
    for name in sorted(set(names)):
        places = {
            bytes.fromhex(each.leaf_hash): place
            for place, each in enumerate(batch)
            if names[place] == name
        }
        for some in _pieces(sorted(places)):
            taken = delete(audit_awaited_records).where(
                _RECORDS.organisation == name, _RECORDS.leaf.in_(some)
            )
            found = await connection.execute(taken.returning(_RECORDS.leaf, _RECORDS.sequence))
            numbers |= {places[bytes(leaf)]: sequence for leaf, sequence in found}
    return numbers


async def await_records(
    connection: AsyncConnection, organisation: str, size: int, leaves: bytes
) -> None:
    """Await the records of the numbers after `size`, in the transaction that grows the tree."""
    rows = [
        {"organisation": organisation, "leaf": leaf, "sequence": size + place}
        for place, leaf in enumerate(split_hashes(leaves), start=1)
    ]
    for some in _pieces(rows):
        await connection.execute(insert(audit_awaited_records), list(some))


class AwaitedTable:
    """What one database waits for. Every method raises NotReady if the database does not answer."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self) -> Awaited:
        counted = select(_RECORDS.organisation, func.count()).where(_RECORDS.lost_us == 0)
        counted = counted.group_by(_RECORDS.organisation)
        named = select(_WORKERS.worker, _HAS_NOT_TOLD, _HAS_NOT_BROUGHT)
        named = named.where(or_(_HAS_NOT_TOLD, _HAS_NOT_BROUGHT)).order_by(_WORKERS.worker)
        async with self._database.reading() as connection:
            records = {row[0]: row[1] for row in await connection.execute(counted)}
            workers = (await connection.execute(named)).all()
            deeds = [AwaitedDeed(*row) for row in await connection.execute(_DEEDS)]
        untold = tuple(worker for worker, is_untold, _ in workers if is_untold)
        unbrought = tuple(worker for worker, is_untold, _ in workers if not is_untold)
        return Awaited(untold, unbrought, records, tuple(deeds))

    async def workers(self) -> list[str]:
        """All workers that are or were awaited and not given up, by name; none when over."""
        query = select(_WORKERS.worker).where(_WORKERS.lost_us == 0).order_by(_WORKERS.worker)
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def expect(self, workers: Collection[str]) -> None:
        """Await these workers, unless they are awaited already."""
        await self._add(workers, {})

    async def tell(self, worker: str, also: Iterable[str], now_us: int) -> None:
        """Note that what this worker and those in `also` know of is in the database."""
        await self._add((worker,), {})
        here = _WORKERS.worker.in_([worker, *also])
        change = update(audit_awaited_workers).where(here, _WORKERS.told_us == 0)
        async with self._database.writing() as connection:
            await connection.execute(change.values(told_us=now_us, lost_us=0))

    async def bring(self, worker: str, also: Iterable[str], now_us: int) -> None:
        """Note that all records of this worker, and of those in `also`, are in the database."""
        here = _WORKERS.worker.in_([worker, *also])
        change = update(audit_awaited_workers).where(here)
        async with self._database.writing() as connection:
            await connection.execute(change.values(brought_us=now_us))

    async def give_up(self, now_us: int) -> None:
        """Give up workers that were not heard of, and what is missing once all others are done."""
        who = update(audit_awaited_workers).where(_HAS_NOT_TOLD)
        what = update(audit_awaited_records).where(_RECORDS.lost_us == 0)
        async with self._database.writing() as connection:
            await connection.execute(who.values(lost_us=now_us))
            await connection.execute(what.values(lost_us=now_us))

    async def lost(self) -> Counter[str]:
        """How many records of each organisation were given up and never came."""
        query = select(_RECORDS.organisation, func.count()).where(_RECORDS.lost_us > 0)
        async with self._database.reading() as connection:
            rows = await connection.execute(query.group_by(_RECORDS.organisation))
            return Counter({row[0]: row[1] for row in rows})

    async def await_decision(self, deeds: Iterable[int]) -> None:
        """Make all workers wait until somebody has decided about these deeds, given by number."""
        rows = [{"sequence": sequence} for sequence in deeds]
        async with self._database.writing() as connection:
            await connection.execute(insert(audit_awaited_deeds), rows)

    async def lost_leaves(self, organisation: str) -> dict[int, bytes]:
        """The leaves of an organisation's numbers whose records were given up, by number."""
        query = select(_RECORDS.sequence, _RECORDS.leaf).where(
            _RECORDS.organisation == organisation, _RECORDS.lost_us > 0
        )
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(_RECORDS.sequence))
            return {sequence: bytes(leaf) for sequence, leaf in rows}

    async def finish(self) -> None:
        """End all waiting: everything is safe, or somebody has decided that it is good enough."""
        async with self._database.writing() as connection:
            await connection.execute(delete(audit_awaited_deeds))
            await connection.execute(delete(audit_awaited_workers))

    async def _add(self, workers: Collection[str], values: dict[str, int]) -> None:
        rows = [{"worker": worker, **values} for worker in sorted(workers)]
        if rows:
            added = insert_into(self._database.kind, audit_awaited_workers)
            async with self._database.writing() as connection:
                await connection.execute(added.on_conflict_do_nothing(), rows)


def _pieces(items: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE))
