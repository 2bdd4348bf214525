"""Keys without a secret: an issuer's tokens prove them.

An older program takes such a row for a key with a secret that nobody knows, and lets nobody in by
it; so it may go on running meanwhile.
"""

import sqlalchemy as sa
from alembic import op

from gateway.clock import SystemClock


revision = "0071"
down_revision: str | None = "0070"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None
floor = "0067"


def upgrade() -> None:
    op.add_column("virtual_keys", sa.Column("workload", sa.JSON(none_as_null=True)))


def downgrade() -> None:
    # They end: a program that does not know what proves them would take them for keys with a
    # secret, and a rotation would give them one.
    ended = "UPDATE virtual_keys SET revoked_us = :now_us WHERE workload IS NOT NULL"
    ended += " AND revoked_us IS NULL"
    op.get_bind().execute(sa.text(ended), {"now_us": SystemClock().utc_us()})
    op.drop_column("virtual_keys", "workload")
