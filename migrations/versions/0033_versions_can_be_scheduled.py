"""Policy versions can be scheduled to take effect at a time."""

import sqlalchemy as sa
from alembic import op


revision = "0033"
down_revision: str | None = "0032"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "policy_schedules",
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("level", sa.String(255), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("action", sa.String(10), nullable=False),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("percent", sa.Float, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        *(sa.Column(name, sa.Integer, nullable=False) for name in ("live", "canary")),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("ended_us", sa.BigInteger, nullable=False),
        sa.Column("ended_by", sa.String(200), nullable=False),
        sa.Column("said", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_policy_schedules"),
    )
    op.create_index("ix_policy_schedules_state_at_us", "policy_schedules", ["state", "at_us"])


def downgrade() -> None:
    op.drop_table("policy_schedules")
