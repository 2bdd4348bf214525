"""Answers that are kept, so that a later request may continue them."""

import sqlalchemy as sa
from alembic import op


revision = "0007"
down_revision: str | None = "0006"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "kept_answers",
        sa.Column("organisation", sa.String(63), nullable=False),
        sa.Column("workspace", sa.String(63), nullable=False),
        sa.Column("project", sa.String(63), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(12), nullable=False),
        sa.Column("previous_id", sa.String(128), nullable=False),
        sa.Column("data_class", sa.String(2), nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("expires_us", sa.BigInteger, nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint(
            "organisation", "workspace", "project", "id", name="pk_kept_answers"
        ),
    )
    op.create_index("ix_kept_answers_expires_us", "kept_answers", ["expires_us"])


def downgrade() -> None:
    op.drop_table("kept_answers")
