"""A Merkle tree for each organisation's log, and its signed checkpoints."""

import sqlalchemy as sa
from alembic import op


revision = "0008"
down_revision: str | None = "0007"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    _forget_the_projection()
    op.create_table(
        "audit_sequences",
        _text("organisation"),
        _number("next_sequence"),
        _bytes("open_tiles"),
        sa.PrimaryKeyConstraint("organisation", name="pk_audit_sequences"),
    )
    op.create_table(
        "audit_tiles",
        _text("organisation"),
        sa.Column("level", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger, autoincrement=False, nullable=False),
        _bytes("hashes"),
        sa.PrimaryKeyConstraint("organisation", "level", "number", name="pk_audit_tiles"),
    )
    op.create_table(
        "audit_checkpoints",
        _text("organisation"),
        sa.Column("signed_us", sa.BigInteger, autoincrement=False, nullable=False),
        _number("size"),
        sa.Column("root", sa.LargeBinary(32), nullable=False),
        _text("note"),
        sa.PrimaryKeyConstraint("organisation", "signed_us", name="pk_audit_checkpoints"),
    )


def downgrade() -> None:
    op.drop_table("audit_checkpoints")
    op.drop_table("audit_tiles")
    _forget_the_projection()
    op.create_table(
        "audit_sequences",
        _text("organisation"),
        _number("next_sequence"),
        sa.PrimaryKeyConstraint("organisation", name="pk_audit_sequences"),
    )


def _forget_the_projection() -> None:
    """The next worker that starts projects all segments again, so that numbers and trees agree."""
    op.execute("DELETE FROM audit_records")
    op.execute("DELETE FROM audit_positions")
    op.drop_table("audit_sequences")


def _text(column: str) -> sa.Column[str]:
    return sa.Column(column, sa.Text, nullable=False)


def _number(column: str) -> sa.Column[int]:
    return sa.Column(column, sa.BigInteger, nullable=False)


def _bytes(column: str) -> sa.Column[bytes]:
    return sa.Column(column, sa.LargeBinary, nullable=False)
