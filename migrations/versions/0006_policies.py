"""Policy documents, versions and their history, and boards of targets."""

import sqlalchemy as sa
from alembic import op


revision = "0006"
down_revision: str | None = "0005"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "policy_documents",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )
    _create_versions()
    op.create_table(
        "policy_events",
        sa.Column("level", sa.String(255), primary_key=True),
        sa.Column("place", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("utc_us", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("action", sa.String(20), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_table(
        "target_boards",
        sa.Column("digest", sa.String(32), primary_key=True),
        sa.Column("targets", sa.Text, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    for table in ("target_boards", "policy_events", "policy_versions", "policy_documents"):
        op.drop_table(table)


def _create_versions() -> None:
    op.create_table(
        "policy_versions",
        sa.Column("level", sa.String(255), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column(
            "digest", sa.String(64), sa.ForeignKey("policy_documents.digest"), nullable=False
        ),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("author", sa.String(200), nullable=False),
        sa.Column("approver", sa.String(200), nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("percent", sa.Float, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("changed_us", sa.BigInteger, nullable=False),
        sa.CheckConstraint(
            "percent >= 0 AND percent <= 100", name=op.f("ck_policy_versions_percent_is_a_share")
        ),
    )
    op.create_index("ix_policy_versions_state", "policy_versions", ["state"])
