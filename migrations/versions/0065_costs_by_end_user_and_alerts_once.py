"""Costs can be grouped by end user, tier and cache; an alert keeps what it was about.

Existing records say none of the three. Alerts that were not taken are sent again with the current
budget, as before.
"""

import sqlalchemy as sa
from alembic import op


revision = "0065"
down_revision: str | None = "0064"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_RECORDS = "audit_records"
_ALERTS = "budget_alerts"
_TEXTS = ("subject", "tier", "cache")
_AMOUNTS = ("limit_microusd", "spent_microusd")
_AGAIN = "again_above_microusd"


def upgrade() -> None:
    for name in _TEXTS:
        op.add_column(_RECORDS, sa.Column(name, sa.Text, nullable=False, server_default=""))
    for name in _AMOUNTS:
        op.add_column(_ALERTS, sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    op.add_column(_ALERTS, sa.Column(_AGAIN, sa.BigInteger))


def downgrade() -> None:
    # What is to be told again under a higher limit is told again by not being there.
    op.execute(f"DELETE FROM {_ALERTS} WHERE {_AGAIN} IS NOT NULL")  # noqa: S608 - our own names
    for name in (_AGAIN, *_AMOUNTS):
        op.drop_column(_ALERTS, name)
    for name in _TEXTS:
        op.drop_column(_RECORDS, name)
