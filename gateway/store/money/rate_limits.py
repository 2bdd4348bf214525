"""Rate limits as they are kept in the database; workers load them when the revision changes."""

from msgspec.structs import asdict
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.money.rates import RATE_MAX, RateLimit
from gateway.store.engine import Database
from gateway.store.money.budget_rows import MEANWHILE, NONE, require_seen
from gateway.store.revisions import bump
from gateway.store.schema.tables import rate_limits
from gateway.store.speech import insert_into


def rate_mark(rate: RateLimit | None) -> str:
    """A rate in the form in which a caller states what they saw; differs if rates differ."""
    return NONE if rate is None else " ".join(map(str, asdict(rate).values()))


class RateLimitTable:
    """Rate limits of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[RateLimit]:
        query = select(rate_limits).order_by(rate_limits.c.account)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [RateLimit(**row) for row in rows]

    async def set(self, limit: RateLimit, seen: str | None = None) -> None:
        """Replace an account's limits; workers learn of it within a second.

        `seen` is `rate_mark` of what the caller was shown; without it, nothing was shown.

        Raises:
            ChangedMeanwhile: the present limit is not the one that was seen.
            RequestInvalid: a number is negative or too large, or nothing is limited.
        """
        numbers = [value for name, value in asdict(limit).items() if name != "account"]
        if all(number is None for number in numbers):
            raise RequestInvalid("say what to limit", parameter="requests_per_minute")
        if any(number is not None and number < 0 for number in numbers):
            raise RequestInvalid("a limit cannot be negative", parameter="requests_per_minute")
        if any(number is not None and number > RATE_MAX for number in numbers):
            raise RequestInvalid("this number is too large", parameter="requests_per_minute")
        row = asdict(limit)
        statement = insert_into(self._database.kind, rate_limits).values(row)
        async with self._database.writing() as connection:
            await self._require(connection, limit.account, seen)
            if seen == NONE:
                statement = statement.on_conflict_do_nothing(index_elements=["account"])
            else:
                # If two callers limit an account for the first time at once, both succeed.
                statement = statement.on_conflict_do_update(index_elements=["account"], set_=row)
            if not (await connection.execute(statement)).rowcount:
                raise ChangedMeanwhile(MEANWHILE)
            await bump(connection)

    async def remove(self, account: str, seen: str | None = None) -> None:
        """Remove an account's limits; `seen`, and what is raised, as in `set`."""
        async with self._database.writing() as connection:
            await self._require(connection, account, seen)
            await connection.execute(delete(rate_limits).where(rate_limits.c.account == account))
            await bump(connection)

    @staticmethod
    async def _require(connection: AsyncConnection, account: str, seen: str | None) -> None:
        """Lock the row until the end of the transaction, so that what was seen stays true."""
        if seen is None:
            return
        query = select(rate_limits).where(rate_limits.c.account == account).with_for_update()
        row = (await connection.execute(query)).mappings().one_or_none()
        require_seen(rate_mark(RateLimit(**row) if row is not None else None), seen)
