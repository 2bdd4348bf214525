"""Price files that one person proposes and another approves; hours that cost unusually much."""

import sqlalchemy as sa
from alembic import op


revision = "0044"
down_revision: str | None = "0043"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "price_proposals",
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("file", sa.Integer, nullable=False),
        sa.Column("seen", sa.Integer, nullable=False),
        sa.Column("proposed_by", sa.String(200), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("proposed_us", sa.BigInteger, nullable=False),
        sa.Column("more_microusd", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("decided_by", sa.String(200), nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("decided_us", sa.BigInteger, nullable=False),
        sa.Column("place", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_price_proposals"),
    )
    op.create_index("ix_price_proposals_state", "price_proposals", ["state"])
    op.create_table(
        "unusual_hours",
        sa.Column("organisation", sa.String(63), nullable=False),
        sa.Column("hour_us", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("value", sa.String(63), nullable=False),
        sa.Column("cost_microusd", sa.BigInteger, nullable=False),
        sa.Column("usual_microusd", sa.BigInteger, nullable=False),
        sa.Column("spread_microusd", sa.BigInteger, nullable=False),
        sa.Column("bound_microusd", sa.BigInteger, nullable=False),
        sa.Column("samples", sa.Integer, nullable=False),
        sa.Column("found_us", sa.BigInteger, nullable=False),
        sa.Column("claimed_us", sa.BigInteger, nullable=False),
        sa.Column("told_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint(
            "organisation", "hour_us", "kind", "value", name="pk_unusual_hours"
        ),
    )
    op.create_index("ix_unusual_hours_told_us", "unusual_hours", ["told_us"])


def downgrade() -> None:
    op.drop_table("unusual_hours")
    op.drop_table("price_proposals")
