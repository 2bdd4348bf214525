"""Weekly reports of reveals: which were made, and which an operator's web hook accepted."""

import sqlalchemy as sa
from alembic import op


revision = "0046"
down_revision: str | None = "0045"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "reveal_reports",
        sa.Column("organisation", sa.String(63), nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("since_us", "until_us", "claimed_us", "made_us", "sent_us")
        ),
        *(
            sa.Column(name, sa.Integer, nullable=False)
            for name in ("asked", "approved", "readings", "people")
        ),
        sa.PrimaryKeyConstraint("organisation", "since_us", name="pk_reveal_reports"),
        sa.ForeignKeyConstraint(
            ["organisation"], ["organisations.name"], name="fk_reveal_reports_organisation"
        ),
    )


def downgrade() -> None:
    op.drop_table("reveal_reports")
