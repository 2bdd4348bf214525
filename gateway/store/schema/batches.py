"""The schema of batches: one row each, and one for each of its lines until the batch is over."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    false,
)

from gateway.store.schema.owned import OWNER
from gateway.store.schema.tables import metadata


batches = Table(
    "batches",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("kind", String(8), nullable=False),
    Column("organisation", String(63), nullable=False),
    Column("workspace", String(63), nullable=False),
    Column("project", String(63), nullable=False),
    Column("key_id", String(12), nullable=False),
    Column("endpoint", String(64), nullable=False),
    Column("state", String(12), nullable=False),
    Column("ending", String(12), nullable=False),
    Column("input_file_id", String(64), nullable=False),
    Column("output_file_id", String(64), nullable=False),
    Column("error_file_id", String(64), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger, nullable=False),
    Column("keep_until_us", BigInteger, nullable=False),
    Column("started_us", BigInteger, nullable=False),
    Column("finalizing_us", BigInteger, nullable=False),
    Column("cancelling_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger, nullable=False),
    Column("stopped", String(40), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("succeeded", Integer, nullable=False),
    Column("errored", Integer, nullable=False),
    Column("canceled", Integer, nullable=False),
    Column("expired", Integer, nullable=False),
    Column("due_us", BigInteger, nullable=False),
    Column("stalls", Integer, nullable=False),
    Column("served_us", BigInteger, nullable=False),
    Column("tender", String(64), nullable=False),
    Column("tended_until_us", BigInteger, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_told", LargeBinary, nullable=False),
    Column("sealed_flaws", LargeBinary, nullable=False),
    Column("erased", Integer, nullable=False, server_default="0"),
    Column("is_cost_kept", Boolean, nullable=False, server_default=false()),
    Column("master_key_id", String(32), nullable=False, server_default="", index=True),
    Index(None, *OWNER, "created_us"),
    Index(None, "state"),
    Index(None, "keep_until_us"),
)
"""Counts are stored when a batch is over; before, its lines are counted. `due_us` is when it goes
on after everything was full, `stalls` how often that happened in a row, `served_us` when it last
got a turn. `tender` is the worker that checks or finishes it, until `tended_until_us`. `erased`
counts lines that were destroyed because of the end user they named. `is_cost_kept` says that all
its records name it (`rollup.batch_costs`), which those of older batches do not."""

batch_lines = Table(
    "batch_lines",
    metadata,
    Column("batch_id", ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("state", String(9), nullable=False),
    Column("holder", String(64), nullable=False),
    Column("leased_until_us", BigInteger, nullable=False),
    Column("due_us", BigInteger, nullable=False),
    Column("claims", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("sealed_id", LargeBinary, nullable=False),
    Column("sealed_body", LargeBinary, nullable=False),
    Column("sealed_end", LargeBinary),
    Index(None, "batch_id", "state", "due_us"),
)
"""A running line belongs to its `holder` as long as the lease is renewed; `claims` numbers its
runs, so that only the newest can end it."""
