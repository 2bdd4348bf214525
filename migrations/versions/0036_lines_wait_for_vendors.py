"""Lines of batches can wait for a vendor's own batch API."""

import sqlalchemy as sa
from alembic import op


revision = "0036"
down_revision: str | None = "0035"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "parcels",
        *(sa.Column(name, sa.String(64), nullable=False) for name in ("id", "batch_id")),
        sa.Column("provider", sa.String(63), nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("vendor_id", sa.String(128), nullable=False),
        sa.Column("lines", sa.Integer, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("made_us", "due_us")),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("tender", sa.String(64), nullable=False),
        sa.Column("tended_until_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_parcels"),
    )
    op.create_index("ix_parcels_due_us", "parcels", ["due_us"])
    op.create_table(
        "parked_lines",
        sa.Column("batch_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("holder", sa.String(64), nullable=False),
        sa.Column("provider", sa.String(63), nullable=False),
        sa.Column("target", sa.String(255), nullable=False),
        sa.Column("parcel", sa.String(64), nullable=False),
        *(sa.Column(name, sa.Integer, nullable=False) for name in ("is_ending", "failures")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("size_bytes", "parked_us")),
        sa.Column("sealed_ticket", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("batch_id", "number", name="pk_parked_lines"),
        sa.ForeignKeyConstraint(
            ["batch_id", "number"],
            ["batch_lines.batch_id", "batch_lines.number"],
            name="fk_parked_lines_batch_id",
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_parked_lines_parcel", "parked_lines", ["parcel"])


def downgrade() -> None:
    op.execute("UPDATE batch_lines SET state = 'waiting' WHERE state = 'parked'")
    op.drop_table("parked_lines")
    op.drop_table("parcels")
