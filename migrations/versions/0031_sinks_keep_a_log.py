"""What sinks took and refused, as a log people can read."""

import sqlalchemy as sa
from alembic import op


revision = "0031"
down_revision: str | None = "0030"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "sink_deliveries",
        sa.Column("sink", sa.String(63), nullable=False),
        sa.Column("since_us", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("until_us", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("lines", sa.BigInteger, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("sink", "since_us", name="pk_sink_deliveries"),
    )
    op.create_index("ix_sink_deliveries_since_us", "sink_deliveries", ["since_us"])


def downgrade() -> None:
    op.drop_table("sink_deliveries")
