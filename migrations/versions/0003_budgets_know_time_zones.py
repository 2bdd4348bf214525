"""Organisations and budgets know in which time zone a day begins."""

import sqlalchemy as sa
from alembic import op


revision = "0003"
down_revision: str | None = "0002"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    zone = sa.String(64)
    with op.batch_alter_table("organisations") as table:
        table.add_column(sa.Column("time_zone", zone, nullable=False, server_default="UTC"))
    with op.batch_alter_table("budgets") as table:
        table.add_column(sa.Column("time_zone", zone, nullable=False, server_default="UTC"))
        table.add_column(
            sa.Column("zone_since_us", sa.BigInteger, nullable=False, server_default="0")
        )


def downgrade() -> None:
    with op.batch_alter_table("budgets") as table:
        table.drop_column("zone_since_us")
        table.drop_column("time_zone")
    with op.batch_alter_table("organisations") as table:
        table.drop_column("time_zone")
