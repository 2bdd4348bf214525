"""Costs can be grouped by the policy that decided: records and sums hold its digest.

Existing records have none; days that were already summed stay as they are.
"""

import sqlalchemy as sa
from alembic import op


revision = "0039"
down_revision: str | None = "0038"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_DAYS = "traffic_days"
_OLD = "traffic_days_before"
_KEYS = (
    *("organisation", "day", "workspace", "project"),
    *("key_id", "target", "provider", "jurisdiction"),
)
_COUNTERS = (
    *("requests", "failed", "refused", "found", "unpriced"),
    *("input_tokens", "output_tokens", "cost_microusd", "duration_us"),
)


def upgrade() -> None:
    op.add_column(
        "audit_records", sa.Column("policy_digest", sa.Text, nullable=False, server_default="")
    )
    _rebuild((*_KEYS, "policy_digest"))
    columns = ", ".join((*_KEYS, *_COUNTERS, "last_us"))
    op.execute(f"INSERT INTO {_DAYS} ({columns}) SELECT {columns} FROM {_OLD}")  # noqa: S608 - ours
    op.drop_table(_OLD)


def downgrade() -> None:
    _rebuild(_KEYS)
    sums = ", ".join(f"sum({name})" for name in _COUNTERS)
    keys, columns = ", ".join(_KEYS), ", ".join((*_KEYS, *_COUNTERS, "last_us"))
    op.execute(
        f"INSERT INTO {_DAYS} ({columns})"  # noqa: S608 - ours
        f" SELECT {keys}, {sums}, max(last_us) FROM {_OLD} GROUP BY {keys}"
    )
    op.drop_table(_OLD)
    op.drop_column("audit_records", "policy_digest")


def _rebuild(keys: tuple[str, ...]) -> None:
    """An empty table with another primary key; the one that was there has another name."""
    op.rename_table(_DAYS, _OLD)
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER TABLE {_OLD} RENAME CONSTRAINT pk_{_DAYS} TO pk_{_OLD}")
    defaults = {"policy_digest": ""}
    op.create_table(
        _DAYS,
        *(
            sa.Column(
                name,
                sa.String(10) if name == "day" else sa.Text,
                nullable=False,
                server_default=defaults.get(name),
            )
            for name in keys
        ),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in (*_COUNTERS, "last_us")),
        sa.PrimaryKeyConstraint(*keys, name=f"pk_{_DAYS}"),
    )
