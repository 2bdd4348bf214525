"""Outcomes summed by hour and by day, so that pages do not read them one by one."""

import sqlalchemy as sa
from alembic import op


revision = "0016"
down_revision: str | None = "0015"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_COUNTERS = (
    *("requests", "failed", "refused", "found", "unpriced"),
    *("input_tokens", "output_tokens", "cost_microusd", "duration_us", "last_us"),
)


def upgrade() -> None:
    for name, when, groups in (
        ("traffic_hours", sa.Column("hour_us", sa.BigInteger, nullable=False), ()),
        ("traffic_days", sa.Column("day", sa.String(10), nullable=False), ("workspace", "project")),
    ):
        keys = [
            sa.Column("organisation", sa.Text, nullable=False),
            when,
            *(sa.Column(group, sa.Text, nullable=False) for group in groups),
            *(
                sa.Column(group, sa.Text, nullable=False)
                for group in ("key_id", "target", "provider", "jurisdiction")
            ),
        ]
        op.create_table(
            name,
            *keys,
            *(sa.Column(counter, sa.BigInteger, nullable=False) for counter in _COUNTERS),
            sa.PrimaryKeyConstraint(*(key.name for key in keys), name=f"pk_{name}"),
        )
    op.create_table(
        "rollup_cursors",
        sa.Column("organisation", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("time_zone", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("organisation", name="pk_rollup_cursors"),
    )


def downgrade() -> None:
    for name in ("rollup_cursors", "traffic_days", "traffic_hours"):
        op.drop_table(name)
