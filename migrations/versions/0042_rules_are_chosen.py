"""The sets of rules that organisations say they are bound by, and who said so when."""

import sqlalchemy as sa
from alembic import op


revision = "0042"
down_revision: str | None = "0041"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "regime_choices",
        sa.Column("organisation", sa.String(63), nullable=False),
        sa.Column("place", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("regimes", sa.String(200), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("utc_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("organisation", "place", name="pk_regime_choices"),
    )


def downgrade() -> None:
    op.drop_table("regime_choices")
