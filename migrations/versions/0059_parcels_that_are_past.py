"""Parcels that were finished and dropped: their senders may hear from the vendor only later.

A downgrade forgets them: such a sender takes what was collected for a second batch.
"""

import sqlalchemy as sa
from alembic import op


revision = "0059"
down_revision: str | None = "0058"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "past_parcels",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("vendor_id", sa.String(128), nullable=False),
        sa.Column("gone_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", "vendor_id", name="pk_past_parcels"),
    )
    op.create_index("ix_past_parcels_gone_us", "past_parcels", ["gone_us"])


def downgrade() -> None:
    op.drop_table("past_parcels")
