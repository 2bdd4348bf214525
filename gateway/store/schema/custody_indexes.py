"""Indexes that find incomplete erasures among very many complete ones.

Only migrations import this, as with `audit_indexes`.
"""

from sqlalchemy import Index, text

from gateway.store.schema.custody import erasure_cases


_SEARCHES = (
    ("closed", ("closed_revision",), "state = 'done'"),
    ("unreached", ("closed_us",), "state = 'done' AND reached_us = 0"),
    # A certificate is long and contains it itself, even for a case that an older program closed.
    (
        "arriving",
        ("closed_us", "id"),
        "state = 'done' AND certificate LIKE '%\"kept_arriving\":[\"%'",
    ),
)

ERASURE_INDEXES = tuple(
    [
        Index(
            f"ix_erasure_cases_{name}",
            *[erasure_cases.c[column] for column in columns],
            sqlite_where=text(where),
            postgresql_where=text(where),
        )
        for name, columns, where in _SEARCHES
    ]
)
