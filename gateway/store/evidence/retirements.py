"""Retires names of gone workers: one person asks, another agrees; nobody does both.

The second person agrees to what was shown when it was asked for: if anything that the worker wrote
has reached the database since, or the worker was heard of, nothing is retired, and somebody has to
ask again.
"""

import secrets
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import ColumnElement, RowMapping, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.actors import ACTOR_CHARS_MAX, same_person
from gateway.audit.projecting.projection import START, Position
from gateway.audit.second import SECOND_SUFFIX
from gateway.clock import Clock
from gateway.errors import ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.store.deciding import decided, write_decided
from gateway.store.engine import Database
from gateway.store.evidence.gone_workers import GONE_AFTER_S
from gateway.store.evidence.retiring import Retired, retire_within
from gateway.store.pages import Order, Part, part_behind
from gateway.store.schema.audit import audit_positions, gone_workers, worker_retirements
from gateway.store.workers import workers


RetirementState = Literal["waiting", "approved", "declined", "withdrawn", "overtaken"]
LISTED_MAX: Final = 100
_ID_BYTES: Final = 6
_R: Final = worker_retirements.c
_OLDEST: Final = Order((_R.asked_us, _R.id))
_NEWEST: Final = Order((_R.asked_us, _R.id), frozenset({0}))


class Shown(Struct, frozen=True):
    """What was known of a worker when its retirement was requested."""

    position: Position
    """Up to where its segments were projected."""
    second: Position
    heard_us: int
    """When it was last heard of; 0 if that is forgotten."""
    requests: int = 0
    lines: int = 0
    waiting: int = 0
    unreadable: int = 0
    since_us: int = 0


class Retirement(Struct, frozen=True):
    """A request to retire a worker's name, and its result."""

    id: str
    worker: str
    shown: Shown
    asked_by: str
    reason: str
    asked_us: int
    state: RetirementState = "waiting"
    """`overtaken` if it was retired at the command line."""
    decided_by: str = ""
    comment: str = ""
    decided_us: int = 0


