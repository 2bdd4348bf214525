"""Indexes by which the evidence is searched, besides its keys.

Only migrations import this. A partial index needs PostgreSQL's dialect, which takes four mebibytes
that a worker on SQLite need not carry.
"""

from sqlalchemy import Index, text

from gateway.store.schema.audit import audit_records


SEARCHED = (
    *("stage", "status", "jurisdiction", "target", "model_requested", "data_class", "findings"),
    *("project", "key_id", "workspace", "provider", "error", "actor", "action", "about"),
    *("http_status", "cost_microusd", "input_tokens", "output_tokens"),
    *("duration_us", "first_byte_us"),
)
"""Columns that a list filters by or counts: indexes in a list's order contain them, so that neither
has to read the rows themselves, which are ten times as wide."""

_SEARCHES = (
    ("listed", ("organisation", "utc_us", "sequence", *SEARCHED), ""),
    (
        "found",
        ("organisation", "utc_us", "sequence", *SEARCHED),
        "stage = 'outcome' AND findings <> ''",
    ),
    (
        "not_ok",
        ("organisation", "utc_us", "sequence", *SEARCHED),
        "stage = 'outcome' AND status <> 'ok'",
    ),
    (
        "others",
        ("organisation", "utc_us", "sequence", *SEARCHED),
        "stage <> 'intent' AND stage <> 'outcome'",
    ),
    ("actor", ("organisation", "actor", "utc_us"), "actor <> ''"),
    ("about", ("about", "utc_us"), "about <> ''"),
    ("batch", ("organisation", "batch", "stage", "sequence"), "batch <> ''"),
    ("deeds", ("organisation", "action", "utc_us", "sequence", "about"), "action <> ''"),
    # The newest requests of one set of rules; and those whose rules are not looked up yet.
    ("ruled", ("organisation", "rules", "utc_us", "sequence"), "rules IS NOT NULL"),
    ("unruled", ("organisation", "utc_us", "sequence"), "rules IS NULL AND stage = 'outcome'"),
    # For receipts: not unique here, since only what a worker's position passed is inserted.
    ("place", ("worker", "segment", "offset_bytes"), ""),
)

INDEXES = tuple(
    [
        Index(
            f"ix_audit_records_{name}",
            *[audit_records.c[column] for column in columns],
            sqlite_where=text(where) if where else None,
            postgresql_where=text(where) if where else None,
        )
        for name, columns, where in _SEARCHES
    ]
)
"""Rare rows that people look for among very many have indexes of their own."""
