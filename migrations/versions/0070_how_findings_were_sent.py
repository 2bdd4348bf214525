"""Requests are found by how their findings were sent; existing records do not say it."""

import sqlalchemy as sa
from alembic import op


revision = "0070"
down_revision: str | None = "0069"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None
floor = "0067"


def upgrade() -> None:
    op.add_column("audit_records", sa.Column("sent", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("audit_records", "sent")
