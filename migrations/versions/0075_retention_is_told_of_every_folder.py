"""Each audit folder reports how retention stands in it, by organisation.

A downgrade forgets the reports; the next look writes them again.
"""

import sqlalchemy as sa
from alembic import op


revision = "0075"
down_revision: str | None = "0074"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None
floor = "0067"

_REPORTS = "retention_reports"


def upgrade() -> None:
    op.create_table(
        _REPORTS,
        sa.Column("folder", sa.String(16), nullable=False),
        sa.Column("organisation", sa.String(63), nullable=False),
        sa.Column("told_by", sa.Text, nullable=False),
        sa.Column("looked_us", sa.BigInteger, nullable=False),
        sa.Column("days", sa.Integer, nullable=False),
        sa.Column("due", sa.Integer, nullable=False),
        sa.Column("held", sa.Integer, nullable=False),
        sa.Column("unsure", sa.Integer, nullable=False),
        sa.Column("over_day", sa.Integer, nullable=False),
        sa.Column("gone", sa.Integer, nullable=False),
        sa.Column("gone_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("folder", "organisation", name="pk_retention_reports"),
    )


def downgrade() -> None:
    op.drop_table(_REPORTS)
