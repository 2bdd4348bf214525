"""Daily sums of each key, whoever served it: queries on thousands of keys read only these."""

import sqlalchemy as sa
from alembic import op


revision = "0047"
down_revision: str | None = "0046"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_TABLE = "traffic_key_days"
_KEYS = ("organisation", "day", "key_id")
_COUNTERS = (
    *("requests", "failed", "refused", "found", "unpriced"),
    *("input_tokens", "output_tokens", "cost_microusd", "duration_us"),
)


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("organisation", sa.Text, nullable=False),
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in (*_COUNTERS, "last_us")),
        sa.PrimaryKeyConstraint(*_KEYS, name=f"pk_{_TABLE}"),
    )
    op.create_index(f"ix_{_TABLE}_organisation_key_id", _TABLE, ["organisation", "key_id"])
    names, sums = ", ".join(_KEYS), ", ".join(f"sum({name})" for name in _COUNTERS)
    op.execute(
        f"INSERT INTO {_TABLE} ({names}, {', '.join(_COUNTERS)}, last_us)"  # noqa: S608 - ours
        f" SELECT {names}, {sums}, max(last_us) FROM traffic_days GROUP BY {names}"
    )


def downgrade() -> None:
    op.drop_table(_TABLE)
