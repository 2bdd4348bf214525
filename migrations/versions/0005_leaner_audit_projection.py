"""The audit log's projection without what the segments hold; it is rebuilt from them."""

import sqlalchemy as sa
from alembic import op


revision = "0005"
down_revision: str | None = "0004"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_TEXTS_FIRST = ("stage", "request_id")
_TEXTS = (
    "workspace",
    "project",
    "key_id",
    "actor",
    "action",
    "target",
    "provider",
    "jurisdiction",
    "data_class",
    "status",
)
_NUMBERS = ("cost_microusd", "input_tokens", "output_tokens", "duration_us")


def upgrade() -> None:
    _create_anew([], raw_nullable=True)


def downgrade() -> None:
    hashes = [
        sa.Column(name, sa.LargeBinary(32), nullable=False) for name in ("leaf_hash", "chain_hash")
    ]
    place = sa.UniqueConstraint(
        "worker",
        "segment",
        "offset_bytes",
        name="uq_audit_records_worker_segment_offset_bytes",
    )
    _create_anew([*hashes, place], raw_nullable=False)


def _create_anew(more: list[sa.Column[bytes] | sa.UniqueConstraint], *, raw_nullable: bool) -> None:
    """An empty table and no positions: the next worker that starts projects all segments again."""
    op.drop_table("audit_records")
    op.execute("DELETE FROM audit_positions")
    op.execute("DELETE FROM audit_sequences")
    op.create_table(
        "audit_records",
        _text("organisation"),
        sa.Column("sequence", sa.BigInteger, autoincrement=False, nullable=False),
        _text("worker"),
        _number("segment"),
        _number("offset_bytes"),
        *(_text(name) for name in _TEXTS_FIRST),
        _number("utc_us"),
        *(_text(name) for name in _TEXTS),
        sa.Column("http_status", sa.Integer, nullable=False),
        _text("error"),
        *(_number(name) for name in _NUMBERS),
        sa.Column("raw", sa.LargeBinary, nullable=raw_nullable),
        *more,
        sa.PrimaryKeyConstraint("organisation", "sequence", name="pk_audit_records"),
    )
    op.create_index(
        "ix_audit_records_organisation_utc_us", "audit_records", ["organisation", "utc_us"]
    )
    op.create_index("ix_audit_records_request_id", "audit_records", ["request_id"])


def _text(column: str) -> sa.Column[str]:
    return sa.Column(column, sa.Text, nullable=False)


def _number(column: str) -> sa.Column[int]:
    return sa.Column(column, sa.BigInteger, nullable=False)
