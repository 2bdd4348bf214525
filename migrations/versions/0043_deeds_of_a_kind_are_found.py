"""An index of deeds by kind: every page asks for the newest check of its log."""

import sqlalchemy as sa
from alembic import op


revision = "0043"
down_revision: str | None = "0042"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_DEEDS = "ix_audit_records_deeds"


def upgrade() -> None:
    condition = sa.text("action <> ''")
    op.create_index(
        _DEEDS,
        "audit_records",
        ["organisation", "action", "utc_us", "sequence", "about"],
        sqlite_where=condition,
        postgresql_where=condition,
    )


def downgrade() -> None:
    op.drop_index(_DEEDS, "audit_records")
