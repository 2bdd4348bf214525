"""Lines that wait for a vendor's batch: parked under their claim, ended under a parcel's term."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Select, and_, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.batches import LineEnd
from gateway.clock import Clock
from gateway.secrets.content_keys import ContentKey
from gateway.store.batching.lines import Claim, ending_of, is_claimed, opened_line
from gateway.store.batching.parcel_rows import ParcelRow, ParkedLine, change, tended_until_us
from gateway.store.engine import Database
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.parcels import parcels, parked_lines


WRITES_WITHIN = 2
"""Outcomes may be written during one part in this many of a term: no other worker begins then."""
_LINES = parked_lines.c


class ParkedLineStore:
    """Parked lines of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def park(
        self,
        claim: Claim,
        key: ContentKey,
        provider: str,
        target: str,
        ticket: bytes,
        also: Callable[[AsyncConnection], Awaitable[None]] | None = None,
    ) -> bool:
        """Park a claimed line; False if it no longer belongs to this claim.

        `also` is done in the same transaction.
        """
        number = claim.line.number
        row = {
            "batch_id": claim.batch.batch_id,
            "number": number,
            "holder": claim.holder,
            "provider": provider,
            "target": target,
            "parcel": "",
            "is_ending": 0,
            "failures": claim.failures,
            "size_bytes": len(ticket),
            "parked_us": self._clock.utc_us(),
            "sealed_ticket": key.seal(ticket, "ticket", number),
        }
        async with self._database.writing() as connection:
            parked = is_claimed(claim).values(state="parked", holder="")
            if not (await connection.execute(parked)).rowcount:
                # It no longer belongs to this claim, or it was parked by a commit whose answer was
                # lost.
                return (await connection.execute(_parked_by(claim))).first() is not None
            await connection.execute(parked_lines.insert(), row)
            if also is not None:
                await also(connection)
        return True

    async def lines(
        self, batch_id: str, key: ContentKey, numbers: Sequence[int]
    ) -> list[ParkedLine]:
        """Parked lines with their tickets."""
        joined = and_(
            batch_lines.c.batch_id == _LINES.batch_id, batch_lines.c.number == _LINES.number
        )
        query = (
            select(
                _LINES.number,
                _LINES.sealed_ticket,
                _LINES.failures,
                *(_LINES.is_ending, _LINES.target, _LINES.provider, _LINES.parked_us),
                batch_lines.c.sealed_id,
                batch_lines.c.sealed_body,
            )
            .join(batch_lines, joined)
            .where(_LINES.batch_id == batch_id, _LINES.number.in_(numbers))
            .order_by(_LINES.number)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [_parked_line(row, key) for row in rows]

    async def begin_ending(
        self,
        row: ParcelRow,
        numbers: Sequence[int],
        also: Callable[[AsyncConnection], Awaitable[None]],
    ) -> int:
        """Note that outcomes of these lines will be written; returns until when they may be.

        `also` is done in the same transaction: who pays is settled with who ends. Raises TermOver.
        """
        now_us = self._clock.utc_us()
        until_us = tended_until_us(now_us)
        which = and_(_LINES.batch_id == row.batch_id, _LINES.number.in_(numbers))
        async with self._database.writing() as connection:
            # Lines before parcels, as everywhere.
            await connection.execute(update(parked_lines).where(which).values(is_ending=1))
            await change(connection, row.parcel_id, row.term, tended_until_us=until_us)
            await also(connection)
        return now_us + (until_us - now_us) // WRITES_WITHIN

    async def end(
        self,
        row: ParcelRow,
        key: ContentKey,
        ends: Mapping[int, LineEnd | tuple[int, int]],
        also: Callable[[AsyncConnection], Awaitable[None]],
    ) -> None:
        """End parked lines, or let them wait again: until when, and after how many failures.

        `also` is done in the same transaction: nobody comes back to what was noted for them.

        Raises:
            TermOver: another worker ends them, or has ended them.
        """
        batch_id = row.batch_id
        async with self._database.writing() as connection:
            # Batch before lines, as everywhere, so that two workers never deadlock.
            mine = update(batches).where(batches.c.id == batch_id)
            await connection.execute(mine.values(served_us=batches.c.served_us))
            for number, end in ends.items():
                await _end(connection, batch_id, key, number, end)
            await change(connection, row.parcel_id, row.term, due_us=parcels.c.due_us)
            await also(connection)


def _parked_by(claim: Claim) -> Select[tuple[int]]:
    """The line, if it is parked under this very claim: a newer one may be of the same worker."""
    joined = and_(batch_lines.c.batch_id == _LINES.batch_id, batch_lines.c.number == _LINES.number)
    return (
        select(_LINES.number)
        .join(batch_lines, joined)
        .where(
            _LINES.batch_id == claim.batch.batch_id,
            _LINES.number == claim.line.number,
            _LINES.holder == claim.holder,
            batch_lines.c.claims == claim.claims,
        )
    )


async def _end(
    connection: AsyncConnection,
    batch_id: str,
    key: ContentKey,
    number: int,
    end: LineEnd | tuple[int, int],
) -> None:
    values: dict[str, Any]
    if isinstance(end, LineEnd):
        values = ending_of(key, number, end)
    else:
        values = {"state": "waiting", "due_us": end[0], "failures": end[1]}
    is_line = and_(batch_lines.c.batch_id == batch_id, batch_lines.c.number == number)
    line = update(batch_lines).where(is_line, batch_lines.c.state == "parked")
    await connection.execute(line.values(**values))
    await connection.execute(
        delete(parked_lines).where(_LINES.batch_id == batch_id, _LINES.number == number)
    )


def _parked_line(row: Any, key: ContentKey) -> ParkedLine:
    ticket = key.opened(row.sealed_ticket, "ticket", row.number) or b""
    return ParkedLine(
        opened_line(row, key),
        ticket,
        row.failures,
        bool(row.is_ending),
        row.target,
        row.provider,
        row.parked_us,
    )
