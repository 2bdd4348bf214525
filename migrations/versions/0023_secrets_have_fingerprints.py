"""Fingerprints that tell sealed secrets apart: a short mark under the master key beside each."""

import sqlalchemy as sa
from alembic import op


revision = "0023"
down_revision: str | None = "0022"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.add_column(
        "sealed_secrets",
        sa.Column("fingerprint", sa.String(16), nullable=False, server_default=""),
    )


def downgrade() -> None:
    with op.batch_alter_table("sealed_secrets") as table:
        table.drop_column("fingerprint")
