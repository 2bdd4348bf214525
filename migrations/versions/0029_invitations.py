"""One-time links with which people choose the password they sign in with."""

import sqlalchemy as sa
from alembic import op


revision = "0029"
down_revision: str | None = "0028"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "invitations",
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("person", sa.String(63), nullable=False),
        sa.Column("made_by", sa.String(200), nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("made_us", "until_us")),
        sa.PrimaryKeyConstraint("digest", name="pk_invitations"),
        sa.ForeignKeyConstraint(["person"], ["people.name"], name="fk_invitations_person"),
    )
    op.create_index("ix_invitations_person", "invitations", ["person"])


def downgrade() -> None:
    op.drop_table("invitations")
