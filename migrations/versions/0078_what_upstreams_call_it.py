"""Requests and batches are found by the ids that upstreams gave them.

Nothing is written for existing records: those are found by our own ids, as before.
"""

import sqlalchemy as sa
from alembic import op


revision = "0078"
down_revision: str | None = "0077"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None
floor = "0067"

_TABLE = "audit_upstream_names"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("organisation", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("leads_to", sa.Text, primary_key=True),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table(_TABLE)
