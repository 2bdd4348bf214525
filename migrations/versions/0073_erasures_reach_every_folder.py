"""Each audit folder reports the erasures it carried out; before, only where it was agreed to.

A downgrade forgets who reported: what was destroyed stays destroyed, and nobody waits for the rest.
"""

import sqlalchemy as sa
from alembic import op


revision = "0073"
down_revision: str | None = "0072"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None
floor = "0067"

_CASES = "erasure_cases"


def upgrade() -> None:
    op.create_table(
        "audit_folders",
        sa.Column("folder", sa.String(16), nullable=False),
        sa.Column("workers", sa.Text, nullable=False),
        sa.Column("told_by", sa.Text, nullable=False),
        sa.Column("told_us", sa.BigInteger, nullable=False),
        sa.Column("since_revision", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("folder", name="pk_audit_folders"),
    )
    op.create_table(
        "erasure_reports",
        sa.Column("case_id", sa.String(12), nullable=False),
        sa.Column("folder", sa.String(16), nullable=False),
        sa.Column("workers", sa.Text, nullable=False),
        sa.Column("told_by", sa.Text, nullable=False),
        sa.Column("found", sa.Text, nullable=False),
        sa.Column("younger", sa.Integer, nullable=False),
        sa.Column("seen_us", sa.BigInteger, nullable=False),
        sa.Column("held_by", sa.Text, nullable=False),
        sa.Column("claimed_us", sa.BigInteger, nullable=False),
        sa.Column("done_us", sa.BigInteger, nullable=False),
        sa.Column("checked", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("case_id", "folder", name="pk_erasure_reports"),
    )
    for column in ("closed_revision", "reached_us"):
        added = sa.Column(column, sa.BigInteger, nullable=False, server_default="0")
        op.add_column(_CASES, added)
    op.add_column(_CASES, sa.Column("awaited", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    for column in ("awaited", "reached_us", "closed_revision"):
        op.drop_column(_CASES, column)
    op.drop_table("erasure_reports")
    op.drop_table("audit_folders")
