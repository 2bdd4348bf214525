"""Requests are found by the rules that held for them; workers look them up for existing ones.

An outcome without a set of rules has not been looked at yet: workers do that, the newest first.
"""

import sqlalchemy as sa
from alembic import op


revision = "0074"
down_revision: str | None = "0073"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None
floor = "0067"

_RECORDS, _SETS, _COLUMN = "audit_records", "audit_rule_sets", "rules"
_INDEXES = {
    "ix_audit_records_ruled": (
        ["organisation", "rules", "utc_us", "sequence"],
        "rules IS NOT NULL",
    ),
    "ix_audit_records_unruled": (
        ["organisation", "utc_us", "sequence"],
        "rules IS NULL AND stage = 'outcome'",
    ),
}


def upgrade() -> None:
    op.create_table(
        _SETS,
        sa.Column("organisation", sa.Text, primary_key=True),
        sa.Column("rule", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    )
    op.add_column(_RECORDS, sa.Column(_COLUMN, sa.BigInteger))
    for name, (columns, condition) in _INDEXES.items():
        where = sa.text(condition)
        op.create_index(name, _RECORDS, columns, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    for name in _INDEXES:
        op.drop_index(name, _RECORDS)
    op.drop_column(_RECORDS, _COLUMN)
    op.drop_table(_SETS)
