"""Lines of batches in the database: claimed under a lease, ended exactly once, read in order."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, Update, and_, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.batches import ACTIVE, Batch, EndedLine, Line, LineCounts, LineEnd, LineState
from gateway.clock import Clock
from gateway.secrets.content_keys import ContentKey
from gateway.store.batching.leads import TAKEN_IN, Check, arriving, leading
from gateway.store.engine import Database
from gateway.store.schema.batches import batch_lines, batches


LEASE_US = 30_000_000
"""A line whose worker was silent for this long is sent again by the next worker that looks."""
READ_AT_ONCE = 20
READ_BYTES = 1024 * 1024
"""Answers held in memory together: one with vectors may be sixteen times as long."""
STATES_AT_ONCE = 500
_END = msgspec.msgpack.Decoder(LineEnd)


class Claim(Struct, frozen=True):
    """A line that this worker sends now."""

    batch: Batch
    line: Line
    holder: str
    claims: int
    """How often it was claimed, including this time: older claims can no longer end it."""
    failures: int
    leased_until_us: int = 0
    """When other workers may claim it, unless the lease is extended."""


class Unsent(Struct, frozen=True):
    """A batch that is not over, described without counting its waiting lines."""

    batch_id: str
    created_us: int
    has_waiting: bool
    running: int


class LineStore:
    """Lines of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(
        self, batch_id: str, key: ContentKey, lines: Sequence[Line], holder: str = ""
    ) -> None:
        """Add lines to a batch that has not begun and that this worker leads; raises LeadOver."""
        await self._add(batch_id, key, lines, leading(batch_id, holder, TAKEN_IN))

    async def receive(self, batch_id: str, key: ContentKey, lines: Sequence[Line]) -> None:
        """Add lines to a batch still arriving, which prolongs its reservation; raises LeadOver."""
        await self._add(batch_id, key, lines, arriving(batch_id, self._clock.utc_us()))

    async def _add(
        self, batch_id: str, key: ContentKey, lines: Sequence[Line], check: Check
    ) -> None:
        rows = [
            {
                "batch_id": batch_id,
                "number": line.number,
                "state": "waiting",
                "holder": "",
                **dict.fromkeys(("leased_until_us", "claims", "failures"), 0),
                # All of them are due; with distinct values a claim reads only the first in the
                # index instead of every waiting line.
                "due_us": line.number,
                "sealed_id": key.seal(line.custom_id.encode(), "id", line.number),
                "sealed_body": key.seal(line.body, "body", line.number),
            }
            for line in lines
        ]
        async with self._database.writing() as connection:
            await check(connection)
            if rows:
                await connection.execute(batch_lines.insert(), rows)

    async def clear(self, batch_id: str, holder: str) -> None:
        """Forget what an earlier attempt to receive a batch has left; raises LeadOver."""
        async with self._database.writing() as connection:
            await leading(batch_id, holder, TAKEN_IN)(connection)
            await connection.execute(batch_lines.delete().where(batch_lines.c.batch_id == batch_id))

    async def claim(
        self, batch: Batch, key: ContentKey, holder: str, count_max: int
    ) -> list[Claim]:
        """Claim lines for this worker to send; no other may until the lease has lapsed.

        Empty if the batch was cancelled, waits its turn, or has no line that is due.
        """
        now_us, mine = self._clock.utc_us(), batch_lines.c.batch_id == batch.batch_id
        is_served = (
            update(batches)
            .where(
                batches.c.id == batch.batch_id,
                batches.c.state == "in_progress",
                batches.c.due_us <= now_us,
            )
            .values(served_us=now_us)
        )
        chosen = (
            select(
                batch_lines.c.number,
                batch_lines.c.claims,
                batch_lines.c.failures,
                batch_lines.c.sealed_id,
                batch_lines.c.sealed_body,
            )
            .where(mine, batch_lines.c.state == "waiting", batch_lines.c.due_us <= now_us)
            .order_by(batch_lines.c.due_us, batch_lines.c.number)
            .limit(count_max)
        )
        async with self._database.writing() as connection:
            # The batch's row is locked by its change: nobody cancels it, or claims, in between.
            if not (await connection.execute(is_served)).rowcount:
                return []
            rows = (await connection.execute(chosen)).all()
            claimed = (
                update(batch_lines)
                .where(mine, batch_lines.c.number.in_([row.number for row in rows]))
                .values(
                    state="running",
                    holder=holder,
                    leased_until_us=now_us + LEASE_US,
                    claims=batch_lines.c.claims + 1,
                )
            )
            await connection.execute(claimed)
        return [_claim_of(row, batch, key, holder, now_us + LEASE_US) for row in rows]

    async def end(self, claim: Claim, key: ContentKey, end: LineEnd) -> bool:
        """Store how a line ended; False if the line no longer belongs to this claim."""
        number = claim.line.number
        values = ending_of(key, number, end)
        goes_on = and_(batches.c.id == claim.batch.batch_id, batches.c.stalls > 0)
        async with self._database.writing() as connection:
            # Batch before lines, as in `claim`, so that two workers never deadlock.
            await connection.execute(update(batches).where(goes_on).values(stalls=0, due_us=0))
            result = await connection.execute(is_claimed(claim).values(**values))
            return bool(result.rowcount)

    async def put_back(
        self, claim: Claim, due_us: int, *, failures: int = 0, rests_until_us: int = 0
    ) -> bool:
        """Put an unanswered line back to wait, and its complete batch with it if necessary."""
        now_us = self._clock.utc_us()
        rests = (
            update(batches)
            .where(batches.c.id == claim.batch.batch_id, batches.c.due_us <= now_us)
            .values(due_us=rests_until_us, stalls=batches.c.stalls + 1)
        )
        values = {"state": "waiting", "holder": "", "due_us": due_us, "failures": failures}
        async with self._database.writing() as connection:
            if rests_until_us:
                await connection.execute(rests)
            return bool((await connection.execute(is_claimed(claim).values(**values))).rowcount)

    async def stalls(self, batch_id: str) -> int:
        """How many times in a row a batch had to pause."""
        query = select(batches.c.stalls).where(batches.c.id == batch_id)
        async with self._database.reading() as connection:
            return (await connection.execute(query)).scalar_one_or_none() or 0

    async def keep(self, holder: str, numbers: Mapping[str, Collection[int]]) -> int:
        """Extend the leases of lines that this worker has under way; returns until when.

        Not of all lines that are its own in the database: no worker works on a claim whose answer
        was lost because the database went away.
        """
        until_us = self._clock.utc_us() + LEASE_US
        columns = batch_lines.c
        async with self._database.writing() as connection:
            for batch_id in sorted(numbers):
                mine = update(batch_lines).where(
                    columns.batch_id == batch_id,
                    columns.number.in_(numbers[batch_id]),
                    columns.state == "running",
                    columns.holder == holder,
                )
                await connection.execute(mine.values(leased_until_us=until_us))
        return until_us

    async def lost(self, batch_id: str, claims: Mapping[int, int]) -> set[int]:
        """Which lines, given with their numbers of claims, wait again or were claimed since."""
        columns = batch_lines.c
        query = select(columns.number, columns.state, columns.claims).where(
            columns.batch_id == batch_id, columns.number.in_(claims)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return {
            number for number, state, count in rows if state == "waiting" or count > claims[number]
        }

    async def free_lapsed(self) -> int:
        """Let lines wait again whose worker has fallen silent; returns how many."""
        now_us = self._clock.utc_us()
        return await self._free(batch_lines.c.leased_until_us <= now_us)

    async def free_earlier_lives(self, worker: str, holder: str) -> int:
        """The same at once, for lines of earlier processes of this worker."""
        return await self._free(
            batch_lines.c.holder.startswith(f"{worker}.", autoescape=True),
            batch_lines.c.holder != holder,
        )

    async def free(self, holder: str) -> int:
        """The same for lines of this worker, which is stopping."""
        return await self._free(batch_lines.c.holder == holder)

    async def give_up(self, batch_id: str, state: LineState) -> None:
        """End all waiting lines of a batch in this state, without sending them."""
        waiting = update(batch_lines).where(
            batch_lines.c.batch_id == batch_id, batch_lines.c.state == "waiting"
        )
        async with self._database.writing() as connection:
            await connection.execute(waiting.values(state=state))

    async def counts(self, batch_id: str) -> LineCounts:
        async with self._database.reading() as connection:
            return (await counts_of(connection, [batch_id]))[batch_id]

    async def states(self, batch_id: str, numbers: Sequence[int]) -> dict[int, str]:
        """The states of these lines of a batch; lines that are gone are left out."""
        found: dict[int, str] = {}
        columns = batch_lines.c
        for start in range(0, len(numbers), STATES_AT_ONCE):
            some = numbers[start : start + STATES_AT_ONCE]
            query = select(columns.number, columns.state).where(
                columns.batch_id == batch_id, columns.number.in_(some)
            )
            async with self._database.reading() as connection:
                rows = (await connection.execute(query)).all()
            found |= {row.number: row.state for row in rows}
        return found

    async def were_erased(self, batch_id: str, *, is_parked: bool) -> bool:
        """Whether lines missing from a batch were erased; a finished batch lacks all of them.

        Of a finished batch it is known only that some were: lines that waited for a vendor
        (`is_parked`) can only have been erased if they have no outcome; all others were cut off.
        """
        query = select(batches.c.state, batches.c.erased).where(batches.c.id == batch_id)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).first()
        if row is not None and row.state in ACTIVE:
            return True
        return is_parked and (row is None or row.erased > 0)

    async def ended(self, batch: Batch, key: ContentKey) -> AsyncIterator[list[EndedLine]]:
        """Lines with their ends in the order of the batch, in groups; fewer if they are long."""
        columns = batch_lines.c
        of_batch = select(
            *(columns.number, columns.state, columns.failures),
            *(columns.sealed_id, columns.sealed_end),
        ).where(columns.batch_id == batch.batch_id)
        async for first, last in self._groups(batch.batch_id):
            query = of_batch.where(columns.number.between(first, last)).order_by(columns.number)
            async with self._database.reading() as connection:
                rows = (await connection.execute(query)).all()
            yield [_ended_line(row, key) for row in rows]

    async def _groups(self, batch_id: str) -> AsyncIterator[tuple[int, int]]:
        """First and last numbers of lines that are read together."""
        last, columns = 0, batch_lines.c
        length = func.coalesce(func.length(columns.sealed_end), 0)
        of_batch = select(columns.number, length).where(columns.batch_id == batch_id)
        while True:
            query = of_batch.where(columns.number > last).order_by(columns.number)
            async with self._database.reading() as connection:
                rows = (await connection.execute(query.limit(STATES_AT_ONCE))).all()
            if not rows:
                return
            last = rows[-1].number
            group: list[int] = []
            held_bytes = 0
            for number, length_bytes in rows:
                held_bytes += length_bytes
                if group and (held_bytes > READ_BYTES or len(group) >= READ_AT_ONCE):
                    yield group[0], group[-1]
                    group, held_bytes = [], length_bytes
                group.append(number)
            yield group[0], group[-1]

    async def unsent(self) -> list[Unsent]:
        """Batches that are not over; only their running lines are counted."""
        mine, state = batch_lines.c.batch_id == batches.c.id, batch_lines.c.state
        running = select(func.count()).where(mine, state == "running").scalar_subquery()
        query = select(
            *(batches.c.id, batches.c.created_us),
            exists().where(mine, state == "waiting"),
            running,
        ).where(batches.c.state.in_(ACTIVE))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [Unsent(name, made_us, bool(waits), runs) for name, made_us, waits, runs in rows]

    async def count_waiting(self, batch_id: str) -> int:
        """How many lines of one batch wait; this reads each of them in an index."""
        query = select(func.count()).where(
            batch_lines.c.batch_id == batch_id, batch_lines.c.state == "waiting"
        )
        async with self._database.reading() as connection:
            return (await connection.execute(query)).scalar_one()

    async def _free(self, *which: ColumnElement[bool]) -> int:
        freed = update(batch_lines).where(*_running(), *which).values(state="waiting", holder="")
        async with self._database.writing() as connection:
            return (await connection.execute(freed)).rowcount


