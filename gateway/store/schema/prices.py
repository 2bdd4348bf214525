"""The schema of price files: contents, who proposed each, and which is in force since when."""

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, Text

from gateway.store.schema.tables import metadata


price_files = Table(
    "price_files",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", String(100), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("text", Text, nullable=False),
    Column("added_by", String(200), nullable=False),
    Column("added_us", BigInteger, nullable=False),
    Index(None, "digest", unique=True),
)
"""Texts that were valid when they were given; never changed and never deleted."""

price_orders = Table(
    "price_orders",
    metadata,
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, nullable=False),
    Column("actor", String(200), nullable=False),
    Column("reason", Text, nullable=False),
    Column("utc_us", BigInteger, nullable=False),
)
"""The files in force and since when: the last row counts; 0 is the configured file."""

price_proposals = Table(
    "price_proposals",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("file", Integer, nullable=False),
    Column("seen", Integer, nullable=False),
    Column("proposed_by", String(200), nullable=False),
    Column("reason", Text, nullable=False),
    Column("proposed_us", BigInteger, nullable=False),
    Column("more_microusd", BigInteger, nullable=False),
    Column("state", String(10), nullable=False),
    Column("decided_by", String(200), nullable=False),
    Column("comment", Text, nullable=False),
    Column("decided_us", BigInteger, nullable=False),
    Column("place", Integer, nullable=False),
    Index(None, "state"),
)
"""Proposals and decisions by two people; `place` is that of the order it became, else 0."""
