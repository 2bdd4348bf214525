"""Background answers in the making stand among kept answers; workers and events stand beside.

An older program would continue an answer that has no end yet: so the floor is raised. A downgrade
forgets those that are under way.
"""

import sqlalchemy as sa
from alembic import op


revision = "0080"
down_revision: str | None = "0079"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None
floor = "0080"

_RUNS, _EVENTS = "background_runs", "background_events"
_PLACE = ["organisation", "workspace", "project", "id"]


def upgrade() -> None:
    whole = sa.BigInteger()
    op.create_table(
        _RUNS,
        *_place(),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("conversation_id", sa.String(64), nullable=False),
        sa.Column("worker", sa.String(32), nullable=False),
        sa.Column("holder", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("leased_until_us", whole, nullable=False),
        sa.PrimaryKeyConstraint(*_PLACE, name=f"pk_{_RUNS}"),
        _of_answer(_RUNS),
    )
    for name in ("holder", "leased_until_us"):
        op.create_index(f"ix_{_RUNS}_{name}", _RUNS, [name])
    op.create_table(
        _EVENTS,
        *_place(),
        sa.Column("number", whole, nullable=False),
        sa.Column("first_sequence", whole, nullable=False),
        sa.Column("last_sequence", whole, nullable=False),
        sa.Column("made_us", whole, nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("master_key_id", sa.String(32), nullable=False, server_default=""),
        sa.PrimaryKeyConstraint(*_PLACE, "number", name=f"pk_{_EVENTS}"),
        _of_answer(_EVENTS),
    )
    for name in ("made_us", "master_key_id"):
        op.create_index(f"ix_{_EVENTS}_{name}", _EVENTS, [name])


def _place() -> list[sa.Column[str]]:
    lengths = (63, 63, 63, 64)
    return [
        sa.Column(name, sa.String(length), nullable=False)
        for name, length in zip(_PLACE, lengths, strict=True)
    ]


def _of_answer(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        _PLACE,
        [f"kept_answers.{name}" for name in _PLACE],
        name=f"fk_{table}_{'_'.join(_PLACE)}",
        ondelete="CASCADE",
    )


def downgrade() -> None:
    runs, answers = (sa.table(name, *map(sa.column, _PLACE)) for name in (_RUNS, "kept_answers"))
    same = sa.and_(*(runs.c[name] == answers.c[name] for name in _PLACE))
    op.execute(sa.delete(answers).where(sa.exists().where(same)))
    op.drop_table(_EVENTS)
    op.drop_table(_RUNS)
