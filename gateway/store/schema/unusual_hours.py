"""The schema of hours that cost unusually much, with the figures they were judged by."""

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table

from gateway.store.schema.tables import metadata


unusual_hours = Table(
    "unusual_hours",
    metadata,
    Column("organisation", String(63), primary_key=True),
    Column("hour_us", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(10), primary_key=True),
    Column("value", String(63), primary_key=True),
    Column("cost_microusd", BigInteger, nullable=False),
    Column("usual_microusd", BigInteger, nullable=False),
    Column("spread_microusd", BigInteger, nullable=False),
    Column("bound_microusd", BigInteger, nullable=False),
    Column("samples", Integer, nullable=False),
    Column("found_us", BigInteger, nullable=False),
    Column("claimed_us", BigInteger, nullable=False),
    Column("told_us", BigInteger, nullable=False),
    Index(None, "told_us"),
)
"""`kind` is `team` or `key`, `value` a workspace or a key's id; kept longer than the hours."""
