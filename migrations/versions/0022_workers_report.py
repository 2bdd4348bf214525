"""What each worker last reported, and at which revision a key was revoked."""

import sqlalchemy as sa
from alembic import op


revision = "0022"
down_revision: str | None = "0021"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "workers",
        sa.Column("worker", sa.String(100), nullable=False),
        sa.Column("started_us", sa.BigInteger, nullable=False),
        sa.Column("seen_us", sa.BigInteger, nullable=False),
        sa.Column("report", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("worker", name="pk_workers"),
    )
    op.add_column("virtual_keys", sa.Column("revoked_revision", sa.BigInteger))


def downgrade() -> None:
    with op.batch_alter_table("virtual_keys") as table:
        table.drop_column("revoked_revision")
    op.drop_table("workers")
