"""How far each sink has taken the audit log, and which worker delivers to it."""

import sqlalchemy as sa
from alembic import op


revision = "0013"
down_revision: str | None = "0012"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "audit_cursors",
        sa.Column("sink", sa.String(63), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("organisation", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("sink", "kind", "organisation", name="pk_audit_cursors"),
    )
    op.create_table(
        "audit_shippers",
        sa.Column("sink", sa.String(63), nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("until_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("sink", name="pk_audit_shippers"),
    )


def downgrade() -> None:
    op.drop_table("audit_shippers")
    op.drop_table("audit_cursors")
