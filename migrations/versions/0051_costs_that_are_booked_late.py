"""Which requests had their cost booked after their reservation was gone: each is booked once."""

import sqlalchemy as sa
from alembic import op


revision = "0051"
down_revision: str | None = "0050"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_TABLE = "late_bookings"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("booked_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("request_id", name=f"pk_{_TABLE}"),
    )
    op.create_index(f"ix_{_TABLE}_booked_us", _TABLE, ["booked_us"])


def downgrade() -> None:
    op.drop_table(_TABLE)
