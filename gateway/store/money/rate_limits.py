"""Rate limits as they are kept in the database; workers load them when the revision changes."""

from msgspec.structs import asdict
from sqlalchemy import delete, select

from gateway.errors import RequestInvalid
from gateway.money.rates import RATE_MAX, RateLimit
from gateway.store.engine import Database
from gateway.store.revisions import bump
from gateway.store.schema.tables import rate_limits
from gateway.store.speech import insert_into


class RateLimitTable:
    """Rate limits of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[RateLimit]:
        query = select(rate_limits).order_by(rate_limits.c.account)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [RateLimit(**row) for row in rows]

    async def set(self, limit: RateLimit) -> None:
        """Limit an account, instead of whatever limits it had; heard by workers within a second.

        Raises:
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
            # Of two who limit an account for the first time at once, neither is in the way.
            await connection.execute(
                statement.on_conflict_do_update(index_elements=["account"], set_=row)
            )
            await bump(connection)

    async def remove(self, account: str) -> None:
        """Let an account ask as often as it likes."""
        async with self._database.writing() as connection:
            await connection.execute(delete(rate_limits).where(rate_limits.c.account == account))
            await bump(connection)
