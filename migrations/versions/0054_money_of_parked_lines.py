"""What parked lines hold of leases, so that a crash of their worker does not take it.

Lines that were parked earlier are not included: a crash counts what they hold as spent once more.
"""

import sqlalchemy as sa
from alembic import op


revision = "0054"
down_revision: str | None = "0053"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_TABLE = "parked_money"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("account", sa.String(255), nullable=False),
        sa.Column("window_kind", sa.String(5), nullable=False),
        sa.Column("incarnation", sa.String(32), nullable=False),
        sa.Column("worker", sa.String(100), nullable=False),
        sa.Column("window_start_us", sa.BigInteger, nullable=False),
        sa.Column("amount_microusd", sa.BigInteger, nullable=False),
        sa.Column("until_us", sa.BigInteger, nullable=False),
        sa.Column("is_ending", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint(
            "request_id", "account", "window_kind", "incarnation", name=f"pk_{_TABLE}"
        ),
    )
    op.create_index(
        f"ix_{_TABLE}_worker_incarnation_account_window_kind",
        _TABLE,
        ["worker", "incarnation", "account", "window_kind"],
    )


def downgrade() -> None:
    op.drop_table(_TABLE)
