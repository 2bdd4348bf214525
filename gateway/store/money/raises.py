"""Requests for larger limits: one person asks, another agrees, for good or until a moment.

A request builds on the limit that its author saw: once the limit changes, the request is overtaken,
whether it waits or was agreed to. A raise until a moment ends by itself at that moment, and the
limit that held before returns.
"""

import secrets
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import ColumnElement, RowMapping, and_, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.actors import ACTOR_CHARS_MAX, same_person
from gateway.clock import Clock
from gateway.errors import ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.money.budgets import BudgetKey, Limit, WindowKind
from gateway.store.deciding import decided, write_decided
from gateway.store.engine import Database
from gateway.store.money.budget_rows import MEANWHILE, amount_mark, is_one_of
from gateway.store.money.limiting import limited, locked, overtake
from gateway.store.pages import Order, Part, count_by, part_behind
from gateway.store.schema.tables import budget_raises


RaiseState = Literal["waiting", "approved", "declined", "withdrawn", "overtaken", "ended"]
Recorded = Callable[[], AbstractAsyncContextManager[None]]
"""Makes the record around a deed."""
LISTED_MAX: Final = 100
_ID_BYTES: Final = 6
_R: Final = budget_raises.c
_OLDEST: Final = Order((_R.asked_us, _R.id))
_NEWEST: Final = Order((_R.asked_us, _R.id), frozenset({0}))


class RaiseWish(Struct, frozen=True):
    """The larger limit that somebody requests."""

    account: str
    window: WindowKind
    wanted_microusd: int
    until_us: int
    """When the former limit applies again; 0 for never."""
    reason: str


class BudgetRaise(Struct, frozen=True):
    """A request for a larger limit, and its result."""

    id: str
    organisation: str
    account: str
    window: WindowKind
    seen_microusd: int
    """The limit when the request was made."""
    back_microusd: int
    """The limit after `until_us`: for a temporary raise, the one before it."""
    wanted_microusd: int
    until_us: int
    """0 for permanently."""
    asked_by: str
    reason: str
    asked_us: int
    state: RaiseState = "waiting"
    """`overtaken` once the limit has changed; `ended` after `until_us`, approved or not."""
    decided_by: str = ""
    comment: str = ""
    decided_us: int = 0

    @property
    def key(self) -> BudgetKey:
        return BudgetKey(self.account, self.window)


