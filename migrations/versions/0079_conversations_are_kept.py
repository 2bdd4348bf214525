"""Conversations in the table of kept answers: the only rows in it that change.

An older program would take one for an answer, and its erasures would not see whom a conversation
names: so the floor is raised. A downgrade forgets conversations.
"""

import sqlalchemy as sa
from alembic import op


revision = "0079"
down_revision: str | None = "0078"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None
floor = "0079"

_TABLE = "kept_answers"
_PLACE = ["organisation", "workspace", "project"]
_COUNTED = "ix_kept_answers_conversations"


def upgrade() -> None:
    whole, text = sa.BigInteger(), sa.String(64)
    op.add_column(_TABLE, sa.Column("revision", whole, nullable=False, server_default="0"))
    op.add_column(_TABLE, sa.Column("turn", text, nullable=False, server_default=""))
    op.add_column(_TABLE, sa.Column("turn_until_us", whole, nullable=False, server_default="0"))
    where = sa.text("revision > 0")
    op.create_index(_COUNTED, _TABLE, _PLACE, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    op.execute("DELETE FROM kept_answers WHERE revision > 0")
    op.drop_index(_COUNTED, _TABLE)
    for name in ("turn_until_us", "turn", "revision"):
        op.drop_column(_TABLE, name)
