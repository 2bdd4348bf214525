"""Copies of erased lines that vendors hold, until they have deleted them."""

import sqlalchemy as sa
from alembic import op


revision = "0041"
down_revision: str | None = "0040"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    with op.batch_alter_table("parcels") as table:
        table.add_column(sa.Column("is_erased", sa.Integer, nullable=False, server_default="0"))
    op.create_table(
        "vendor_copies",
        sa.Column("parcel", sa.String(64), nullable=False),
        sa.Column("case_id", sa.String(12), nullable=False),
        sa.Column("organisation", sa.String(63), nullable=False),
        sa.Column("provider", sa.String(63), nullable=False),
        sa.Column("vendor_id", sa.String(128), nullable=False),
        sa.Column("lines", sa.Integer, nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("ordered_us", sa.BigInteger, nullable=False),
        sa.Column("ended_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("parcel", "case_id", name="pk_vendor_copies"),
    )
    op.create_index("ix_vendor_copies_organisation", "vendor_copies", ["organisation"])


def downgrade() -> None:
    op.drop_table("vendor_copies")
    with op.batch_alter_table("parcels") as table:
        table.drop_column("is_erased")
