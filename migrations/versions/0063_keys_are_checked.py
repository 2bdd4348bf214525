"""A known text under the master key, and under each pepper: with a wrong one nothing starts.

Going down forgets them; who comes up again begins with the keys that are there then.
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
