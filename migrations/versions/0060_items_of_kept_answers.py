"""The kept answers in which an item occurs, so that a request may refer to it by its id.

A downgrade forgets this: requests that only name an item are then refused. Answers that were kept
earlier have no rows here; their items cannot be named.
"""

import sqlalchemy as sa
from alembic import op


revision = "0060"
down_revision: str | None = "0059"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None

_TABLE = "kept_items"
_PLACE = ["organisation", "workspace", "project"]


def upgrade() -> None:
    op.create_table(
        _TABLE,
        *(sa.Column(name, sa.String(63), nullable=False) for name in _PLACE),
        sa.Column("id", sa.String(128), nullable=False),
        sa.Column("answer_id", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint(*_PLACE, "id", "answer_id", name=f"pk_{_TABLE}"),
        sa.ForeignKeyConstraint(
            [*_PLACE, "answer_id"],
            [f"kept_answers.{name}" for name in (*_PLACE, "id")],
            name=f"fk_{_TABLE}_organisation_workspace_project_answer_id",
            ondelete="CASCADE",
        ),
    )
    op.create_index(
        f"ix_{_TABLE}_organisation_workspace_project_answer_id", _TABLE, [*_PLACE, "answer_id"]
    )


def downgrade() -> None:
    op.drop_table(_TABLE)