async def counts_of(
    connection: AsyncConnection, batch_ids: Collection[str]
) -> dict[str, LineCounts]:
    """The lines of these batches, counted as they are now."""
    query = (
        select(batch_lines.c.batch_id, batch_lines.c.state, func.count())
        .where(batch_lines.c.batch_id.in_(batch_ids))
        .group_by(batch_lines.c.batch_id, batch_lines.c.state)
    )
    found: dict[str, dict[str, int]] = {batch_id: {} for batch_id in batch_ids}
    if batch_ids:
        for batch_id, state, count in (await connection.execute(query)).all():
            found[batch_id][state] = count
    return {batch_id: LineCounts(**states) for batch_id, states in found.items()}


def _running() -> tuple[ColumnElement[bool], ...]:
    """The condition for lines under way, by batch, since there is an index of batches."""
    active = select(batches.c.id).where(batches.c.state.in_(ACTIVE))
    return batch_lines.c.batch_id.in_(active), batch_lines.c.state == "running"


def is_claimed(claim: Claim) -> Update:
    """An update of the line that applies only while it is this claim's."""
    return update(batch_lines).where(
        batch_lines.c.batch_id == claim.batch.batch_id,
        batch_lines.c.number == claim.line.number,
        batch_lines.c.state == "running",
        batch_lines.c.holder == claim.holder,
        batch_lines.c.claims == claim.claims,
    )


