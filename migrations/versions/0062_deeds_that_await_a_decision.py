"""Deeds that a restored database lacks, and about which somebody has to decide.

A downgrade forgets them: workers that wait for the decision then serve without it.
"""

import sqlalchemy as sa
from alembic import op


revision = "0062"
down_revision: str | None = "0061"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_DEEDS = "audit_awaited_deeds"


def upgrade() -> None:
    op.create_table(
        _DEEDS,
        sa.Column("sequence", sa.BigInteger, nullable=False, autoincrement=False),
        sa.PrimaryKeyConstraint("sequence", name=f"pk_{_DEEDS}"),
    )


def downgrade() -> None:
    op.drop_table(_DEEDS)
