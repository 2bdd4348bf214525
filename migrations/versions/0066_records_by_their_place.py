"""An index of records by where they lie: a receipt leads to its record, whosever it is."""

from alembic import op


revision = "0066"
down_revision: str | None = "0065"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_PLACE = "ix_audit_records_place"


def upgrade() -> None:
    op.create_index(_PLACE, "audit_records", ["worker", "segment", "offset_bytes"])


def downgrade() -> None:
    op.drop_index(_PLACE, "audit_records")
