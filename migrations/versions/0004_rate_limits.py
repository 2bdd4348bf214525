"""Rate limits: how often accounts may send requests, and how many at once."""

import sqlalchemy as sa
from alembic import op


revision = "0004"
down_revision: str | None = "0003"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "rate_limits",
        sa.Column("account", sa.String(255), nullable=False),
        sa.Column("requests_per_minute", sa.BigInteger),
        sa.Column("tokens_per_minute", sa.BigInteger),
        sa.Column("concurrent_requests", sa.BigInteger),
        sa.PrimaryKeyConstraint("account", name="pk_rate_limits"),
    )


def downgrade() -> None:
    op.drop_table("rate_limits")
