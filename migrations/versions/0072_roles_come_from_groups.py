"""A role may come from a group of the OpenID provider; existing roles were given by hand.

A downgrade takes away the roles that came from a group: nothing would end them any more.
"""

import sqlalchemy as sa
from alembic import op


revision = "0072"
down_revision: str | None = "0071"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None
floor = "0067"

_TABLE, _COLUMN = "role_grants", "by_group"


def upgrade() -> None:
    op.add_column(_TABLE, sa.Column(_COLUMN, sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    op.execute("DELETE FROM role_grants WHERE by_group <> ''")
    op.drop_column(_TABLE, _COLUMN)
