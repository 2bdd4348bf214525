"""Price files in the database, and which of them was put in force, when and by whom."""

import sqlalchemy as sa
from alembic import op


revision = "0040"
down_revision: str | None = "0039"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "price_files",
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("added_by", sa.String(200), nullable=False),
        sa.Column("added_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_price_files"),
    )
    op.create_index("ix_price_files_digest", "price_files", ["digest"], unique=True)
    op.create_table(
        "price_orders",
        sa.Column("place", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("utc_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("place", name="pk_price_orders"),
    )


def downgrade() -> None:
    op.drop_table("price_orders")
    op.drop_table("price_files")
