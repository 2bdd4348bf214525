"""Recurring reviews, and who signed them off."""

import sqlalchemy as sa
from alembic import op


revision = "0030"
down_revision: str | None = "0029"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "reviews",
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("organisation", sa.String(63), nullable=False),
        sa.Column("name", sa.String(80), nullable=False),
        sa.Column("room", sa.String(20), nullable=False),
        sa.Column("filter", sa.Text, nullable=False),
        sa.Column("every_days", sa.Integer, nullable=False),
        sa.Column("responsible", sa.String(63), nullable=False),
        sa.Column("made_by", sa.String(200), nullable=False),
        sa.Column("made_us", sa.BigInteger, nullable=False),
        sa.Column("ended_us", sa.BigInteger),
        sa.Column("looked_until_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_reviews"),
        sa.ForeignKeyConstraint(
            ["organisation"], ["organisations.name"], name="fk_reviews_organisation"
        ),
    )
    op.create_index("ix_reviews_organisation", "reviews", ["organisation"])
    op.create_table(
        "review_signatures",
        sa.Column("review", sa.String(12), nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("since_us", "until_us", "signed_us")
        ),
        sa.Column("signed_by", sa.String(200), nullable=False),
        sa.Column("records", sa.BigInteger, nullable=False),
        sa.Column("is_all", sa.Boolean, nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("checkpoint_size", sa.BigInteger, nullable=False),
        sa.Column("checkpoint_root", sa.String(64), nullable=False),
        sa.Column("checkpoint_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("review", "since_us", name="pk_review_signatures"),
        sa.ForeignKeyConstraint(["review"], ["reviews.id"], name="fk_review_signatures_review"),
    )


def downgrade() -> None:
    op.drop_table("review_signatures")
    op.drop_table("reviews")
