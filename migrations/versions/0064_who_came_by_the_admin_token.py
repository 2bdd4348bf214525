"""People whom the admin token let in: they count as the token where two people are needed.

Existing people count as people: how they came in was not stored. A downgrade forgets it.
"""

import sqlalchemy as sa
from alembic import op


revision = "0064"
down_revision: str | None = "0063"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_TABLE, _COLUMN = "people", "of_token"


def upgrade() -> None:
    column = sa.Column(_COLUMN, sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column(_TABLE, column)


def downgrade() -> None:
    op.drop_column(_TABLE, _COLUMN)
