"""Background answers in the database: which worker makes each, under a lease, and their events.

Lease and events hang on the row of the answer and are deleted with it, so code that deletes, erases
or expires an answer need not know of them. Events are sealed like answers.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    ForeignKeyConstraint,
    LargeBinary,
    RowMapping,
    String,
    Table,
    and_,
    delete,
    exists,
    func,
    not_,
    select,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.background.runs import LEASE_US, Events, Place, Run, TakenAway
from gateway.clock import Clock
from gateway.continuing.kept_answers import KeptAnswer
from gateway.continuing.kept_conversations import KeptConversation
from gateway.errors import ConversationUnknown, PreviousResponseUnknown
from gateway.projects import Project
from gateway.secrets.envelope import MasterKey
from gateway.store.conversations import DatabaseConversations
from gateway.store.engine import Database
from gateway.store.held import is_held
from gateway.store.kept_answers import (
    answer_row,
    forget_in,
    is_erased_in,
    item_rows,
    kept_answers,
    kept_items,
    opened_about,
    sealed,
    sealed_answer,
)
from gateway.store.schema.owned import OWNER, is_of, owned_by, owner_columns, owner_of, same_owner
from gateway.store.schema.tables import metadata, projects


_AT_ONCE: Final = 20
_FORGOTTEN_AT_ONCE: Final = 200
_LEFT_US: Final = 0
"""The lease end given to what an earlier process of a worker left behind."""


def _of_answer() -> ForeignKeyConstraint:
    place = [*owner_columns(kept_answers), kept_answers.c.id]
    return ForeignKeyConstraint([*OWNER, "id"], place, ondelete="CASCADE")


background_runs = Table(
    "background_runs",
    metadata,
    Column("organisation", String(63), primary_key=True),
    Column("workspace", String(63), primary_key=True),
    Column("project", String(63), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("request_id", String(64), nullable=False),
    Column("conversation_id", String(64), nullable=False),
    Column("worker", String(32), nullable=False),
    Column("holder", String(64), nullable=False, index=True),
    Column("state", String(16), nullable=False),
    Column("leased_until_us", BigInteger, nullable=False, index=True),
    _of_answer(),
)
"""`id` is the answer's."""

