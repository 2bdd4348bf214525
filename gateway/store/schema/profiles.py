"""The schema of profiles: what prompts and answers looked like by hour, and drifts of them.

Profiles can be thrown away and made again from the audit log's projection; drifts are decisions.
"""

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, Text

from gateway.store.schema.tables import metadata


profile_hours = Table(
    "profile_hours",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("hour_us", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(10), primary_key=True),
    Column("scope", Text, primary_key=True),
    Column("count", BigInteger, nullable=False),
    Column("bins", Text, nullable=False),
)
"""Counts of a bounded sample of each hour; `scope` is the model asked for, or the target."""

profile_cursors = Table(
    "profile_cursors",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("next_us", BigInteger, nullable=False),
    Column("holder", String(32), nullable=False),
    Column("until_us", BigInteger, nullable=False),
)
"""The hour to profile next, and the worker that is doing it."""

drifts = Table(
    "drifts",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("organisation", Text, nullable=False),
    Column("kind", String(10), nullable=False),
    Column("scope", Text, nullable=False),
    Column("state", String(10), nullable=False),
    Column("began_us", BigInteger, nullable=False),
    Column("found_us", BigInteger, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
    Column("calm", Integer, nullable=False),
    Column("said", Text, nullable=False),
    Column("guarantee", String(32), nullable=False),
    Column("ended_us", BigInteger, nullable=False),
    Column("ended_by", String(200), nullable=False),
    Column("reason", Text, nullable=False),
    Column("claimed_us", BigInteger, nullable=False),
    Column("told_us", BigInteger, nullable=False),
    Index(None, "state"),
    Index(None, "organisation", "kind", "scope"),
)
"""Drifts that were found, and how each ended; kept, because a reference leaves their time out."""