class BudgetRaises:
    """The requests for larger limits in one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def waiting(
        self, organisation: str, first: int = 0, limit: int = LISTED_MAX, after: str = ""
    ) -> Part[BudgetRaise]:
        """Requests that wait, oldest first; `after` is the key of the last one before them."""
        query = select(budget_raises).where(_R.organisation == organisation, self._waits())
        async with self._database.reading() as connection:
            place = (first, after)
            return await part_behind(connection, query, _OLDEST, place, limit, self._raise_of)

    async def waiting_by(self, organisation: str) -> Counter[str]:
        """How many of them wait, by who made them."""
        async with self._database.reading() as connection:
            mine = _R.organisation == organisation
            return await count_by(connection, _R.asked_by, mine, self._waits())

    async def waiting_anywhere(self, since_us: int, count_max: int) -> list[BudgetRaise]:
        """Requests since then that wait, of all organisations, oldest first."""
        query = select(budget_raises).where(self._waits(), _R.asked_us >= since_us)
        return await self._read(_OLDEST.reading(query).limit(count_max))

    async def decided_since(self, since_us: int, asked_by: str) -> list[BudgetRaise]:
        """Decisions by others on somebody's requests since then, newest first."""
        theirs = (_R.asked_by == asked_by, _R.decided_by != "", _R.decided_us >= since_us)
        query = select(budget_raises).where(*theirs, _R.state != "withdrawn")
        return await self._read(query.order_by(_R.decided_us.desc(), _R.id).limit(LISTED_MAX))

    async def page(
        self, organisation: str, first: int = 0, limit: int = LISTED_MAX, after: str = ""
    ) -> Part[BudgetRaise]:
        """Requests in any state, newest first."""
        query = select(budget_raises).where(_R.organisation == organisation)
        async with self._database.reading() as connection:
            place = (first, after)
            return await part_behind(connection, query, _NEWEST, place, limit, self._raise_of)

    async def of(self, organisation: str) -> list[BudgetRaise]:
        """The newest hundred requests."""
        return list((await self.page(organisation)).rows)

    async def newest_of(self, organisation: str, key: BudgetKey) -> BudgetRaise | None:
        """The last request about a limit; None if there was never one."""
        query = select(budget_raises).where(_R.organisation == organisation, _of(key))
        return next(iter(await self._read(_NEWEST.reading(query).limit(1))), None)

    async def one(self, organisation: str, raise_id: str) -> BudgetRaise | None:
        query = select(budget_raises).where(_R.organisation == organisation, _R.id == raise_id)
        return next(iter(await self._read(query)), None)

    async def over(self) -> list[BudgetRaise]:
        """Approved raises whose end is past."""
        now_us = self._clock.utc_us()
        past = and_(_R.state == "approved", _R.until_us > 0, _R.until_us <= now_us)
        return await self._read(select(budget_raises).where(past).limit(LISTED_MAX))

    async def ask(
        self, organisation: str, wish: RaiseWish, actor: str, *, seen_microusd: int
    ) -> BudgetRaise:
        """Request a larger limit, for somebody else to decide.

        Raises:
            ChangedMeanwhile: the limit is not the one that was seen, or there is none.
            RequestInvalid: it is no larger, its end is past or before that of a temporary limit, or
                there is a request about this limit already.
        """
        key, now_us = BudgetKey(wish.account, wish.window), self._clock.utc_us()
        if wish.wanted_microusd <= seen_microusd:
            raise RequestInvalid("this is no more than now", parameter="limit_microusd")
        if 0 < wish.until_us <= now_us:
            raise RequestInvalid("this day is over", parameter="until")
        async with self._database.writing() as connection:
            await self._as_seen(connection, key, seen_microusd)
            query = select(budget_raises).where(_of(key), _R.state.in_(("waiting", "approved")))
            known = [self._raise_of(row) for row in (await connection.execute(query)).mappings()]
            if any(each.state == "waiting" for each in known):
                raise RequestInvalid("more is asked for already", parameter="account")
            holding = [each for each in known if each.state == "approved" and each.until_us]
            if any(0 < wish.until_us < each.until_us for each in holding):
                message = "the limit that holds now ends later than this"
                raise RequestInvalid(message, parameter="until")
            made = BudgetRaise(
                id=secrets.token_hex(_ID_BYTES),
                organisation=organisation,
                account=wish.account,
                window=wish.window,
                seen_microusd=seen_microusd,
                back_microusd=min([seen_microusd, *(each.back_microusd for each in holding)]),
                wanted_microusd=wish.wanted_microusd,
                until_us=wish.until_us,
                asked_by=actor[:ACTOR_CHARS_MAX],
                reason=wish.reason,
                asked_us=now_us,
            )
            await connection.execute(insert(budget_raises).values(_row_of(made)))
        return made

    async def approve(
        self, organisation: str, raise_id: str, actor: str, comment: str
    ) -> BudgetRaise:
        """Raise the limit as requested, on every worker within a second.

        Raises:
            Forbidden: it is their own.
            ChangedMeanwhile: the limit has changed since the request.
            RequestInvalid: no such request waits.
        """
        now_us = self._clock.utc_us()
        async with self._database.writing() as connection:
            found = await self._waiting(connection, organisation, raise_id)
            if same_person(actor, found.asked_by):
                raise Forbidden("A limit is made larger by somebody else than who asked for it.")
            await self._limit(connection, found, found.wanted_microusd, found.seen_microusd)
            after = decided(found, "approved", actor, comment, now_us)
            await _end(connection, after)
            await overtake(connection, found.account, found.window, now_us, but=found.id)
        return after

    async def end(
        self,
        organisation: str,
        raise_id: str,
        actor: str,
        comment: str,
        state: Literal["declined", "withdrawn"],
    ) -> BudgetRaise:
        """Decline or withdraw the request.

        Raises:
            Forbidden: it is withdrawn by somebody other than who made it, or declined by who made
                it.
            RequestInvalid: no such request waits.
        """
        async with self._database.writing() as connection:
            found = await self._waiting(connection, organisation, raise_id)
            if same_person(actor, found.asked_by) is not (state == "withdrawn"):
                raise Forbidden("What was asked for is withdrawn by who asked, declined by others.")
            after = decided(found, state, actor, comment, self._clock.utc_us())
            await _end(connection, after)
        return after

    async def take_back(self, over: BudgetRaise, recorded: Recorded) -> None:
        """Restore the former limit, unless somebody changed it since.

        Every process may try: one of them does it. That one alone enters `recorded` before the
        change, and leaves it afterwards.

        Raises:
            ChangedMeanwhile: the limit has changed, or another process was faster.
        """
        holds = and_(_R.id == over.id, _R.state == "approved")
        change = update(budget_raises).where(holds)
        async with AsyncExitStack() as record, self._database.writing() as connection:
            await self._limit(connection, over, over.back_microusd, over.wanted_microusd)
            if not (await connection.execute(change.values(state="ended"))).rowcount:
                raise ChangedMeanwhile(MEANWHILE)
            await overtake(connection, over.account, over.window, self._clock.utc_us())
            # Left only after the transaction, so that a failed commit is recorded as well.
            await record.enter_async_context(recorded())

    async def forget(self, over: BudgetRaise) -> None:
        """Drop a raise whose limit somebody changed since without noting it here."""
        holds = and_(_R.id == over.id, _R.state == "approved")
        async with self._database.writing() as connection:
            await connection.execute(update(budget_raises).where(holds).values(state="overtaken"))

    async def _limit(
        self, connection: AsyncConnection, of: BudgetRaise, to_microusd: int, from_microusd: int
    ) -> None:
        limit, seen = Limit(of.account, to_microusd, of.window), amount_mark(from_microusd)
        await limited(connection, self._database.kind, limit, seen, self._clock.utc_us())

    async def _as_seen(
        self, connection: AsyncConnection, key: BudgetKey, seen_microusd: int
    ) -> None:
        found = await locked(connection, is_one_of(self._database.kind, [key]))
        if key not in found or found[key].limit.limit_microusd != seen_microusd:
            raise ChangedMeanwhile(MEANWHILE, parameter="account")

    async def _waiting(
        self, connection: AsyncConnection, organisation: str, raise_id: str
    ) -> BudgetRaise:
        query = select(budget_raises).where(_R.organisation == organisation, _R.id == raise_id)
        row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            raise RequestInvalid("nothing of this id was asked for", parameter="id")
        found = self._raise_of(row)
        if found.state != "waiting":
            raise RequestInvalid(f"this is {found.state}", parameter="id")
        return found

    def _waits(self) -> ColumnElement[bool]:
        """Condition for waiting; a request whose end is past no longer waits."""
        is_to_come = (_R.until_us == 0) | (_R.until_us > self._clock.utc_us())
        return and_(_R.state == "waiting", is_to_come)

    def _raise_of(self, row: RowMapping) -> BudgetRaise:
        values: dict[str, Any] = dict(row)
        values["window"] = values.pop("window_kind")
        found = BudgetRaise(**values)
        if found.state == "waiting" and 0 < found.until_us <= self._clock.utc_us():
            return replace(found, state="ended")
        return found

    async def _read(self, query: Any) -> list[BudgetRaise]:
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings()
            return [self._raise_of(row) for row in rows]


def _of(key: BudgetKey) -> ColumnElement[bool]:
    return and_(_R.account == key.account, _R.window_kind == key.window)


async def _end(connection: AsyncConnection, after: BudgetRaise) -> None:
    """Raises RequestInvalid if somebody else decided it at the same moment."""
    change = update(budget_raises).where(_R.id == after.id, _R.state == "waiting")
    await write_decided(connection, change, after, said="this")


def _row_of(made: BudgetRaise) -> dict[str, Any]:
    values = {name: getattr(made, name) for name in BudgetRaise.__struct_fields__}
    values["window_kind"] = values.pop("window")
    return values
