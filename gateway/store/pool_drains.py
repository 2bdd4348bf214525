"""Pool members that an operator drained: they get no new requests, within a second everywhere."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import BigInteger, Column, String, Table, Text, delete, select

from gateway.clock import Clock
from gateway.store.engine import Database
from gateway.store.revisions import bump
from gateway.store.schema.tables import metadata
from gateway.store.speech import insert_into


pool_drains = Table(
    "pool_drains",
    metadata,
    Column("member", String(100), primary_key=True),
    Column("actor", String(200), nullable=False),
    Column("reason", Text, nullable=False),
    Column("since_us", BigInteger, nullable=False),
)


class Drain(Struct, frozen=True):
    """A member that gets no new calls; those under way there end by themselves."""

    member: str
    actor: str
    reason: str
    since_us: int


class DrainTable:
    """The drained members of one installation."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def all(self) -> list[Drain]:
        query = select(pool_drains).order_by(pool_drains.c.member)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [Drain(**row) for row in rows]

    async def drain(self, member: str, actor: str, reason: str = "") -> Drain:
        """Send it nothing new from now on; a repeated order replaces the earlier one."""
        order = Drain(member, actor[:200], reason, self._clock.utc_us())
        row = asdict(order)
        ordered = insert_into(self._database.kind, pool_drains).values(row)
        async with self._database.writing() as connection:
            await connection.execute(
                ordered.on_conflict_do_update(index_elements=["member"], set_=row)
            )
            await bump(connection)
        return order

    async def resume(self, member: str) -> bool:
        """Give it its share again; False if it was not drained."""
        async with self._database.writing() as connection:
            gone = delete(pool_drains).where(pool_drains.c.member == member)
            was_drained = (await connection.execute(gone)).rowcount > 0
            if was_drained:
                await bump(connection)
        return was_drained


class Pool(Protocol):
    """A pool, as far as its members can be drained."""

    @property
    def draining(self) -> Mapping[str, int]:
        """Drained members, each with its number of calls under way."""
        ...

    def keep_drained(self, members: Collection[str]) -> None:
        """Send nothing new to these members; all others get their full share."""
        ...


class DrainKeeper:
    """Keeps one worker's pools to what operators ordered."""

    def __init__(self, table: DrainTable, pools: Sequence[Pool]) -> None:
        self._table = table
        self._pools = pools

    async def obey(self) -> None:
        """Read the orders again."""
        if not self._pools:
            return
        drained = {order.member for order in await self._table.all()}
        for pool in self._pools:
            pool.keep_drained(drained)

    def under_way(self) -> Mapping[str, int]:
        """Drained members, each with the calls of this worker under way there."""
        return {name: calls for pool in self._pools for name, calls in pool.draining.items()}
