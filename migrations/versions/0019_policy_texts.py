"""Policy documents as they were written, and drafts that are still being written."""

import sqlalchemy as sa
from alembic import op


revision = "0019"
down_revision: str | None = "0018"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "policy_texts",
        sa.Column("level", sa.String(255), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_table(
        "policy_drafts",
        sa.Column("level", sa.String(255), primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("base", sa.Integer, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("author", sa.String(200), nullable=False),
        sa.Column("changed_us", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("policy_drafts")
    op.drop_table("policy_texts")