def ending_of(key: ContentKey, number: int, end: LineEnd) -> dict[str, Any]:
    """The values that the end of a line changes in its row."""
    sealed = key.seal(msgspec.msgpack.encode(end), "end", number)
    return {"state": end.state, "holder": "", "sealed_end": sealed}


def _claim_of(row: Any, batch: Batch, key: ContentKey, holder: str, until_us: int) -> Claim:
    return Claim(batch, opened_line(row, key), holder, row.claims + 1, row.failures, until_us)


def opened_line(row: Any, key: ContentKey) -> Line:
    """The content of a line; damaged ones are returned too, so that others need not wait."""
    name = key.opened(row.sealed_id, "id", row.number)
    body = key.opened(row.sealed_body, "body", row.number)
    is_damaged = name is None or body is None
    return Line(row.number, (name or b"").decode(), body or b"", is_damaged)


def _ended_line(row: Any, key: ContentKey) -> EndedLine:
    name = (key.opened(row.sealed_id, "id", row.number) or b"").decode()
    if not row.sealed_end:
        return EndedLine(row.number, name, row.state, None, was_tried=row.failures > 0)
    raw = key.opened(row.sealed_end, "end", row.number)
    try:
        return EndedLine(row.number, name, row.state, _END.decode(raw or b""))
    except msgspec.MsgspecError:
        return EndedLine(row.number, name, "errored", None, is_damaged=True)
