"""The reason why a reveal was declined, which the person who asked can read."""

import sqlalchemy as sa
from alembic import op


revision = "0069"
down_revision: str | None = "0068"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None
floor = "0067"


def upgrade() -> None:
    column = sa.Column("ended_comment", sa.Text, nullable=False, server_default="")
    op.add_column("audit_reveals", column)


def downgrade() -> None:
    op.drop_column("audit_reveals", "ended_comment")
