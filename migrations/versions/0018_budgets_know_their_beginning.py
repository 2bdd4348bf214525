"""Budgets know when they were set, so that what was spent before does not count."""

import sqlalchemy as sa
from alembic import op


revision = "0018"
down_revision: str | None = "0017"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    with op.batch_alter_table("budgets") as table:
        table.add_column(sa.Column("begun_us", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    with op.batch_alter_table("budgets") as table:
        table.drop_column("begun_us")
