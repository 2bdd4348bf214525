"""Whose way in the admin token made: they count as the token where two people are needed.

Who was there before counts as a person: how they came in was not kept. Going down forgets it.
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
