"""Two-person retirements of gone workers' names: who asks, who agrees, and who carries it out.

A downgrade forgets who asked and who agreed; the audit log has both.
"""

import sqlalchemy as sa
from alembic import op


revision = "0056"
down_revision: str | None = "0055"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_CASES = "worker_retirements"
_GONE = "gone_workers"


def upgrade() -> None:
    op.create_table(
        _CASES,
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("worker", sa.String(100), nullable=False),
        sa.Column("shown", sa.Text, nullable=False),
        sa.Column("asked_by", sa.String(200), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("asked_us", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("decided_by", sa.String(200), nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("decided_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name=f"pk_{_CASES}"),
    )
    op.create_index(f"ix_{_CASES}_state", _CASES, ["state"])
    op.create_index(f"ix_{_CASES}_worker", _CASES, ["worker"])
    op.add_column(_GONE, sa.Column("ending_by", sa.Text, nullable=False, server_default=""))
    op.add_column(_GONE, sa.Column("ending_us", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    for name in ("ending_by", "ending_us"):
        op.drop_column(_GONE, name)
    op.drop_table(_CASES)
