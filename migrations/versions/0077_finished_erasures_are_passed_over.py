"""An index of incomplete erasures, so that they are found however many are complete.

A folder records how far it has done its part. Nothing is known of earlier cases: they are looked at
once more, and recorded then.
"""

import sqlalchemy as sa
from alembic import op


revision = "0077"
down_revision: str | None = "0076"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None
floor = "0067"

_CASES, _FOLDERS = "erasure_cases", "audit_folders"
_INDEXES = {
    "ix_erasure_cases_closed": (["closed_revision"], "state = 'done'"),
    "ix_erasure_cases_unreached": (["closed_us"], "state = 'done' AND reached_us = 0"),
    "ix_erasure_cases_arriving": (
        ["closed_us", "id"],
        "state = 'done' AND certificate LIKE '%\"kept_arriving\":[\"%'",
    ),
}


def upgrade() -> None:
    for name, (columns, condition) in _INDEXES.items():
        where = sa.text(condition)
        op.create_index(name, _CASES, columns, sqlite_where=where, postgresql_where=where)
    settled = sa.Column("settled_revision", sa.BigInteger, nullable=False, server_default="-1")
    op.add_column(_FOLDERS, settled)
    whose = sa.Column("settled_workers", sa.Text, nullable=False, server_default="")
    op.add_column(_FOLDERS, whose)


def downgrade() -> None:
    op.drop_column(_FOLDERS, "settled_workers")
    op.drop_column(_FOLDERS, "settled_revision")
    for name in _INDEXES:
        op.drop_index(name, _CASES)
