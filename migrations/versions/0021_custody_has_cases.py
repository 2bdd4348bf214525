"""Reveals can be declined or ended early; erasures are cases with a deadline; packs have rows."""

import sqlalchemy as sa
from alembic import op


revision = "0021"
down_revision: str | None = "0020"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.add_column(
        "audit_reveals", sa.Column("ended_by", sa.Text, nullable=False, server_default="")
    )
    op.add_column(
        "audit_reveals", sa.Column("ended_us", sa.BigInteger, nullable=False, server_default="0")
    )
    op.create_table(
        "erasure_cases",
        sa.Column("id", sa.String(12), nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("organisation", "subject")),
        sa.Column("law", sa.String(20), nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("ticket", "opened_by")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("opened_us", "due_us")),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("closed_by", sa.Text, nullable=False),
        sa.Column("closed_us", sa.BigInteger, nullable=False),
        sa.Column("keys", sa.Integer, nullable=False),
        sa.Column("certificate", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_erasure_cases"),
    )
    op.create_table(
        "evidence_packs",
        sa.Column("id", sa.String(12), nullable=False),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("organisation", "log")),
        sa.Column("recipient", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("since_us", "until_us")),
        sa.Column("with_policies", sa.Boolean, nullable=False),
        sa.Column("made_by", sa.Text, nullable=False),
        sa.Column("made_us", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("records", "size_bytes")),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("problem", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_evidence_packs"),
    )


def downgrade() -> None:
    op.drop_table("evidence_packs")
    op.drop_table("erasure_cases")
    with op.batch_alter_table("audit_reveals") as table:
        table.drop_column("ended_us")
        table.drop_column("ended_by")
