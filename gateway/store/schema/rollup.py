"""The schema of the rollup: outcomes summed by hour and by day, and how far the summing went.

It can be thrown away and made again from the audit log's projection, as the projection can from the
segments.
"""

from sqlalchemy import BigInteger, Column, Index, String, Table, Text

from gateway.store.schema.tables import metadata


COUNTERS = (
    *("requests", "failed", "refused", "found", "unpriced"),
    *("input_tokens", "output_tokens", "cost_microusd", "duration_us"),
)
"""`found` are requests with findings, `unpriced` answered ones that cost nothing."""
HOUR_GROUPS = ("key_id", "target", "provider", "jurisdiction")
DAY_GROUPS = ("workspace", "project", *HOUR_GROUPS, "policy_digest")
"""The columns that distinguish outcomes of one organisation, within an hour and within a day."""


def _counters() -> list[Column[int]]:
    added = [Column(name, BigInteger, nullable=False) for name in COUNTERS]
    return [*added, Column("last_us", BigInteger, nullable=False)]


traffic_hours = Table(
    "traffic_hours",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("hour_us", BigInteger, primary_key=True, autoincrement=False),
    Column("key_id", Text, primary_key=True),
    Column("target", Text, primary_key=True),
    Column("provider", Text, primary_key=True),
    Column("jurisdiction", Text, primary_key=True),
    *_counters(),
)
"""Hours of UTC, kept for some weeks."""

traffic_days = Table(
    "traffic_days",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("day", String(10), primary_key=True),
    Column("workspace", Text, primary_key=True),
    Column("project", Text, primary_key=True),
    Column("key_id", Text, primary_key=True),
    Column("target", Text, primary_key=True),
    Column("provider", Text, primary_key=True),
    Column("jurisdiction", Text, primary_key=True),
    Column("policy_digest", Text, primary_key=True, server_default=""),
    *_counters(),
)
"""Days of the organisation's time zone; `policy_digest` is of the document that decided."""

traffic_hour_totals = Table(
    "traffic_hour_totals",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("hour_us", BigInteger, primary_key=True, autoincrement=False),
    Column("target", Text, primary_key=True),
    Column("provider", Text, primary_key=True),
    Column("jurisdiction", Text, primary_key=True),
    *_counters(),
)
"""The same over all keys: a few rows where there are thousands of keys."""

traffic_day_totals = Table(
    "traffic_day_totals",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("day", String(10), primary_key=True),
    Column("workspace", Text, primary_key=True),
    Column("project", Text, primary_key=True),
    Column("target", Text, primary_key=True),
    Column("provider", Text, primary_key=True),
    Column("jurisdiction", Text, primary_key=True),
    Column("policy_digest", Text, primary_key=True, server_default=""),
    *_counters(),
)
"""The same over all keys."""

traffic_key_days = Table(
    "traffic_key_days",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("day", String(10), primary_key=True),
    Column("key_id", Text, primary_key=True),
    *_counters(),
    Index(None, "organisation", "key_id"),
)
"""The same for each key, whoever served it, so that one day of a key needs no summing."""

batch_costs = Table(
    "batch_costs",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("batch_id", Text, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("cost_microusd", BigInteger, nullable=False),
)
"""The total cost of each batch's lines, as long as the batch is kept."""

rollup_cursors = Table(
    "rollup_cursors",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("time_zone", String(64), nullable=False),
)
"""The number up to which an organisation's records are added up, and the zone of its days."""
