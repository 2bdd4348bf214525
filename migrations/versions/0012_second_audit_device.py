"""Records that the database takes itself while a worker's disk cannot be written."""

import sqlalchemy as sa
from alembic import op


revision = "0012"
down_revision: str | None = "0011"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "audit_second_records",
        sa.Column("worker", sa.Text, nullable=False),
        sa.Column("segment", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("offset_bytes", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint(
            "worker", "segment", "offset_bytes", name="pk_audit_second_records"
        ),
    )
    op.create_index("ix_audit_second_records_request_id", "audit_second_records", ["request_id"])
    op.create_table(
        "audit_second_keys",
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("organisation", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("line", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_audit_second_keys"),
    )
    op.create_index(
        "ix_audit_second_keys_organisation_subject",
        "audit_second_keys",
        ["organisation", "subject"],
    )


def downgrade() -> None:
    op.drop_table("audit_second_keys")
    op.drop_table("audit_second_records")
