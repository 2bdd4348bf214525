"""Every sealed thing says which master key wrapped its key, so that a master key can be replaced.

Everything existing was sealed by the database's own key. Where none is known yet, the first start
with a master key records it. A downgrade forgets this: replace the master key before it, or not at
all.
"""

import sqlalchemy as sa
from alembic import op


revision = "0067"
down_revision: str | None = "0066"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_COLUMN = "master_key_id"
_INDEXED = ("kept_files", "batches", "kept_answers", "admin_sessions")
_SECOND = "audit_second_keys"


def upgrade() -> None:
    for table in (*_INDEXED, _SECOND):
        op.add_column(table, sa.Column(_COLUMN, sa.String(32), nullable=False, server_default=""))
    own = "COALESCE((SELECT key_id FROM key_checks WHERE name = 'master_key'), '')"
    for table in _INDEXED:
        sealed = "id_token_key" if table == "admin_sessions" else "wrapped_key"
        op.execute(f"UPDATE {table} SET {_COLUMN} = {own} WHERE {sealed} IS NOT NULL")  # noqa: S608 - our own names
        op.create_index(f"ix_{table}_{_COLUMN}", table, [_COLUMN])
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    # Their lines say it themselves.
    told = "json_extract(line, '$.master')" if is_sqlite else "CAST(line AS json) ->> 'master'"
    op.execute(f"UPDATE {_SECOND} SET {_COLUMN} = {told}")  # noqa: S608


def downgrade() -> None:
    op.execute("DELETE FROM key_checks WHERE name LIKE 'master#_key:%' ESCAPE '#'")
    for table in _INDEXED:
        op.drop_index(f"ix_{table}_{_COLUMN}", table)
        op.drop_column(table, _COLUMN)
    op.drop_column(_SECOND, _COLUMN)
