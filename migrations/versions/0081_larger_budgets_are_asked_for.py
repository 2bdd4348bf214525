"""Requests for larger budgets: one person asks, another agrees, for good or until a day.

An older program sets limits without recording it here: such a change is found when somebody
decides, or when the raise ends, because the limit is a different one then.
"""

import sqlalchemy as sa
from alembic import op


revision = "0081"
down_revision: str | None = "0080"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None
floor = "0080"

_TABLE = "budget_raises"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("organisation", sa.String(63), nullable=False),
        sa.Column("account", sa.String(255), nullable=False),
        sa.Column("window_kind", sa.String(5), nullable=False),
        sa.Column("seen_microusd", sa.BigInteger, nullable=False),
        sa.Column("back_microusd", sa.BigInteger, nullable=False),
        sa.Column("wanted_microusd", sa.BigInteger, nullable=False),
        sa.Column("until_us", sa.BigInteger, nullable=False),
        sa.Column("asked_by", sa.String(200), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("asked_us", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("decided_by", sa.String(200), nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("decided_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name=f"pk_{_TABLE}"),
    )
    for columns in (["organisation", "state"], ["account", "window_kind"], ["state", "until_us"]):
        op.create_index(f"ix_{_TABLE}_{'_'.join(columns)}", _TABLE, columns)


def downgrade() -> None:
    op.drop_table(_TABLE)
