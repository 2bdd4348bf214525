"""Batches and their lines."""

import sqlalchemy as sa
from alembic import op


revision = "0028"
down_revision: str | None = "0027"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "batches",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        *(_text(name, 63) for name in ("organisation", "workspace", "project")),
        sa.Column("key_id", sa.String(12), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        *(_text(name, 12) for name in ("state", "ending")),
        *(_text(name, 64) for name in ("input_file_id", "output_file_id", "error_file_id")),
        *(_number(f"{name}_us") for name in ("created", "expires", "keep_until", "started")),
        *(_number(f"{name}_us") for name in ("finalizing", "cancelling", "ended")),
        sa.Column("stopped", sa.String(40), nullable=False),
        _number("size_bytes"),
        *(_count(name) for name in ("succeeded", "errored", "canceled", "expired")),
        _number("due_us"),
        _count("stalls"),
        _number("served_us"),
        _text("tender", 64),
        _number("tended_until_us"),
        *(_bytes(name) for name in ("wrapped_key", "sealed_told", "sealed_flaws")),
        sa.PrimaryKeyConstraint("id", name="pk_batches"),
    )
    op.create_index(
        "ix_batches_organisation_workspace_project_created_us",
        "batches",
        ["organisation", "workspace", "project", "created_us"],
    )
    op.create_index("ix_batches_state", "batches", ["state"])
    op.create_index("ix_batches_keep_until_us", "batches", ["keep_until_us"])
    op.create_table(
        "batch_lines",
        sa.Column("batch_id", sa.String(64), nullable=False),
        _count("number"),
        _text("state", 9),
        _text("holder", 64),
        *(_number(name) for name in ("leased_until_us", "due_us")),
        *(_count(name) for name in ("claims", "failures")),
        *(_bytes(name) for name in ("sealed_id", "sealed_body")),
        sa.Column("sealed_end", sa.LargeBinary),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["batches.id"], name="fk_batch_lines_batch_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("batch_id", "number", name="pk_batch_lines"),
    )
    op.create_index(
        "ix_batch_lines_batch_id_state_due_us", "batch_lines", ["batch_id", "state", "due_us"]
    )


def _text(name: str, length: int) -> sa.Column[str]:
    return sa.Column(name, sa.String(length), nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def _bytes(name: str) -> sa.Column[bytes]:
    return sa.Column(name, sa.LargeBinary, nullable=False)


def downgrade() -> None:
    op.drop_table("batch_lines")
    op.drop_table("batches")
