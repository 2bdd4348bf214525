"""How many lines of a batch were erased because of the person they named."""

import sqlalchemy as sa
from alembic import op


revision = "0034"
down_revision: str | None = "0033"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.add_column("batches", sa.Column("erased", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("batches", "erased")
