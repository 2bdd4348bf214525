"""The schema of the evidence: what the database holds of the log, its trees and its deliveries."""

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, String, Table, Text

from gateway.store.schema.tables import metadata


audit_records = Table(
    "audit_records",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("worker", Text, nullable=False),
    Column("segment", BigInteger, nullable=False),
    Column("offset_bytes", BigInteger, nullable=False),
    Column("stage", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("utc_us", BigInteger, nullable=False),
    Column("workspace", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("jurisdiction", Text, nullable=False),
    Column("data_class", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("http_status", Integer, nullable=False),
    Column("error", Text, nullable=False),
    Column("cost_microusd", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("duration_us", BigInteger, nullable=False),
    Column("raw", LargeBinary),
    Column("model_requested", Text, nullable=False, server_default=""),
    Column("findings", Text, nullable=False, server_default=""),
    Column("about", Text, nullable=False, server_default=""),
    Column("first_byte_us", BigInteger, nullable=False, server_default="0"),
    Column("policy_digest", Text, nullable=False, server_default=""),
    Column("batch", Text, nullable=False, server_default=""),
    Column("subject", Text, nullable=False, server_default=""),
    Column("tier", Text, nullable=False, server_default=""),
    Column("cache", Text, nullable=False, server_default=""),
    Column("sent", Text, nullable=False, server_default=""),
    Column("rules", BigInteger),
    Index(None, "request_id"),
)
"""A projection of the segments: `raw` is the record's line (NULL: it is read from the segment), the
other columns exist to be searched. Nothing is stored twice because a position moves with its rows.

They are of any length, because a record that did not fit would stop the projection for good; what
is searched of very long ones is their beginning, which is what an index has room for.
`findings` is ` LABEL:count` of each label; `about` is the organisation that a deed concerns;
`policy_digest`, `subject` (the end user), `tier` (that served, where it is not the upstream's
default) and `cache` (how an answer was found there) are added up, not searched; `batch` is the
batch that it is a line of. `sent` is how what was found went to a target, where not as it was
written: as `surrogates`, or `blackened`. `rules` is the set of rules that held for the request of
an outcome (see `audit_rule_sets`): 0 for none, -1 where nobody can say any more, NULL where nobody
has looked yet, and in every other row. `stage` is the record's, but `again` for an outcome of a
request that had one: it is added to nothing.
"""

audit_rule_sets = Table(
    "audit_rule_sets",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("rule", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
)
"""For each rule, the sets that contain it, among all sets that ever applied together to an
organisation's request. A set's number is computed from its names, so that it is known without a
query when a record is stored."""

audit_upstream_names = Table(
    "audit_upstream_names",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("leads_to", Text, primary_key=True),
    sqlite_with_rowid=False,
)
"""Upstreams' names for calls, batches and files of an organisation, from its outcomes: `leads_to`
is the request that the upstream was asked for, or the batch whose lines it was given."""

audit_positions = Table(
    "audit_positions",
    metadata,
    Column("worker", Text, primary_key=True),
    Column("segment", BigInteger, nullable=False),
    Column("offset_bytes", BigInteger, nullable=False),
)
"""How far each worker's segments are projected: the place after the last stored record."""

audit_sequences = Table(
    "audit_sequences",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("next_sequence", BigInteger, nullable=False),
    Column("open_tiles", LargeBinary, nullable=False),
)
"""Each organisation's log: its length plus one, and the end of its Merkle tree."""

audit_tiles = Table(
    "audit_tiles",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("level", Integer, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("hashes", LargeBinary, nullable=False),
)
"""Full tiles of the Merkle trees: 256 hashes each, inserted once and never changed."""

audit_checkpoints = Table(
    "audit_checkpoints",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("signed_us", BigInteger, primary_key=True, autoincrement=False),
    Column("size", BigInteger, nullable=False),
    Column("root", LargeBinary(32), nullable=False),
    Column("note", Text, nullable=False),
)

audit_awaited_records = Table(
    "audit_awaited_records",
    metadata,
    Column("organisation", Text, primary_key=True),
    Column("leaf", LargeBinary(32), primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("lost_us", BigInteger, nullable=False, server_default="0"),
)
"""Signed numbers whose records the database lost when it was put back: the tree has their leaves,
and the records come from their workers' segments. `lost_us`: somebody declared that no log has the
record any more."""

audit_awaited_workers = Table(
    "audit_awaited_workers",
    metadata,
    Column("worker", String(100), primary_key=True),
    Column("told_us", BigInteger, nullable=False, server_default="0"),
    Column("brought_us", BigInteger, nullable=False, server_default="0"),
    Column("lost_us", BigInteger, nullable=False, server_default="0"),
)
"""Workers that must report before any serves on a database that was put back; empty at other times.
`told_us`: its checkpoints and orders of numbers are in; `brought_us`: its records too."""

audit_awaited_deeds = Table(
    "audit_awaited_deeds",
    metadata,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
)
"""Deeds in the log of operators that a restored database lacks, that only people can repeat, and
that nobody has decided about: until then no worker serves."""

audit_second_records = Table(
    "audit_second_records",
    metadata,
    Column("worker", Text, primary_key=True),
    Column("segment", BigInteger, primary_key=True, autoincrement=False),
    Column("offset_bytes", BigInteger, primary_key=True, autoincrement=False),
    Column("request_id", Text, nullable=False),
    Column("stage", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Index(None, "request_id"),
)
"""Records that the database took itself while a worker's disk could not: their sealed content."""

audit_second_keys = Table(
    "audit_second_keys",
    metadata,
    Column("key", Text, primary_key=True),
    Column("organisation", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("line", Text, nullable=False),
    Column("master_key_id", String(32), nullable=False, server_default=""),
    Index(None, "organisation", "subject"),
)
"""Their data keys, wrapped, as lines of `keys.jsonl` are."""

audit_cursors = Table(
    "audit_cursors",
    metadata,
    Column("sink", String(63), primary_key=True),
    Column("kind", String(20), primary_key=True),
    Column("organisation", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
)
"""How far each sink has taken an organisation's records (sequence) and checkpoints (time)."""

audit_shippers = Table(
    "audit_shippers",
    metadata,
    Column("sink", String(63), primary_key=True),
    Column("holder", Text, nullable=False),
    Column("until_us", BigInteger, nullable=False),
    Column("term", BigInteger, nullable=False, server_default="0"),
)
"""The worker that now delivers to a sink. `term` counts how often somebody began to: with an older
term no cursor can be moved any more."""

gone_workers = Table(
    "gone_workers",
    metadata,
    Column("worker", String(100), primary_key=True),
    Column("heard_us", BigInteger, nullable=False),
    Column("requests", BigInteger, nullable=False),
    Column("since_us", BigInteger, nullable=False),
    Column("retired_us", BigInteger, nullable=False, server_default="0"),
    Column("retired_by", Text, nullable=False, server_default=""),
    Column("reason", Text, nullable=False, server_default=""),
    Column("ending_by", Text, nullable=False, server_default=""),
    Column("ending_us", BigInteger, nullable=False, server_default="0"),
)
"""Workers that left requests open, kept longer than their own reports; and retired names.
`ending_by` is the log to which outcomes of a retired worker are being written, otherwise empty."""

worker_retirements = Table(
    "worker_retirements",
    metadata,
    Column("id", String(12), primary_key=True),
    Column("worker", String(100), nullable=False),
    Column("shown", Text, nullable=False),
    Column("asked_by", String(200), nullable=False),
    Column("reason", Text, nullable=False),
    Column("asked_us", BigInteger, nullable=False),
    Column("state", String(10), nullable=False),
    Column("decided_by", String(200), nullable=False),
    Column("comment", Text, nullable=False),
    Column("decided_us", BigInteger, nullable=False),
    Index(None, "state"),
    Index(None, "worker"),
)
"""Requests to retire a gone worker's name: who asked, what it had open then, and who decided."""
