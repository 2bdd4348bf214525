"""Two-person erasures and key scopes: one person asks or widens, another agrees."""

import sqlalchemy as sa
from alembic import op


revision = "0049"
down_revision: str | None = "0048"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_CASES = "erasure_cases"
_PROPOSALS = "key_proposals"
_TEXTS = ("asked_by", "declined_by", "comment")
_TIMES = ("asked_us", "claimed_us", "declined_us")


def upgrade() -> None:
    for name in _TEXTS:
        op.add_column(_CASES, sa.Column(name, sa.Text, nullable=False, server_default=""))
    for name in _TIMES:
        op.add_column(_CASES, sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.create_table(
        _PROPOSALS,
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("organisation", sa.String(63), nullable=False),
        sa.Column("key_id", sa.String(12), nullable=False),
        sa.Column("seen", sa.Text, nullable=False),
        sa.Column("wanted", sa.Text, nullable=False),
        sa.Column("proposed_by", sa.String(200), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("proposed_us", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("decided_by", sa.String(200), nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("decided_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name=f"pk_{_PROPOSALS}"),
    )
    op.create_index(f"ix_{_PROPOSALS}_organisation_state", _PROPOSALS, ["organisation", "state"])
    op.create_index(f"ix_{_PROPOSALS}_key_id", _PROPOSALS, ["key_id"])


def downgrade() -> None:
    op.drop_table(_PROPOSALS)
    for name in (*_TEXTS, *_TIMES):
        op.drop_column(_CASES, name)
