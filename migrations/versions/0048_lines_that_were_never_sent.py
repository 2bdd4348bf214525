"""Lines erased before any byte of them went to a vendor: nobody is charged for these."""

import sqlalchemy as sa
from alembic import op


revision = "0048"
down_revision: str | None = "0047"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_TABLE = "unsent_lines"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("batch_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("erased_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("batch_id", "number", name=f"pk_{_TABLE}"),
    )
    # Was a parcel `new` because the vendor refused it, or never showed it, bytes of it have left.
    op.execute("UPDATE parcels SET tries = 1 WHERE state = 'new' AND tries = 0")


def downgrade() -> None:
    op.drop_table(_TABLE)
