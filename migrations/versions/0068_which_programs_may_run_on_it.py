"""The floor: how old a program may be that still runs on this database."""

import sqlalchemy as sa
from alembic import op


revision = "0068"
down_revision: str | None = "0067"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None
floor = "0067"


def upgrade() -> None:
    # Whoever migrates writes the row: `gateway.store.migrate`.
    op.create_table(
        "schema_floor",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("floor", sa.String(32), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_schema_floor_one_row")),
    )


def downgrade() -> None:
    op.drop_table("schema_floor")
