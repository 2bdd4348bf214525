"""The schema of policies: documents, versions, texts and drafts, their history, and boards."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
)

from gateway.store.schema.tables import metadata


_DIGEST = String(64)
_LEVEL = String(255)

policy_documents = Table(
    "policy_documents",
    metadata,
    Column("digest", _DIGEST, primary_key=True),
    Column("name", String(100), nullable=False),
    Column("body", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)
"""Canonical JSON of every document that ever acted or was drafted; never deleted."""

policy_versions = Table(
    "policy_versions",
    metadata,
    Column("level", _LEVEL, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("digest", _DIGEST, ForeignKey("policy_documents.digest"), nullable=False),
    Column("state", String(10), nullable=False),
    Column("author", String(200), nullable=False),
    Column("approver", String(200), nullable=False),
    Column("note", Text, nullable=False),
    Column("percent", Float, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("changed_us", BigInteger, nullable=False),
    Column("guard", Text, nullable=False, server_default=""),
    CheckConstraint("percent >= 0 AND percent <= 100", name="percent_is_a_share"),
    Index(None, "state"),
)

policy_events = Table(
    "policy_events",
    metadata,
    Column("level", _LEVEL, primary_key=True),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, nullable=False),
    Column("utc_us", BigInteger, nullable=False),
    Column("actor", String(200), nullable=False),
    Column("action", String(20), nullable=False),
    Column("reason", Text, nullable=False),
)
"""Who did what to which version, in order; append-only."""

canary_figures = Table(
    "canary_figures",
    metadata,
    Column("level", _LEVEL, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("run", String(32), primary_key=True),
    Column("arms", Text, nullable=False),
    Column("changed_us", BigInteger, nullable=False),
)
"""The counts of each run of a worker under a canary and beside it; new runs begin at nothing."""

policy_schedules = Table(
    "policy_schedules",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("level", _LEVEL, nullable=False),
    Column("number", Integer, nullable=False),
    Column("action", String(10), nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("actor", String(200), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("percent", Float, nullable=False),
    Column("reason", Text, nullable=False),
    Column("live", Integer, nullable=False),
    Column("canary", Integer, nullable=False),
    Column("state", String(10), nullable=False),
    Column("ended_us", BigInteger, nullable=False),
    Column("ended_by", String(200), nullable=False),
    Column("said", Text, nullable=False),
    Index(None, "state", "at_us"),
)
"""Versions that are scheduled to act, and the result."""

policy_texts = Table(
    "policy_texts",
    metadata,
    Column("level", _LEVEL, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("text", Text, nullable=False),
)
"""Versions as they were written: with comments, which the canonical form does not have."""

policy_drafts = Table(
    "policy_drafts",
    metadata,
    Column("level", _LEVEL, primary_key=True),
    Column("text", Text, nullable=False),
    Column("base", Integer, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("author", String(200), nullable=False),
    Column("changed_us", BigInteger, nullable=False),
)
"""Unfinished texts: one per level, valid or not, until it becomes a version."""

target_boards = Table(
    "target_boards",
    metadata,
    Column("digest", String(32), primary_key=True),
    Column("targets", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)
"""What policy knew of the targets, by digest: records name their board instead of repeating it."""
