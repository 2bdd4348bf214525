"""Price files in the database: stored once, put in force by order, the same for every worker.

The last order says which file is in force. Without an order, or with the number 0, it is the file
that the configuration names. Going back is another order: nothing that was in force is ever
rewritten. An order comes from a proposal that somebody else agreed to: see `price_proposals`.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from sqlalchemy import Column, Table, func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.money.price_file import PriceText, configured_prices
from gateway.store.engine import Database
from gateway.store.pages import Order, Part, part_behind
from gateway.store.schema.prices import price_files, price_orders


CONFIGURED: Final = 0
"""The number that stands for the configured file."""
_F, _O = price_files.c, price_orders.c
_LAST_GIVEN: Final = Order((_F.number,), frozenset({0}))
_LAST_ORDERED: Final = Order((_O.place,), frozenset({0}))
_LAST_ORDER: Final = select(price_orders).order_by(_O.place.desc()).limit(1)
_SHOWN: Final = (_F.number, _F.name, _F.digest, _F.added_by, _F.added_us)


class PriceFile(Struct, frozen=True):
    """A price file, without its text."""

    number: int
    name: str
    digest: str
    added_by: str
    added_us: int


class PriceOrder(Struct, frozen=True):
    """An order that put a file in force; the actor is who approved it."""

    place: int
    number: int
    actor: str
    reason: str
    utc_us: int


NEVER: Final = PriceOrder(0, CONFIGURED, "", "", 0)


class PriceFiles:
    """The price files in one database, and the orders for them."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def standing(self) -> PriceOrder:
        """The last order; `NEVER` if there is none. Raises NotReady."""
        rows = await self._database.peek(_LAST_ORDER)
        return PriceOrder(*rows[0]) if rows else NEVER

    async def text(self, number: int) -> PriceText:
        """The text of a file; raises RequestInvalid for an unknown number."""
        query = select(_F.text, _F.name).where(_F.number == number)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            raise RequestInvalid("there is no such price file", parameter="number")
        return PriceText(row.text.encode(), f"price file {number} ({row.name})", number)

    async def in_force(self, settings: Settings) -> PriceText:
        """The prices in force: those of the last order, or the configured ones.

        Raises:
            ConfigurationInvalid: the configured file cannot be read.
            NotReady: the database does not answer.
        """
        order = await self.standing()
        if order.number == CONFIGURED:
            return await configured_prices(settings)
        return await self.text(order.number)

    async def file(self, number: int) -> PriceFile | None:
        query = select(*_SHOWN).where(_F.number == number)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return PriceFile(**row) if row is not None else None

    async def files(self, count_max: int) -> list[PriceFile]:
        """The newest files, newest first."""
        return [*(await self.files_page(0, count_max)).rows]

    async def files_page(self, first: int, limit: int, after: str = "") -> Part[PriceFile]:
        """A page of them in the same order; `after` is the key of the last one before it."""
        query, place = select(*_SHOWN), (first, after)
        async with self._database.reading() as connection:
            return await part_behind(
                connection, query, _LAST_GIVEN, place, limit, lambda row: PriceFile(**row)
            )

    async def orders(self, count_max: int) -> list[PriceOrder]:
        """The newest orders, newest first."""
        return [*(await self.orders_page(0, count_max)).rows]

    async def orders_of(self, number: int, count_max: int) -> list[PriceOrder]:
        """Orders for one file, newest first."""
        query = _LAST_ORDERED.reading(select(price_orders).where(_O.number == number))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query.limit(count_max))).mappings().all()
        return [PriceOrder(**row) for row in rows]

    async def orders_page(self, first: int, limit: int, after: str = "") -> Part[PriceOrder]:
        """A page of all orders, newest first; `after` is the key of the last one before it."""
        query, place = select(price_orders), (first, after)
        async with self._database.reading() as connection:
            return await part_behind(
                connection, query, _LAST_ORDERED, place, limit, lambda row: PriceOrder(**row)
            )

    async def add(self, name: str, text: str, actor: str) -> int:
        """Store a file; returns its number, or that of an identical file."""
        digest = hashlib.sha256(text.encode()).hexdigest()
        known = select(_F.number).where(_F.digest == digest)
        async with self._database.writing() as connection:
            number = (await connection.execute(known)).scalar_one_or_none()
            if number is not None:
                return int(number)
            number = await next_number(connection, _F.number)
            row: dict[str, object] = {
                "number": number,
                "name": name[:100],
                "digest": digest,
                "text": text,
                "added_by": actor[:200],
                "added_us": self._clock.utc_us(),
            }
            await insert_first(connection, price_files, row)
        return number


async def put_in_force(connection: AsyncConnection, order: PriceOrder) -> None:
    """Write an order as the next one, within a transaction.

    Raises:
        ChangedMeanwhile: its place is taken: other prices were put in force since.
    """
    if await next_number(connection, _O.place) != order.place:
        raise ChangedMeanwhile("Other prices were put in force meanwhile.", parameter="seen")
    row = {name: getattr(order, name) for name in PriceOrder.__struct_fields__}
    await insert_first(connection, price_orders, row)


async def next_number(connection: AsyncConnection, column: Column[int]) -> int:
    """One more than the largest of a column."""
    return int((await connection.execute(select(func.max(column)))).scalar_one() or 0) + 1


async def insert_first(
    connection: AsyncConnection, table: Table, row: Mapping[str, object]
) -> None:
    """Raises ChangedMeanwhile if somebody did the same at the same moment, and was first."""
    try:
        await connection.execute(insert(table), row)
    except IntegrityError:
        raise ChangedMeanwhile("somebody else was first", parameter="seen") from None