class Retirements:
    """The requests to retire names in one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def waiting(
        self, first: int = 0, limit: int = LISTED_MAX, after: str = ""
    ) -> Part[Retirement]:
        """Requests that wait, oldest first; `after` is the key of the last one before them."""
        query = select(worker_retirements).where(_R.state == "waiting")
        async with self._database.reading() as connection:
            place = (first, after)
            return await part_behind(connection, query, _OLDEST, place, limit, _retirement)

    async def waiting_of(self, worker: str) -> Retirement | None:
        found = await self._read(_R.state == "waiting", _R.worker == worker)
        return found[0] if found else None

    async def newest(self) -> list[Retirement]:
        """The newest requests in any state, newest first."""
        return await self._read()

    async def page(self, first: int, limit: int, after: str = "") -> Part[Retirement]:
        """A page of them in the same order, including those too old for `newest`."""
        query, place = select(worker_retirements), (first, after)
        async with self._database.reading() as connection:
            return await part_behind(connection, query, _NEWEST, place, limit, _retirement)

    async def of(self, worker: str) -> list[Retirement]:
        """The requests about one worker, newest first."""
        return await self._read(_R.worker == worker)

    async def retirement(self, retirement_id: str) -> Retirement | None:
        found = await self._read(_R.id == retirement_id)
        return found[0] if found else None

    async def ask(self, worker: str, shown: Shown, actor: str, reason: str) -> Retirement:
        """Record a request to retire a name, for somebody else to decide.

        Raises:
            RequestInvalid: it is retired, or retirement was requested already.
        """
        same = select(_R.id).where(_R.worker == worker, _R.state == "waiting")
        made = Retirement(
            id=secrets.token_hex(_ID_BYTES),
            worker=worker,
            shown=shown,
            asked_by=actor[:ACTOR_CHARS_MAX],
            reason=reason,
            asked_us=self._clock.utc_us(),
        )
        async with self._database.writing() as connection:
            await _require_unretired(connection, worker)
            if (await connection.execute(same)).first() is not None:
                raise RequestInvalid("somebody asked for this already", parameter="worker")
            await connection.execute(insert(worker_retirements).values(_row_of(made)))
        return made

    async def approve(self, retirement_id: str, actor: str, comment: str) -> Retirement:
        """Retire the name: nothing of the worker is numbered any more.

        Raises:
            Forbidden: they requested it themselves.
            ChangedMeanwhile: the worker is alive, or newer records of it are known.
            RequestInvalid: no such request waits.
        """
        now_us = self._clock.utc_us()
        async with self._database.writing() as connection:
            found = await _waiting(connection, retirement_id)
            if same_person(actor, found.asked_by):
                raise Forbidden("A worker is retired by somebody else than who asked for it.")
            await _require_unretired(connection, found.worker)
            await self._require_as_shown(connection, found)
            after = decided(found, "approved", actor, comment, now_us)
            await _end(connection, after)
            heard_us = found.shown.heard_us or now_us
            retired = Retired(found.worker, heard_us, now_us, after.decided_by, found.reason)
            await retire_within(connection, retired)
        return after

    async def end(
        self,
        retirement_id: str,
        actor: str,
        comment: str,
        state: Literal["declined", "withdrawn"],
    ) -> Retirement:
        """Decline or withdraw the request.

        Raises:
            Forbidden: it is withdrawn by somebody other than who made it, or declined by who made
                it.
            RequestInvalid: no such request waits.
        """
        async with self._database.writing() as connection:
            found = await _waiting(connection, retirement_id)
            if same_person(actor, found.asked_by) is not (state == "withdrawn"):
                raise Forbidden("It is withdrawn by who asked for it, and declined by others.")
            after = decided(found, state, actor, comment, self._clock.utc_us())
            await _end(connection, after)
        return after

    async def _require_as_shown(self, connection: AsyncConnection, found: Retirement) -> None:
        spoke = select(workers.c.seen_us).where(workers.c.worker == found.worker)
        seen_us = (await connection.execute(spoke)).scalar_one_or_none() or 0
        if self._clock.utc_us() - seen_us < GONE_AFTER_S * 1e6:
            raise ChangedMeanwhile(
                f"worker {found.worker} was heard of less than a quarter of an hour ago"
            )
        shown = found.shown
        places = {found.worker: shown.position, found.worker + SECOND_SUFFIX: shown.second}
        columns = audit_positions.c
        query = select(audit_positions).where(columns.worker.in_(places)).with_for_update()
        rows = (await connection.execute(query)).all()
        now = {row.worker: (row.segment, row.offset_bytes) for row in rows}
        if any(now.get(name, START) != place for name, place in places.items()):
            raise ChangedMeanwhile(
                f"more of what {found.worker} wrote is known by now than when this was asked for:"
                " look at it and ask anew"
            )

    async def _read(self, *conditions: ColumnElement[bool]) -> list[Retirement]:
        """Requests that meet these conditions, newest first."""
        query = _NEWEST.reading(select(worker_retirements).where(*conditions))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query.limit(LISTED_MAX))).mappings().all()
        return [_retirement(row) for row in rows]


async def _require_unretired(connection: AsyncConnection, worker: str) -> None:
    query = select(gone_workers.c.retired_us).where(gone_workers.c.worker == worker)
    if (await connection.execute(query)).scalar_one_or_none():
        raise RequestInvalid(f"the name {worker} is retired already", parameter="worker")


async def _waiting(connection: AsyncConnection, retirement_id: str) -> Retirement:
    query = select(worker_retirements).where(_R.id == retirement_id)
    row = (await connection.execute(query)).mappings().one_or_none()
    if row is None:
        raise RequestInvalid("nobody asked for such a thing", parameter="id")
    found = _retirement(row)
    if found.state != "waiting":
        raise RequestInvalid(f"this is {found.state}", parameter="id")
    return found


async def _end(connection: AsyncConnection, after: Retirement) -> None:
    """Raises RequestInvalid if somebody else decided it at the same moment."""
    change = update(worker_retirements).where(_R.id == after.id, _R.state == "waiting")
    await write_decided(connection, change, after, said="this")


def _row_of(made: Retirement) -> dict[str, Any]:
    return asdict(made) | {"shown": msgspec.json.encode(made.shown).decode()}


def _retirement(row: RowMapping) -> Retirement:
    shown = msgspec.json.decode(row["shown"], type=Shown)
    return Retirement(**(dict(row) | {"shown": shown}))
