"""Legal holds, and reveals of content that take two people."""

import sqlalchemy as sa
from alembic import op


revision = "0009"
down_revision: str | None = "0008"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "audit_holds",
        _id(),
        *(_text(name) for name in ("organisation", "subject", "reason", "set_by")),
        _number("set_us"),
        *(_text(name) for name in ("release_by", "released_by")),
        sa.PrimaryKeyConstraint("id", name="pk_audit_holds"),
    )
    op.create_table(
        "audit_reveals",
        _id(),
        *(_text(name) for name in ("organisation", "request_id", "reason", "ticket", "asked_by")),
        _number("asked_us"),
        sa.Column("minutes", sa.Integer, nullable=False),
        _text("approved_by"),
        _number("approved_us"),
        sa.Column("used", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_reveals"),
    )


def downgrade() -> None:
    op.drop_table("audit_reveals")
    op.drop_table("audit_holds")


def _id() -> sa.Column[str]:
    return sa.Column("id", sa.String(12), nullable=False)


def _text(column: str) -> sa.Column[str]:
    return sa.Column(column, sa.Text, nullable=False)


def _number(column: str) -> sa.Column[int]:
    return sa.Column(column, sa.BigInteger, nullable=False)
