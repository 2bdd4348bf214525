"""People of the control plane, their roles and sessions; and which budget alerts were sent."""

import sqlalchemy as sa
from alembic import op


revision = "0011"
down_revision: str | None = "0010"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "people",
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("title", sa.String(200), nullable=False),
        sa.Column("password_hash", sa.String(255)),
        sa.Column("subject", sa.String(512)),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("disabled_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("name", name="pk_people"),
        sa.UniqueConstraint("subject", name="uq_people_subject"),
    )
    op.create_table(
        "role_grants",
        sa.Column("person", sa.String(63), nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("organisation", sa.String(63), nullable=False),
        sa.PrimaryKeyConstraint("person", "role", "organisation", name="pk_role_grants"),
        sa.ForeignKeyConstraint(["person"], ["people.name"], name="fk_role_grants_person"),
    )
    op.create_table(
        "admin_sessions",
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("person", sa.String(63), nullable=False),
        sa.Column("began_us", sa.BigInteger, nullable=False),
        sa.Column("seen_us", sa.BigInteger, nullable=False),
        sa.Column("proved_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_admin_sessions"),
    )
    op.create_table(
        "budget_alerts",
        sa.Column("account", sa.String(255), nullable=False),
        sa.Column("window_start_us", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("percent", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("claimed_us", sa.BigInteger, nullable=False),
        sa.Column("sent_us", sa.BigInteger),
        sa.PrimaryKeyConstraint("account", "window_start_us", "percent", name="pk_budget_alerts"),
    )
    op.create_index("ix_admin_sessions_person", "admin_sessions", ["person"])


def downgrade() -> None:
    for table in ("budget_alerts", "admin_sessions", "role_grants", "people"):
        op.drop_table(table)
