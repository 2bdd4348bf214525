"""Secrets have a next and a former version beside the one in use; tests may try the next."""

import sqlalchemy as sa
from alembic import op


revision = "0038"
down_revision: str | None = "0037"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "spare_secrets",
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("master_key_id", sa.String(32), nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("set_us", sa.BigInteger, nullable=False),
        sa.Column("set_by", sa.String(200), nullable=False),
        sa.Column("fingerprint", sa.String(16), nullable=False, server_default=""),
        sa.Column("until_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", "kind", name="pk_spare_secrets"),
    )
    op.add_column(
        "provider_checkups",
        sa.Column("spare", sa.String(10), nullable=False, server_default=""),
    )


def downgrade() -> None:
    op.drop_column("provider_checkups", "spare")
    op.drop_table("spare_secrets")
