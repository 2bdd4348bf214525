"""Columns and indexes for lists of requests and deeds, and views that people save.

Rows projected earlier are found by what was searchable then: the new columns are empty there,
because numbering the log anew would contradict what was signed.
"""

import sqlalchemy as sa
from alembic import op


revision = "0015"
down_revision: str | None = "0014"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_TABLE = "audit_records"
_BY_TIME = ("organisation", "utc_us")
_FEW: dict[str, tuple[list[str], str]] = {
    "found": ([*_BY_TIME], "stage = 'outcome' AND findings <> ''"),
    "not_ok": ([*_BY_TIME], "stage = 'outcome' AND status <> 'ok'"),
    "actor": (["organisation", "actor", "utc_us"], "actor <> ''"),
    "about": (["about", "utc_us"], "about <> ''"),
}


def upgrade() -> None:
    for name in ("model_requested", "findings", "about"):
        op.add_column(_TABLE, sa.Column(name, sa.Text, nullable=False, server_default=""))
    number = sa.Column("first_byte_us", sa.BigInteger, nullable=False, server_default="0")
    op.add_column(_TABLE, number)
    op.drop_index("ix_audit_records_organisation_utc_us", _TABLE)
    op.create_index(
        "ix_audit_records_organisation_utc_us_stage", _TABLE, ["organisation", "utc_us", "stage"]
    )
    for name, (columns, where) in _FEW.items():
        op.create_index(
            f"ix_audit_records_{name}",
            _TABLE,
            columns,
            sqlite_where=sa.text(where),
            postgresql_where=sa.text(where),
        )
    op.create_table(
        "saved_views",
        sa.Column("person", sa.String(63), nullable=False),
        sa.Column("organisation", sa.String(63), nullable=False),
        sa.Column("room", sa.String(20), nullable=False),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("filter", sa.Text, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(
            ["organisation"], ["organisations.name"], name="fk_saved_views_organisation"
        ),
        sa.PrimaryKeyConstraint(*("person", "organisation", "room", "name"), name="pk_saved_views"),
    )


def downgrade() -> None:
    op.drop_table("saved_views")
    for name in _FEW:
        op.drop_index(f"ix_audit_records_{name}", _TABLE)
    op.drop_index("ix_audit_records_organisation_utc_us_stage", _TABLE)
    op.create_index("ix_audit_records_organisation_utc_us", _TABLE, [*_BY_TIME])
    for name in ("first_byte_us", "about", "findings", "model_requested"):
        op.drop_column(_TABLE, name)
