"""What a restored database still waits for from the logs of its workers.

A downgrade forgets it: records that were still to come are then numbered anew, and the log is no
longer the one that was signed.
"""

import sqlalchemy as sa
from alembic import op


revision = "0061"
down_revision: str | None = "0060"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_RECORDS = "audit_awaited_records"
_WORKERS = "audit_awaited_workers"


def _moment(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0")


def upgrade() -> None:
    op.create_table(
        _RECORDS,
        sa.Column("organisation", sa.Text, nullable=False),
        sa.Column("leaf", sa.LargeBinary(32), nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        _moment("lost_us"),
        sa.PrimaryKeyConstraint("organisation", "leaf", name=f"pk_{_RECORDS}"),
    )
    op.create_table(
        _WORKERS,
        sa.Column("worker", sa.String(100), nullable=False),
        _moment("told_us"),
        _moment("brought_us"),
        _moment("lost_us"),
        sa.PrimaryKeyConstraint("worker", name=f"pk_{_WORKERS}"),
    )


def downgrade() -> None:
    op.drop_table(_WORKERS)
    op.drop_table(_RECORDS)