background_events = Table(
    "background_events",
    metadata,
    Column("organisation", String(63), primary_key=True),
    Column("workspace", String(63), primary_key=True),
    Column("project", String(63), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("first_sequence", BigInteger, nullable=False),
    Column("last_sequence", BigInteger, nullable=False),
    Column("made_us", BigInteger, nullable=False, index=True),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("master_key_id", String(32), nullable=False, server_default="", index=True),
    _of_answer(),
)
"""`id` is the answer's; each row has a key of its own, which the master key wraps."""

_RUN: Final = background_runs.c
_EVENT: Final = background_events.c


class DatabaseRuns:
    """The `RunStore` of a running gateway; `clock` is the database's own, by which leases end."""

    def __init__(self, database: Database, master: MasterKey, clock: Clock) -> None:
        self._database = database
        self._master = master
        self._clock = clock
        self._conversations = DatabaseConversations(database, master)

    async def begin(self, answer: KeptAnswer, run: Run, count_max: int) -> bool:
        row = {
            **_place(run.place),
            "request_id": run.request_id,
            "conversation_id": run.conversation_id,
            "worker": run.worker,
            "holder": run.holder,
            "state": run.state,
            "leased_until_us": self._clock.utc_us() + LEASE_US,
        }
        its = select(projects.c.name).where(
            projects.c.organisation == run.project.organisation,
            projects.c.workspace == run.project.workspace,
            projects.c.name == run.project.name,
        )
        count = select(func.count()).where(*is_of(background_runs, run.project))
        async with self._database.writing() as connection:
            # Others who begin one for this project wait, so that none comes in between.
            await connection.execute(its.with_for_update(key_share=True))
            if (await connection.execute(count)).scalar_one() >= count_max:
                return False
            if await is_erased_in(connection, answer):
                raise PreviousResponseUnknown("What this goes on from is not there any more.")
            await connection.execute(kept_answers.insert(), answer_row(self._master, answer))
            await connection.execute(background_runs.insert(), row)
        return True

    async def start(self, run: Run) -> bool:
        values = {"state": "in_progress", "leased_until_us": self._clock.utc_us() + LEASE_US}
        change = update(background_runs).where(*_is(run.place), _RUN.holder == run.holder)
        async with self._database.writing() as connection:
            done = await connection.execute(change.where(_is_shown()).values(values))
        return bool(done.rowcount)

    async def find(self, place: Place) -> Run | None:
        query = select(background_runs).where(*_is(place), _is_shown())
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return None if row is None else _run_of(row)

    async def keep(self, holder: str) -> Mapping[Place, int]:
        mine, place = _RUN.holder == holder, [*owner_columns(background_runs), _RUN.id]
        # A run hidden by a hold is dropped by whoever finds it lapsed, if its maker could not. One
        # that somebody else is changing is skipped: waiting for several, while they are deleted
        # with their answers, would deadlock.
        free = select(*place).where(mine, _is_shown()).with_for_update(skip_locked=True)
        longer = update(background_runs).where(tuple_(*place).in_(free))
        longer = longer.values(leased_until_us=self._clock.utc_us() + LEASE_US)
        query = select(*place, _RUN.leased_until_us).where(mine, _is_shown())
        async with self._database.writing() as connection:
            await connection.execute(longer)
            rows = (await connection.execute(query)).mappings().all()
        return {(owner_of(row), row["id"]): row["leased_until_us"] for row in rows}

    async def end(
        self, answer: KeptAnswer, items: Collection[str] = (), *, holder: str = ""
    ) -> bool:
        is_mine = [_RUN.holder == holder] if holder else []
        return await self._end(answer, items, is_mine)

    async def end_lapsed(self, answer: KeptAnswer, run: Run) -> bool:
        is_over = _RUN.leased_until_us <= self._clock.utc_us()
        return await self._end(answer, (), [_RUN.holder == run.holder, is_over])

    async def end_turn(
        self,
        answer: KeptAnswer,
        items: Collection[str],
        turn: KeptConversation,
        now_us: int,
        *,
        holder: str,
    ) -> bool:
        is_mine = [_RUN.holder == holder]
        async with self._database.writing() as connection:
            await _lock(connection, (answer.project, answer.answer_id))
            if await is_erased_in(connection, answer):
                raise ConversationUnknown("It was erased meanwhile.")
            if not await self._conversations.write_in(connection, turn, now_us):
                return False
            if not await self._end_in(connection, answer, items, is_mine):
                # What was written of the turn is rolled back with it.
                raise TakenAway
        return True

    async def _end(
        self, answer: KeptAnswer, items: Collection[str], still: Sequence[ColumnElement[bool]]
    ) -> bool:
        async with self._database.writing() as connection:
            await _lock(connection, (answer.project, answer.answer_id))
            return await self._end_in(connection, answer, items, still)

    async def _end_in(
        self,
        connection: AsyncConnection,
        answer: KeptAnswer,
        items: Collection[str],
        still: Sequence[ColumnElement[bool]],
    ) -> bool:
        over = delete(background_runs).where(*_is((answer.project, answer.answer_id)), *still)
        its = [*is_of(kept_answers, answer.project), kept_answers.c.id == answer.answer_id]
        change = update(kept_answers).where(*its, kept_answers.c.expires_us > 0)
        if not (await connection.execute(over)).rowcount:
            return False
        if await is_erased_in(connection, answer):
            await forget_in(connection, its)
            return False
        values = sealed_answer(self._master, answer)
        if not (await connection.execute(change.values(values))).rowcount:
            return False  # Deleted under a hold, which keeps what had come by then.
        if rows := item_rows(answer, items):
            await connection.execute(kept_items.insert(), rows)
        return True

    async def drop(self, run: Run) -> None:
        its = [*is_of(kept_answers, run.project), kept_answers.c.id == run.answer_id]
        is_shown = exists().where(*its, kept_answers.c.expires_us > self._clock.utc_us())
        over = delete(background_runs).where(*_is(run.place), _RUN.holder == run.holder)
        async with self._database.writing() as connection:
            await connection.execute(over.where(not_(is_shown)))

    async def abandon(self, run: Run) -> None:
        over = delete(background_runs).where(*_is(run.place), _RUN.holder == run.holder)
        async with self._database.writing() as connection:
            await connection.execute(over)

    async def lapsed(self, *, left_only: bool = False) -> Sequence[Run]:
        since_us = _LEFT_US if left_only else self._clock.utc_us()
        query = select(background_runs).where(_RUN.leased_until_us <= since_us)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query.limit(_AT_ONCE))).mappings().all()
        return [_run_of(row) for row in rows]

    async def leave_earlier_lives(self, worker: str, holder: str) -> None:
        left = update(background_runs).where(_RUN.worker == worker, _RUN.holder != holder)
        async with self._database.writing() as connection:
            await connection.execute(left.values(leased_until_us=_LEFT_US))

    async def note(self, run: Run, events: Events) -> bool:
        about = about_events(run.project, run.answer_id, events.number)
        row = {
            **_place(run.place),
            "number": events.number,
            "first_sequence": events.first_sequence,
            "last_sequence": events.last_sequence,
            "made_us": self._clock.utc_us(),
            **sealed(self._master, about, (events.content, b"")),
        }
        async with self._database.writing() as connection:
            if not await _is_held_by(connection, run):
                return False
            # If it was written before but the reply was lost, it is written again unchanged.
            known = select(_EVENT.number).where(
                *is_of(background_events, run.project),
                _EVENT.id == run.answer_id,
                _EVENT.number == events.number,
            )
            if (await connection.execute(known)).first() is None:
                await connection.execute(background_events.insert(), row)
        return True

    async def events(self, place: Place, after: int) -> Sequence[Events]:
        its = [*is_of(background_events, place[0]), _EVENT.id == place[1]]
        query = select(background_events).where(*its, _EVENT.last_sequence > after)
        query = query.order_by(_EVENT.number).limit(_AT_ONCE)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [self._events_of(row) for row in rows]

    def _events_of(self, row: RowMapping) -> Events:
        about = about_events(owner_of(row), row["id"], row["number"])
        content, _ = opened_about(self._master, row, about)
        return Events(row["number"], row["first_sequence"], row["last_sequence"], content)

    async def last_event(self, place: Place) -> int:
        last = select(func.max(_EVENT.last_sequence)).where(
            *is_of(background_events, place[0]), _EVENT.id == place[1]
        )
        async with self._database.reading() as connection:
            number = (await connection.execute(last)).scalar_one()
        return -1 if number is None else int(number)

    async def forget_events(self, before_us: int) -> int:
        is_over = and_(_EVENT.made_us < before_us, not_(is_held(background_events)))
        some = select(_EVENT.made_us).where(is_over).order_by(_EVENT.made_us)
        gone, count = -1, 0
        while gone:
            async with self._database.reading() as connection:
                found = (await connection.execute(some.limit(_FORGOTTEN_AT_ONCE))).scalars().all()
            if not found:
                return count
            async with self._database.writing() as connection:
                these = delete(background_events).where(is_over, _EVENT.made_us <= found[-1])
                gone = (await connection.execute(these)).rowcount
            count += gone
        return count


