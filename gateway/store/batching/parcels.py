"""Parcels in the database: parked lines grouped for one vendor batch, and the state of each."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import and_, delete, exists, func, or_, select, update

from gateway.clock import Clock
from gateway.store.batching.parcel_rows import (
    ROW,
    Loose,
    ParcelRow,
    TermOver,
    change,
    is_for,
    of_term,
    parcel_row,
    tended_until_us,
)
from gateway.store.batching.past_parcels import is_past, remember
from gateway.store.batching.unsent_lines import settle
from gateway.store.engine import Database
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.parcels import parcels, parked_lines, vendor_copies
from gateway.store.speech import insert_into


CRASHED_REST_US = 5_000_000
"""When a parcel is due again whose step crashed without saying so."""
_LINES = parked_lines.c


class ParcelStore:
    """Parcels of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def loose(self, holder: str, old_us: int) -> list[Loose]:
        """This worker's lines that are in no parcel, and everybody's that are older."""
        now_us = self._clock.utc_us()
        is_coming = exists().where(
            batch_lines.c.batch_id == _LINES.batch_id,
            or_(
                batch_lines.c.state == "running",
                and_(batch_lines.c.state == "waiting", batch_lines.c.due_us <= now_us),
            ),
        )
        query = (
            select(
                _LINES.batch_id,
                _LINES.provider,
                _LINES.target,
                func.count(),
                func.sum(_LINES.size_bytes),
                func.min(_LINES.parked_us),
                is_coming,
                batches.c.state,
            )
            .join(batches, batches.c.id == _LINES.batch_id)
            .where(_LINES.parcel == "", is_for(holder, old_us))
            .group_by(_LINES.batch_id, _LINES.provider, _LINES.target, batches.c.state)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [
            Loose(
                row[0],
                row[1],
                row[2],
                row[3],
                int(row[4]),
                row[5],
                not row[6] or row[7] != "in_progress",
                old_us,
            )
            for row in rows
        ]

    async def make(
        self, parcel_id: str, loose: Loose, holder: str, lines_max: int, bytes_max: int
    ) -> int:
        """Put these lines into a new parcel, led by this worker; returns how many."""
        now_us = self._clock.utc_us()
        which = and_(
            _LINES.batch_id == loose.batch_id,
            _LINES.parcel == "",
            _LINES.provider == loose.provider,
            _LINES.target == loose.target,
            is_for(holder, loose.old_us),
        )
        query = (
            select(_LINES.number, _LINES.size_bytes)
            .where(which)
            .order_by(_LINES.number)
            .limit(lines_max)
        )
        async with self._database.writing() as connection:
            numbers: list[int] = []
            total = 0
            for number, size_bytes in (await connection.execute(query)).all():
                total += size_bytes
                if numbers and total > bytes_max:
                    break
                numbers.append(number)
            taken = update(parked_lines).where(which, _LINES.number.in_(numbers))
            count = (await connection.execute(taken.values(parcel=parcel_id))).rowcount
            if count:
                row = {
                    "id": parcel_id,
                    "batch_id": loose.batch_id,
                    "provider": loose.provider,
                    "state": "new",
                    "vendor_id": "",
                    "lines": count,
                    "made_us": now_us,
                    "due_us": now_us,
                    "tries": 0,
                    "tender": holder,
                    "tended_until_us": tended_until_us(now_us),
                }
                await connection.execute(parcels.insert(), row)
        return count

    async def due(self, holder: str, count_max: int) -> list[ParcelRow]:
        """Parcels of this worker, or of nobody, that are due.

        A parcel is due at once if nobody wants its answers any more, or an erasure reached it.
        """
        now_us = self._clock.utc_us()
        columns = parcels.c
        is_over = exists().where(
            batches.c.id == columns.batch_id, batches.c.state.in_(("cancelling", "finalizing"))
        )
        is_unwanted = or_(is_over, columns.is_erased == 1)
        query = (
            select(*ROW)
            .where(
                or_(columns.due_us <= now_us, and_(columns.state == "submitted", is_unwanted)),
                or_(columns.tender == holder, columns.tended_until_us <= now_us),
            )
            .order_by(columns.due_us)
            .limit(count_max)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [parcel_row(row) for row in rows]

    async def take(self, parcel_id: str, holder: str) -> ParcelRow | None:
        """Take the lead of a parcel and return its state; None if another worker leads it.

        It becomes due again behind others: each step says when the next one is, unless it crashes.
        """
        now_us = self._clock.utc_us()
        mine = update(parcels).where(
            parcels.c.id == parcel_id,
            or_(parcels.c.tender == holder, parcels.c.tended_until_us <= now_us),
        )
        values = {
            "tender": holder,
            "tended_until_us": tended_until_us(now_us),
            "due_us": now_us + CRASHED_REST_US,
        }
        taken = mine.values(**values, term=parcels.c.term + 1).returning(*ROW)
        async with self._database.writing() as connection:
            row = (await connection.execute(taken)).mappings().one_or_none()
        return parcel_row(row) if row is not None else None

    async def keep(self, holder: str, *, is_leaving: bool = False) -> None:
        """Renew all leads of this worker, or leave them to others."""
        until_us = 0 if is_leaving else tended_until_us(self._clock.utc_us())
        mine = update(parcels).where(parcels.c.tender == holder)
        async with self._database.writing() as connection:
            await connection.execute(mine.values(tended_until_us=until_us))

    async def take_over(self, worker: str, holder: str) -> None:
        """Take over at once what an earlier process of this worker led."""
        mine = {"tender": holder, "due_us": self._clock.utc_us()}
        tended = parcels.c.tender.startswith(f"{worker}.", autoescape=True)
        parked = _LINES.holder.startswith(f"{worker}.", autoescape=True)
        async with self._database.writing() as connection:
            await connection.execute(update(parked_lines).where(parked).values(holder=holder))
            await connection.execute(update(parcels).where(tended).values(**mine))

    async def note(self, parcel_id: str, term: int, **values: Any) -> None:
        """Store the state of a parcel; raises TermOver."""
        async with self._database.writing() as connection:
            await change(connection, parcel_id, term, **values)
            state = values.get("state", "submitting")
            if state != "submitting":
                # A parcel that is new again was refused; in any other state the vendor has it.
                await settle(connection, parcel_id, is_refused=state == "new")

    async def begin_sending(
        self,
        parcel_id: str,
        term: int,
        lines: int,
        due_us: int,
        others: Collection[int] = (),
    ) -> bool:
        """Mark that bytes may leave from now on; False if lines were erased since they were read.

        `others` are numbers of its lines that wait for another parcel from now on.

        Raises:
            TermOver: another worker sends it, or has sent it.
        """
        mine = of_term(parcel_id, term).where(parcels.c.is_erased == 0)
        now_us = self._clock.utc_us()
        until_us = tended_until_us(now_us)
        values = {"state": "submitting", "tries": 0, "lines": lines, "due_us": due_us}
        leaving = update(parked_lines).where(_LINES.parcel == parcel_id, _LINES.number.in_(others))
        async with self._database.writing() as connection:
            if others:
                # Lines before parcels, as everywhere.
                await connection.execute(leaving.values(parcel=""))
            sent = await connection.execute(mine.values(**values, tended_until_us=until_us))
            if not sent.rowcount:
                # Sent at once, without those lines.
                await change(connection, parcel_id, term, due_us=now_us)
            return bool(sent.rowcount)

    async def found_late(self, row: ParcelRow, vendor_id: str) -> bool:
        """Note that a vendor has a parcel thought lost; returns whether it has only this one.

        True if it is still looked for, or if this one was found earlier and released again.
        """
        now_us = self._clock.utc_us()
        looked_for = update(parcels).where(
            parcels.c.id == row.parcel_id,
            or_(parcels.c.state == "submitting", parcels.c.vendor_id == vendor_id),
        )
        values = {"state": "submitted", "vendor_id": vendor_id, "tries": 0, "due_us": now_us}
        async with self._database.writing() as connection:
            await settle(connection, row.parcel_id, is_refused=False)
            found = looked_for.values(**values, term=parcels.c.term + 1)
            is_found = bool((await connection.execute(found)).rowcount)
            return is_found or await is_past(connection, row.parcel_id, vendor_id)

    async def follow_stray(self, row: ParcelRow, vendor_id: str) -> None:
        """Follow a parcel that a vendor has, although its lines went on without it.

        It stays here as a parcel without lines, until its leader has had it cancelled and deleted.
        """
        stray = {
            "id": row.parcel_id,
            "batch_id": row.batch_id,
            "provider": row.provider,
            "state": "cancelling",
            "vendor_id": vendor_id,
            "lines": row.lines,
            "made_us": row.made_us,
            "due_us": self._clock.utc_us(),
            "tries": 0,
            "tender": "",
            "tended_until_us": 0,
        }
        statement = insert_into(self._database.kind, parcels).values(stray)
        async with self._database.writing() as connection:
            # It may exist already, by a commit whose answer was lost.
            await connection.execute(statement.on_conflict_do_nothing())

    async def renamed(self, parcel_id: str, new_id: str, term: int, due_us: int = 0) -> None:
        """Send a parcel under another name, since the vendor never got it; raises TermOver."""
        async with self._database.writing() as connection:
            # Lines before parcels, as in an erasure, so that two never deadlock.
            lines = update(parked_lines).where(_LINES.parcel == parcel_id)
            await connection.execute(lines.values(parcel=new_id))
            fresh = {"id": new_id, "state": "new", "tries": 1, "due_us": due_us}
            doubts = parcels.c.is_doubtful + 1
            await change(connection, parcel_id, term, **fresh, is_doubtful=doubts)
            await settle(connection, parcel_id, is_refused=False)
            copies = update(vendor_copies).where(vendor_copies.c.parcel == parcel_id)
            await connection.execute(copies.values(parcel=new_id))

    async def forget(self, parcel_id: str, term: int, *, is_refused: bool) -> None:
        """Delete a parcel; its vendor may never have accepted it.

        Raises:
            TermOver
        """
        mine = delete(parcels).where(parcels.c.id == parcel_id, parcels.c.term == term)
        async with self._database.writing() as connection:
            gone = (await connection.execute(mine.returning(parcels.c.vendor_id))).first()
            if gone is None:
                raise TermOver
            if gone.vendor_id:
                await remember(connection, parcel_id, gone.vendor_id, self._clock.utc_us())
            await settle(connection, parcel_id, is_refused=is_refused)

    async def numbers(self, parcel_id: str) -> dict[int, bool]:
        """The lines that still wait in a parcel, and whether each was about to end."""
        query = select(_LINES.number, _LINES.is_ending).where(_LINES.parcel == parcel_id)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query.order_by(_LINES.number))).all()
        return {row.number: bool(row.is_ending) for row in rows}
