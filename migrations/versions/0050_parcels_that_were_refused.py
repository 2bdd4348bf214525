"""Lines erased while their vendor refused the parcel: nobody is charged for these either."""

import sqlalchemy as sa
from alembic import op


revision = "0050"
down_revision: str | None = "0049"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_LINES = "unsent_lines"


def upgrade() -> None:
    doubtful = sa.Column("is_doubtful", sa.Integer, nullable=False, server_default="0")
    op.add_column("parcels", doubtful)
    # Whether these were refused, or never shown by the vendor, is not known any more.
    op.execute(
        "UPDATE parcels SET is_doubtful = 1"
        " WHERE state = 'submitting' OR (state = 'new' AND tries > 0)"
    )
    op.add_column(_LINES, sa.Column("parcel", sa.String(64), nullable=False, server_default=""))
    op.create_index(f"ix_{_LINES}_parcel", _LINES, ["parcel"])


def downgrade() -> None:
    # What is not known yet is charged, as it was before.
    op.execute(f"DELETE FROM {_LINES} WHERE parcel <> ''")  # noqa: S608 - a name of ours
    op.drop_index(f"ix_{_LINES}_parcel", _LINES)
    op.drop_column(_LINES, "parcel")
    op.execute("UPDATE parcels SET tries = 1 WHERE state = 'new' AND is_doubtful = 1")
    op.drop_column("parcels", "is_doubtful")
