"""Lists of reveals and holds: one page and the total count, without reading all of them."""

from collections import Counter
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import BigInteger, ColumnElement, Select, and_, case, cast, func, or_, select

from gateway.clock import MINUTE_US, Clock
from gateway.store.custody.orders import Hold, Reveal
from gateway.store.engine import Database
from gateway.store.pages import Order, Part, count_by, part_behind
from gateway.store.schema.custody import audit_holds, audit_reveals


_R, _H = audit_reveals.c, audit_holds.c
_NEWEST: Final = Order((_R.asked_us, _R.id), frozenset({0}))
_OLDEST: Final = Order((_R.asked_us, _R.id))
_AS_SET: Final = Order((_H.set_us, _H.id))
_WAITS: Final = and_(_R.approved_by == "", _R.ended_by == "")
_HOLDS: Final = _H.released_by == ""
_ASKED: Final = and_(_HOLDS, _H.release_by != "")


class RevealFigures(Struct, frozen=True):
    """How many reveals of each kind there are."""

    waiting: int
    open: int
    asked: int
    """Requested or approved in the span; of them …"""
    approved: int
    readings: int
    people: int
    """… and the number of people who read content."""


class CustodyLists:
    """Lists the reveals and holds in one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def reveals(
        self, organisation: str, first: int, limit: int, after: str = ""
    ) -> Part[Reveal]:
        """A page of all, newest first; `after` is the key of the last one before it."""
        query = select(audit_reveals).where(_R.organisation == organisation)
        return await self._reveals(query, _NEWEST, (first, after), limit)

    async def reveals_about(
        self, organisation: str, request_id: str, recorded_us: int, limit: int
    ) -> Part[Reveal]:
        """Reveals that let somebody read a request: of it alone, or of all after it was recorded.

        Newest first. Of those of all, only the ones with which content was read, perhaps other
        content.
        """
        closed_us = _R.approved_us + cast(_R.minutes, BigInteger) * MINUTE_US
        of_all = and_(_R.request_id == "", _R.used > 0, closed_us > recorded_us)
        mine = or_(_R.request_id == request_id, of_all)
        query = select(audit_reveals).where(_R.organisation == organisation, mine)
        return await self._reveals(query, _NEWEST, (0, ""), limit)

    async def waiting_reveals(
        self, organisation: str, first: int, limit: int, after: str = ""
    ) -> Part[Reveal]:
        """Reveals that nobody has answered yet, oldest first."""
        query = select(audit_reveals).where(_R.organisation == organisation, _WAITS)
        return await self._reveals(query, _OLDEST, (first, after), limit)

    async def waiting_reveals_by(self, organisation: str) -> Counter[str]:
        """How many of them wait, by who made the request."""
        return await self._count(_R.asked_by, _R.organisation == organisation, _WAITS)

    async def figures(self, organisation: str, since_us: int) -> RevealFigures:
        """Present numbers, and those requested or approved since a moment."""
        now_us = self._clock.utc_us()
        until_us = _R.approved_us + cast(_R.minutes, BigInteger) * MINUTE_US
        opened = (_R.approved_by != "", _R.ended_by == "", _R.approved_us <= now_us)
        fresh = or_(_R.asked_us >= since_us, _R.approved_us >= since_us)
        is_read = and_(fresh, _R.used > 0)
        sums = [
            *(_sum(each) for each in (_WAITS, and_(*opened, until_us > now_us), fresh)),
            _sum(and_(fresh, _R.approved_by != "")),
            func.sum(case((fresh, _R.used), else_=0)),
            func.count(case((is_read, _R.asked_by)).distinct()),
        ]
        query = select(*sums).where(_R.organisation == organisation)
        async with self._database.reading() as connection:
            found = (await connection.execute(query)).one()
        return RevealFigures(*(int(each or 0) for each in found))

    async def holds(self, organisation: str, first: int, limit: int, after: str = "") -> Part[Hold]:
        """Holds in force, oldest first; `after` is the key of the last one before them."""
        return await self._part_of_holds(organisation, _HOLDS, (first, after), limit)

    async def releases(
        self, organisation: str, first: int, limit: int, after: str = ""
    ) -> Part[Hold]:
        """Holds whose release is requested, oldest first."""
        return await self._part_of_holds(organisation, _ASKED, (first, after), limit)

    async def releases_by(self, organisation: str) -> Counter[str]:
        """How many of them wait, by who made the request."""
        return await self._count(_H.release_by, _H.organisation == organisation, _ASKED)

    async def _reveals(
        self, query: Select[Any], order: Order, place: tuple[int, str], limit: int
    ) -> Part[Reveal]:
        async with self._database.reading() as connection:
            return await part_behind(
                connection, query, order, place, limit, lambda row: Reveal(**row)
            )

    async def _part_of_holds(
        self, organisation: str, which: ColumnElement[bool], place: tuple[int, str], limit: int
    ) -> Part[Hold]:
        query = select(audit_holds).where(_H.organisation == organisation, which)
        async with self._database.reading() as connection:
            return await part_behind(
                connection, query, _AS_SET, place, limit, lambda row: Hold(**row)
            )

    async def _count(self, column: ColumnElement[str], *where: ColumnElement[bool]) -> Counter[str]:
        async with self._database.reading() as connection:
            return await count_by(connection, column, *where)


def _sum(condition: ColumnElement[bool]) -> ColumnElement[Any]:
    return func.sum(case((condition, 1), else_=0))
