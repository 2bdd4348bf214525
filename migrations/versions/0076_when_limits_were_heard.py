"""Workers record when they heard of a limit, so that budgets and outcomes compare exactly.

Of existing limits it is only known that each was heard within a minute.
"""

import sqlalchemy as sa
from alembic import op


revision = "0076"
down_revision: str | None = "0075"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None
floor = "0067"

_TABLE = "budget_hearings"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("account", sa.String(255), primary_key=True),
        sa.Column("window_kind", sa.String(5), primary_key=True),
        sa.Column("worker", sa.String(100), primary_key=True),
        sa.Column("since_us", sa.BigInteger, nullable=False),
        sa.Column("heard_us", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table(_TABLE)
