"""Connection tests that people asked for: one row per provider, run and reported by one worker.

A row names a configured provider and a target, but no address: the worker calls what its own
settings say. A test that no worker claims soon is never run; a worker that starts later ignores it.
"""

from collections.abc import Collection
from typing import Any, Final

import msgspec
from msgspec import Struct
from sqlalchemy import BigInteger, Column, String, Table, Text, func, select, update
from sqlalchemy.exc import IntegrityError

from gateway.clock import MINUTE_US, Clock
from gateway.errors import Exhausted
from gateway.oversight.checkup import Checkup
from gateway.store.engine import Database
from gateway.store.schema.tables import metadata


CLAIM_WITHIN_US: Final = 15 * 1_000_000
"""How long a test waits for a worker."""
END_WITHIN_US: Final = 90 * 1_000_000
"""A worker that has not reported by then was stopped; the steps' own deadlines are shorter."""
PAUSE_US: Final = 5 * 1_000_000
"""Between two tests of one provider."""
PER_MINUTE_MAX: Final = 6
"""Tests of all providers: each is a call that costs money."""

provider_checkups = Table(
    "provider_checkups",
    metadata,
    Column("provider", String(100), primary_key=True),
    Column("id", String(24), nullable=False),
    Column("target", String(200), nullable=False),
    Column("asked_by", String(200), nullable=False),
    Column("asked_us", BigInteger, nullable=False),
    Column("worker", String(200), nullable=False),
    Column("claimed_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger, nullable=False),
    Column("found", Text, nullable=False),
    Column("spare", String(10), nullable=False, server_default=""),
)
_CHECKUP: Final = msgspec.json.Decoder(Checkup)


class CheckupOrder(Struct, frozen=True):
    """One test, from order to end; a time is 0 until it comes."""

    provider: str
    id: str
    target: str
    """The target of the one-token call; empty if the provider has none."""
    asked_by: str
    asked_us: int
    worker: str = ""
    claimed_us: int = 0
    ended_us: int = 0
    found: Checkup = Checkup()
    spare: str = ""
    """`next`: with the next version of its credential instead of the one in use."""

    def state(self, now_us: int) -> str:
        """waiting, unclaimed, running, lost or ended."""
        if self.ended_us:
            return "ended"
        if self.claimed_us:
            return "running" if now_us - self.claimed_us < END_WITHIN_US else "lost"
        return "waiting" if now_us - self.asked_us < CLAIM_WITHIN_US else "unclaimed"

    def is_open(self, now_us: int) -> bool:
        return self.state(now_us) in ("waiting", "running")


class CheckupTable:
    """The newest test of each provider."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def all(self) -> dict[str, CheckupOrder]:
        """The tests, by provider."""
        async with self._database.reading() as connection:
            rows = (await connection.execute(select(provider_checkups))).mappings().all()
        return {row["provider"]: _order(row) for row in rows}

    async def ask(
        self, order_id: str, provider: str, target: str, asked_by: str, spare: str = ""
    ) -> CheckupOrder:
        """Order a test.

        Raises:
            Exhausted: one is under way or was a moment ago, or there were too many lately.
        """
        now_us = self._clock.utc_us()
        order = CheckupOrder(provider, order_id, target, asked_by[:200], now_us, spare=spare)
        columns = provider_checkups.c
        lately = select(func.count()).where(columns.asked_us > now_us - MINUTE_US)
        try:
            async with self._database.writing() as connection:
                query = select(provider_checkups).where(columns.provider == provider)
                row = (await connection.execute(query.with_for_update())).mappings().one_or_none()
                _check_pause(None if row is None else _order(row), now_us)
                if (await connection.execute(lately)).scalar_one() >= PER_MINUTE_MAX:
                    raise Exhausted("There were many tests in the last minute: wait a little.")
                # A row that did not exist is only inserted: another's newer one must not be lost.
                if row is None:
                    await connection.execute(provider_checkups.insert(), _row(order))
                else:
                    mine = columns.provider == provider
                    await connection.execute(update(provider_checkups).where(mine), _row(order))
        except IntegrityError:
            # Somebody else ordered the first test of this provider at the same moment.
            raise Exhausted(UNDER_WAY) from None
        return order

    async def claim(self, worker: str, providers: Collection[str]) -> CheckupOrder | None:
        """Claim one test of these providers that no worker has taken yet."""
        now_us, columns = self._clock.utc_us(), provider_checkups.c
        free = (
            columns.claimed_us == 0,
            columns.asked_us > now_us - CLAIM_WITHIN_US,
            columns.provider.in_(sorted(providers)),
        )
        async with self._database.reading() as connection:
            query = select(provider_checkups).where(*free).order_by(columns.asked_us).limit(1)
            row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            return None
        order = _order(row)
        taking = update(provider_checkups).where(columns.id == order.id, *free)
        async with self._database.writing() as connection:
            values = {"worker": worker[:200], "claimed_us": now_us}
            taken = (await connection.execute(taking.values(values))).rowcount
        return msgspec.structs.replace(order, **values) if taken else None

    async def tell(self, order: CheckupOrder, found: Checkup, *, is_end: bool = False) -> None:
        """Store what was found so far; nothing if another test was ordered meanwhile."""
        ended_us = self._clock.utc_us() if is_end else 0
        told = update(provider_checkups).where(provider_checkups.c.id == order.id)
        values = {"found": msgspec.json.encode(found).decode(), "ended_us": ended_us}
        async with self._database.writing() as connection:
            await connection.execute(told.values(values))


UNDER_WAY: Final = "A test of this provider is under way."


def _check_pause(last: CheckupOrder | None, now_us: int) -> None:
    if last is None:
        return
    if last.is_open(now_us):
        raise Exhausted(UNDER_WAY)
    if now_us - last.asked_us < PAUSE_US:
        raise Exhausted("This provider was tested a moment ago: wait a little.")


def _order(row: Any) -> CheckupOrder:
    return CheckupOrder(**(dict(row) | {"found": _CHECKUP.decode(row["found"])}))


def _row(order: CheckupOrder) -> dict[str, object]:
    return msgspec.structs.asdict(order) | {"found": msgspec.json.encode(order.found).decode()}
