"""Sums of hours and days over all keys, beside those of each key: most pages need no more."""

from typing import Any

import sqlalchemy as sa
from alembic import op


revision = "0045"
down_revision: str | None = "0044"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_SERVED = ("target", "provider", "jurisdiction")
_KEYS = {
    "hour": ("organisation", "hour_us", *_SERVED),
    "day": ("organisation", "day", "workspace", "project", *_SERVED, "policy_digest"),
}
_COUNTERS = (
    *("requests", "failed", "refused", "found", "unpriced"),
    *("input_tokens", "output_tokens", "cost_microusd", "duration_us"),
)
_TYPES: dict[str, sa.types.TypeEngine[Any]] = {"hour_us": sa.BigInteger(), "day": sa.String(10)}


def upgrade() -> None:
    sums = ", ".join(f"sum({name})" for name in _COUNTERS)
    for kind, keys in _KEYS.items():
        table, names = f"traffic_{kind}_totals", ", ".join(keys)
        op.create_table(
            table,
            *(
                sa.Column(
                    name,
                    _TYPES.get(name, sa.Text()),
                    nullable=False,
                    autoincrement=False,
                    server_default="" if name == "policy_digest" else None,
                )
                for name in keys
            ),
            *(sa.Column(name, sa.BigInteger, nullable=False) for name in (*_COUNTERS, "last_us")),
            sa.PrimaryKeyConstraint(*keys, name=f"pk_{table}"),
        )
        op.execute(
            f"INSERT INTO {table} ({names}, {', '.join(_COUNTERS)}, last_us)"  # noqa: S608 - ours
            f" SELECT {names}, {sums}, max(last_us) FROM traffic_{kind}s GROUP BY {names}"
        )


def downgrade() -> None:
    for kind in _KEYS:
        op.drop_table(f"traffic_{kind}_totals")
