"""Prices that one person proposes and another puts in force: nobody does both.

A proposal builds on the prices that were in force when it was made, and becomes the next order
completely or not at all. Once other prices are in force, proposals compared with the previous ones
are overtaken.
"""

from collections.abc import Collection
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy import RowMapping, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.actors import ACTOR_CHARS_MAX, same_person
from gateway.clock import Clock
from gateway.errors import ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.store.deciding import decided, write_decided
from gateway.store.engine import Database
from gateway.store.money.price_files import PriceOrder, insert_first, next_number, put_in_force
from gateway.store.pages import Order, Part, part_behind
from gateway.store.schema.prices import price_orders, price_proposals


ProposalState = Literal["waiting", "approved", "declined", "withdrawn", "overtaken"]
LISTED_MAX: Final = 100
_P: Final = price_proposals.c
_OLDEST: Final = Order((_P.number,))
_NEWEST: Final = Order((_P.number,), frozenset({0}))


class PriceProposal(Struct, frozen=True):
    """A proposal to put a file in force, and its result."""

    number: int
    file: int
    """The number of the file; 0 for the configured one."""
    seen: int
    """The place of the order that was in force, 0 if there was none."""
    proposed_by: str
    reason: str
    proposed_us: int
    more_microusd: int
    """How much more the preceding days would have cost, as the proposer was told."""
    state: ProposalState = "waiting"
    decided_by: str = ""
    comment: str = ""
    decided_us: int = 0
    place: int = 0
    """The place of the order that it became; 0 for none."""


class PriceProposals:
    """The price proposals in one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def waiting(
        self, first: int = 0, limit: int = LISTED_MAX, after: str = ""
    ) -> Part[PriceProposal]:
        """Proposals that wait, oldest first; `after` is the key of the last one before them."""
        query = select(price_proposals).where(_P.state == "waiting")
        async with self._database.reading() as connection:
            place = (first, after)
            return await part_behind(connection, query, _OLDEST, place, limit, _proposal_of)

    async def newest(self, count_max: int = LISTED_MAX) -> list[PriceProposal]:
        """Proposals in any state, newest first."""
        query = select(price_proposals).order_by(_P.number.desc()).limit(count_max)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [PriceProposal(**row) for row in rows]

    async def page(self, first: int, limit: int, after: str = "") -> Part[PriceProposal]:
        """A page of them in the same order, including those too old for `newest`."""
        query, place = select(price_proposals), (first, after)
        async with self._database.reading() as connection:
            return await part_behind(connection, query, _NEWEST, place, limit, _proposal_of)

    async def of_file(self, file: int, count_max: int) -> list[PriceProposal]:
        """Proposals of one file, newest first."""
        query = _NEWEST.reading(select(price_proposals).where(_P.file == file))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query.limit(count_max))).mappings().all()
        return [_proposal_of(row) for row in rows]

    async def proposers(self, places: Collection[int]) -> dict[int, str]:
        """Who proposed the orders at these places."""
        query = select(_P.place, _P.proposed_by).where(_P.place.in_(sorted(set(places) - {0})))
        async with self._database.reading() as connection:
            return {row.place: row.proposed_by for row in await connection.execute(query)}

    async def proposal(self, number: int) -> PriceProposal | None:
        async with self._database.reading() as connection:
            return await _read(connection, number)

    async def propose(
        self, file: int, actor: str, reason: str, *, seen: int, more_microusd: int
    ) -> PriceProposal:
        """Propose that a file be put in force, for somebody else to decide.

        Raises:
            ChangedMeanwhile: something else was put in force since the proposer looked.
            RequestInvalid: the same file is proposed already.
        """
        same = select(_P.number).where(_P.state == "waiting", _P.file == file)
        async with self._database.writing() as connection:
            if await next_number(connection, price_orders.c.place) != seen + 1:
                raise ChangedMeanwhile(
                    "Other prices were put in force meanwhile.", parameter="seen"
                )
            if (await connection.execute(same)).first() is not None:
                raise RequestInvalid("these prices are proposed already", parameter="number")
            made = PriceProposal(
                await next_number(connection, _P.number),
                file,
                seen,
                actor[:ACTOR_CHARS_MAX],
                reason,
                self._clock.utc_us(),
                more_microusd,
            )
            await insert_first(connection, price_proposals, asdict(made))
        return made

    async def approve(self, number: int, actor: str, comment: str) -> PriceOrder:
        """Put the proposed file in force; this overtakes other waiting proposals.

        Raises:
            Forbidden: it is their own.
            ChangedMeanwhile: something else was put in force since it was proposed.
            RequestInvalid: no proposal of this number waits.
        """
        async with self._database.writing() as connection:
            found = await _waiting(connection, number)
            if same_person(actor, found.proposed_by):
                raise Forbidden("Prices are approved by somebody else than who proposed them.")
            now_us = self._clock.utc_us()
            after = decided(found, "approved", actor, comment, now_us)
            order = PriceOrder(found.seen + 1, found.file, after.decided_by, found.reason, now_us)
            await put_in_force(connection, order)
            await _end(connection, replace(after, place=order.place))
            others = update(price_proposals).where(_P.state == "waiting")
            await connection.execute(others.values(state="overtaken", decided_us=now_us))
        return order

    async def end(
        self, number: int, actor: str, comment: str, state: Literal["declined", "withdrawn"]
    ) -> PriceProposal:
        """Decline or withdraw a proposal.

        Raises:
            Forbidden: it is withdrawn by somebody other than who made it, or declined by who made
                it.
            RequestInvalid: no proposal of this number waits.
        """
        async with self._database.writing() as connection:
            found = await _waiting(connection, number)
            if same_person(actor, found.proposed_by) is not (state == "withdrawn"):
                raise Forbidden("A proposal is withdrawn by who made it, and declined by others.")
            after = decided(found, state, actor, comment, self._clock.utc_us())
            await _end(connection, after)
        return after


def _proposal_of(row: RowMapping) -> PriceProposal:
    return PriceProposal(**row)


async def _read(connection: AsyncConnection, number: int) -> PriceProposal | None:
    query = select(price_proposals).where(_P.number == number)
    row = (await connection.execute(query)).mappings().one_or_none()
    return PriceProposal(**row) if row is not None else None


async def _waiting(connection: AsyncConnection, number: int) -> PriceProposal:
    found = await _read(connection, number)
    if found is None:
        raise RequestInvalid("there is no such proposal", parameter="number")
    if found.state != "waiting":
        raise RequestInvalid(f"this proposal is {found.state}", parameter="number")
    return found


async def _end(connection: AsyncConnection, after: PriceProposal) -> None:
    """Raises RequestInvalid if somebody else decided it at the same moment."""
    change = update(price_proposals).where(_P.number == after.number, _P.state == "waiting")
    change = change.values(place=after.place)
    await write_decided(connection, change, after, said="this proposal", parameter="number")
