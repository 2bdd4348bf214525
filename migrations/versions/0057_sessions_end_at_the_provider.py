"""Sessions store the OpenID provider's id for them; the provider's sign-outs are remembered."""

import sqlalchemy as sa
from alembic import op


revision = "0057"
down_revision: str | None = "0056"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_MARKS = ("vouched_subject", "vouched_sid")
_SEALED = ("id_token_key", "id_token")


def upgrade() -> None:
    for name in _MARKS:
        op.add_column("admin_sessions", sa.Column(name, sa.LargeBinary(32)))
        op.create_index(f"ix_admin_sessions_{name}", "admin_sessions", [name])
    for name in _SEALED:
        op.add_column("admin_sessions", sa.Column(name, sa.LargeBinary))
    op.create_table(
        "heard_logouts",
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("vouched_subject", sa.LargeBinary(32)),
        sa.Column("vouched_sid", sa.LargeBinary(32)),
        sa.Column("issued_us", sa.BigInteger, nullable=False),
        sa.Column("until_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_heard_logouts"),
    )
    op.create_index("ix_heard_logouts_until_us", "heard_logouts", ["until_us"])


def downgrade() -> None:
    op.drop_table("heard_logouts")
    for name in _MARKS:
        op.drop_index(f"ix_admin_sessions_{name}", "admin_sessions")
    for name in (*_SEALED, *_MARKS):
        op.drop_column("admin_sessions", name)
