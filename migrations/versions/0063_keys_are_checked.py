"""A known text under the master key and each pepper: with a wrong key nothing starts.

A downgrade forgets them; the next upgrade begins with the keys that are there then.
"""

import sqlalchemy as sa
from alembic import op


revision = "0063"
down_revision: str | None = "0062"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_CHECKS = "key_checks"


def upgrade() -> None:
    op.create_table(
        _CHECKS,
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("key_id", sa.String(32), nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("made_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name=f"pk_{_CHECKS}"),
    )


def downgrade() -> None:
    op.drop_table(_CHECKS)
