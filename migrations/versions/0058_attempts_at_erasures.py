"""What each attempt at an erasure found before it destroyed it.

A downgrade forgets this: an erasure that crashed then certifies only what it finds again.
"""

import sqlalchemy as sa
from alembic import op


revision = "0058"
down_revision: str | None = "0057"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "erasure_attempts",
        sa.Column("case_id", sa.String(12), nullable=False),
        sa.Column("begun_us", sa.BigInteger, nullable=False),
        sa.Column("found", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("case_id", "begun_us", name="pk_erasure_attempts"),
    )


def downgrade() -> None:
    op.drop_table("erasure_attempts")
