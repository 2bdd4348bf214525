"""Drained pool members: which get no new requests, since when, and who ordered it."""

import sqlalchemy as sa
from alembic import op


revision = "0017"
down_revision: str | None = "0016"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "pool_drains",
        sa.Column("member", sa.String(100), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("since_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("member", name="pk_pool_drains"),
    )


def downgrade() -> None:
    op.drop_table("pool_drains")
