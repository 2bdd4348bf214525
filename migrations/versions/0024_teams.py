"""Workspaces become teams: an owner, members, an end, and limits for new keys in them."""

import sqlalchemy as sa
from alembic import op


revision = "0024"
down_revision: str | None = "0023"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_COUNTS = (
    "key_budget_microusd",
    "key_requests_per_minute",
    "key_tokens_per_minute",
    "key_concurrent_requests",
)
_TEXTS = (("owner", 63, ""), ("key_budget_window", 5, "month"))


def upgrade() -> None:
    with op.batch_alter_table("workspaces") as table:
        for name, length, default in _TEXTS:
            table.add_column(
                sa.Column(name, sa.String(length), nullable=False, server_default=default)
            )
        table.add_column(sa.Column("archived_us", sa.BigInteger))
        table.add_column(sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"))
        table.add_column(sa.Column("key_expires_days", sa.Integer))
        for name in _COUNTS:
            table.add_column(sa.Column(name, sa.BigInteger))
    op.create_table(
        "team_members",
        *(
            sa.Column(name, sa.String(63), nullable=False)
            for name in ("organisation", "workspace", "person")
        ),
        sa.PrimaryKeyConstraint("organisation", "workspace", "person", name="pk_team_members"),
        sa.ForeignKeyConstraint(["person"], ["people.name"], name="fk_team_members_person"),
        sa.ForeignKeyConstraint(
            ["organisation", "workspace"],
            ["workspaces.organisation", "workspaces.name"],
            name="fk_team_members_organisation_workspace",
        ),
    )
    op.create_index("ix_team_members_person", "team_members", ["person"])


def downgrade() -> None:
    op.drop_table("team_members")
    with op.batch_alter_table("workspaces") as table:
        for name in ("archived_us", "revision", "key_expires_days", *_COUNTS):
            table.drop_column(name)
        for name, _, _ in _TEXTS:
            table.drop_column(name)
