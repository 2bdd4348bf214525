"""Secrets in the database, sealed."""

import sqlalchemy as sa
from alembic import op


revision = "0010"
down_revision: str | None = "0009"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "sealed_secrets",
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("master_key_id", sa.String(32), nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("set_us", sa.BigInteger, nullable=False),
        sa.Column("set_by", sa.String(200), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_sealed_secrets"),
    )


def downgrade() -> None:
    op.drop_table("sealed_secrets")
