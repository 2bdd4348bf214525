"""Workers that never came back: what they left open, and whether somebody retired their names.

Retiring a name puts its place in the projection behind every segment. A downgrade leaves it there:
the previous version takes such a worker for one whose segments are missing, and refuses its start.
"""

import sqlalchemy as sa
from alembic import op


revision = "0053"
down_revision: str | None = "0052"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_TABLE = "gone_workers"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("worker", sa.String(100), nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("heard_us", "requests", "since_us")
        ),
        sa.Column("retired_us", sa.BigInteger, nullable=False, server_default="0"),
        *(
            sa.Column(name, sa.Text, nullable=False, server_default="")
            for name in ("retired_by", "reason")
        ),
        sa.PrimaryKeyConstraint("worker", name=f"pk_{_TABLE}"),
    )


def downgrade() -> None:
    op.drop_table(_TABLE)
