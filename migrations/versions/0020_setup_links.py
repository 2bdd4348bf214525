"""Digests of the one-time links that create the first person."""

import sqlalchemy as sa
from alembic import op


revision = "0020"
down_revision: str | None = "0019"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "setup_links",
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("until_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_setup_links"),
    )


def downgrade() -> None:
    op.drop_table("setup_links")
