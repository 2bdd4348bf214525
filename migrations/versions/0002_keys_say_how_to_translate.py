"""Keys say what happens to a part of a request that a target's dialect cannot express."""

import sqlalchemy as sa
from alembic import op


revision = "0002"
down_revision: str | None = "0001"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    with op.batch_alter_table("virtual_keys") as table:
        table.add_column(
            sa.Column("translation", sa.String(7), nullable=False, server_default="warn")
        )


def downgrade() -> None:
    with op.batch_alter_table("virtual_keys") as table:
        table.drop_column("translation")
