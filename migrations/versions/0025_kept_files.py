"""Files of projects, in sealed parts."""

import sqlalchemy as sa
from alembic import op


revision = "0025"
down_revision: str | None = "0024"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "kept_files",
        sa.Column("id", sa.String(64), nullable=False),
        *(
            sa.Column(name, sa.String(63), nullable=False)
            for name in ("organisation", "workspace", "project")
        ),
        sa.Column("key_id", sa.String(12), nullable=False),
        sa.Column("purpose", sa.String(16), nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("size_bytes", "created_us", "expires_us")
        ),
        sa.Column("is_whole", sa.Boolean, nullable=False),
        *(
            sa.Column(name, sa.LargeBinary, nullable=False)
            for name in ("wrapped_key", "sealed_name")
        ),
        sa.PrimaryKeyConstraint("id", name="pk_kept_files"),
    )
    op.create_index(
        "ix_kept_files_organisation_workspace_project_created_us",
        "kept_files",
        ["organisation", "workspace", "project", "created_us"],
    )
    op.create_index("ix_kept_files_expires_us", "kept_files", ["expires_us"])
    op.create_table(
        "kept_file_parts",
        sa.Column("file_id", sa.String(64), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(
            ["file_id"],
            ["kept_files.id"],
            name="fk_kept_file_parts_file_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("file_id", "number", name="pk_kept_file_parts"),
    )


def downgrade() -> None:
    op.drop_table("kept_file_parts")
    op.drop_table("kept_files")
