"""The batch of each record, and cost sums per batch, so that pages need not read its records.

Older records have no batch in their rows. Older batches are marked: their cost is looked for in the
records of their keys, as far as those are searched.
"""

import sqlalchemy as sa
from alembic import op


revision = "0052"
down_revision: str | None = "0051"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_INDEX = "ix_audit_records_batch"
_TABLE = "batch_costs"


def upgrade() -> None:
    op.add_column("audit_records", sa.Column("batch", sa.Text, nullable=False, server_default=""))
    op.create_index(
        _INDEX,
        "audit_records",
        ["organisation", "batch", "stage", "sequence"],
        sqlite_where=sa.text("batch <> ''"),
        postgresql_where=sa.text("batch <> ''"),
    )
    op.create_table(
        _TABLE,
        sa.Column("organisation", sa.Text, nullable=False),
        sa.Column("batch_id", sa.Text, nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("cost_microusd", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("organisation", "batch_id", name=f"pk_{_TABLE}"),
    )
    op.add_column(
        "batches",
        sa.Column("is_cost_kept", sa.Boolean, nullable=False, server_default=sa.false()),
    )


def downgrade() -> None:
    op.drop_column("batches", "is_cost_kept")
    op.drop_table(_TABLE)
    op.drop_index(_INDEX, table_name="audit_records")
    op.drop_column("audit_records", "batch")
