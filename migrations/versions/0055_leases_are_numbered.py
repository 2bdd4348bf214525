"""Leases of parcels and sinks are numbered: a holder with an older number writes nothing."""

import sqlalchemy as sa
from alembic import op


revision = "0055"
down_revision: str | None = "0054"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_TABLES = ("parcels", "audit_shippers")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("term", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, "term")
