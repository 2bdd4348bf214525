"""Answers that their project deleted before their worker could write them.

An older program neither records nor looks for them: what it deletes this way comes back, as before.
"""

import sqlalchemy as sa
from alembic import op


revision = "0082"
down_revision: str | None = "0081"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None
floor = "0080"

_TABLE = "deleted_answers"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("organisation", sa.String(63), nullable=False),
        sa.Column("workspace", sa.String(63), nullable=False),
        sa.Column("project", sa.String(63), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("deleted_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("organisation", "workspace", "project", "id", name=f"pk_{_TABLE}"),
    )
    op.create_index(f"ix_{_TABLE}_deleted_us", _TABLE, ["deleted_us"])


def downgrade() -> None:
    op.drop_table(_TABLE)
