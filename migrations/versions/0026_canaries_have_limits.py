"""A version may have canary limits of its own; what all workers saw of it is stored."""

import sqlalchemy as sa
from alembic import op


revision = "0026"
down_revision: str | None = "0025"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.add_column("policy_versions", sa.Column("guard", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "canary_figures",
        sa.Column("level", sa.String(255), nullable=False),
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("run", sa.String(32), nullable=False),
        sa.Column("arms", sa.Text, nullable=False),
        sa.Column("changed_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("level", "number", "run", name="pk_canary_figures"),
    )


def downgrade() -> None:
    op.drop_table("canary_figures")
    with op.batch_alter_table("policy_versions") as table:
        table.drop_column("guard")
