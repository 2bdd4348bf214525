"""Profiles of prompts and answers by hour, and drifts of them."""

import sqlalchemy as sa
from alembic import op


revision = "0035"
down_revision: str | None = "0034"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "profile_hours",
        sa.Column("organisation", sa.Text, nullable=False),
        sa.Column("hour_us", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sa.Column("bins", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint(
            "organisation", "hour_us", "kind", "scope", name="pk_profile_hours"
        ),
    )
    op.create_table(
        "profile_cursors",
        sa.Column("organisation", sa.Text, nullable=False),
        sa.Column("next_us", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.String(32), nullable=False),
        sa.Column("until_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("organisation", name="pk_profile_cursors"),
    )
    op.create_table(
        "drifts",
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("organisation", sa.Text, nullable=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("began_us", "found_us", "seen_us")
        ),
        sa.Column("calm", sa.Integer, nullable=False),
        sa.Column("said", sa.Text, nullable=False),
        sa.Column("guarantee", sa.String(32), nullable=False),
        sa.Column("ended_us", sa.BigInteger, nullable=False),
        sa.Column("ended_by", sa.String(200), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("claimed_us", sa.BigInteger, nullable=False),
        sa.Column("told_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_drifts"),
    )
    op.create_index("ix_drifts_state", "drifts", ["state"])
    op.create_index(
        "ix_drifts_organisation_kind_scope", "drifts", ["organisation", "kind", "scope"]
    )


def downgrade() -> None:
    for table in ("drifts", "profile_cursors", "profile_hours"):
        op.drop_table(table)
