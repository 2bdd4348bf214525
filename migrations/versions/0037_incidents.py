"""Incidents with their reports."""

import sqlalchemy as sa
from alembic import op


revision = "0037"
down_revision: str | None = "0036"
branch_labels: tuple[str, ...] | None = None
depends_on: tuple[str, ...] | None = None


def upgrade() -> None:
    op.create_table(
        "incidents",
        sa.Column("id", sa.String(12), nullable=False),
        sa.Column("organisation", sa.String(63), nullable=False),
        sa.Column("title", sa.String(120), nullable=False),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("ticket", sa.String(200), nullable=False),
        sa.Column("filter", sa.Text, nullable=False),
        sa.Column("since_us", sa.BigInteger, nullable=False),
        sa.Column("until_us", sa.BigInteger, nullable=False),
        sa.Column("noticed_us", sa.BigInteger, nullable=False),
        sa.Column("regimes", sa.String(200), nullable=False),
        sa.Column("opened_by", sa.String(200), nullable=False),
        sa.Column("opened_us", sa.BigInteger, nullable=False),
        sa.Column("conclusion", sa.Text, nullable=False),
        sa.Column("closing_by", sa.String(200), nullable=False),
        sa.Column("closed_by", sa.String(200), nullable=False),
        sa.Column("closed_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_incidents"),
        sa.ForeignKeyConstraint(
            ["organisation"], ["organisations.name"], name="fk_incidents_organisation"
        ),
    )
    op.create_index(
        "ix_incidents_organisation_closed_us", "incidents", ["organisation", "closed_us"]
    )
    op.create_table(
        "incident_reports",
        sa.Column("incident", sa.String(12), nullable=False),
        sa.Column("clock", sa.String(30), nullable=False),
        sa.Column("reported_us", sa.BigInteger, nullable=False),
        sa.Column("reference", sa.String(200), nullable=False),
        sa.Column("marked_by", sa.String(200), nullable=False),
        sa.Column("marked_us", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("incident", "clock", name="pk_incident_reports"),
        sa.ForeignKeyConstraint(
            ["incident"], ["incidents.id"], name="fk_incident_reports_incident"
        ),
    )


def downgrade() -> None:
    op.drop_table("incident_reports")
    op.drop_table("incidents")