def about_events(project: Project, answer_id: str, number: int) -> bytes:
    """What the ciphertext of some events is bound to."""
    return msgspec.msgpack.encode(("events of an answer", project, answer_id, number))


async def _is_held_by(connection: AsyncConnection, run: Run) -> bool:
    """Whether this holder has the answer under way; nobody ends it before this transaction does."""
    await _lock(connection, run.place)
    touch = update(background_runs).where(*_is(run.place), _RUN.holder == run.holder)
    return bool((await connection.execute(touch.values(state=_RUN.state))).rowcount)


async def _lock(connection: AsyncConnection, place: Place) -> None:
    """Lock an answer before its run, as deletion does: otherwise the two would deadlock."""
    its = select(kept_answers.c.id).where(
        *is_of(kept_answers, place[0]), kept_answers.c.id == place[1]
    )
    await connection.execute(its.with_for_update(key_share=True))


def _place(place: Place) -> dict[str, str]:
    return {**owned_by(place[0]), "id": place[1]}


def _is(place: Place) -> list[ColumnElement[bool]]:
    return [*is_of(background_runs, place[0]), _RUN.id == place[1]]


def _is_shown() -> ColumnElement[bool]:
    """Whether its answer was not deleted: under a hold the rows of a deleted one stay."""
    its = and_(*same_owner(background_runs, kept_answers), kept_answers.c.id == _RUN.id)
    return exists().where(its, kept_answers.c.expires_us > 0).correlate(background_runs)


def _run_of(row: RowMapping) -> Run:
    return Run(
        project=owner_of(row),
        answer_id=row["id"],
        request_id=row["request_id"],
        worker=row["worker"],
        holder=row["holder"],
        conversation_id=row["conversation_id"],
        state=row["state"],
    )
