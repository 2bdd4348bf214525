"""Connection tests: ordered in the control plane, run by a worker, reported step by step."""

import sqlalchemy as sa
from alembic import op


revision = "0027"
down_revision: str | None = "0026"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "provider_checkups",
        sa.Column("provider", sa.String(100), nullable=False),
        sa.Column("id", sa.String(24), nullable=False),
        *(sa.Column(name, sa.String(200), nullable=False) for name in ("target", "asked_by")),
        sa.Column("asked_us", sa.BigInteger, nullable=False),
        sa.Column("worker", sa.String(200), nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("claimed_us", "ended_us")),
        sa.Column("found", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("provider", name="pk_provider_checkups"),
    )


def downgrade() -> None:
    op.drop_table("provider_checkups")
